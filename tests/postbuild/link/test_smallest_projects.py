"""Tests that the smallest project links lazily by every driver and linker, as every kind of output,
and does what it does ahead of time: whatever the runtime needs, the link brings."""

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from support import Lazyck

from lazyck.postbuild.objects.embedded import read_manifest

LINKERS = {"bfd": "ld.bfd", "gold": "ld.gold", "lld": "ld.lld", "mold": "mold"}
DRIVERS = {"gcc": "c", "clang-19": "c", "g++": "cpp", "clang++-19": "cpp", "nvcc": "cpp", "hipcc": "cpp"}
BLOB = "EXTERN int triple(int x) { return x * 3; }\n"
DISPATCH = "EXTERN int triple(int);\nEXTERN int entry(int x) { return triple(x); }\n"
MAIN = '#include <stdio.h>\nEXTERN int entry(int);\nint main(void) { printf("%d\\n", entry(7)); return 0; }\n'
CALL = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).entry(7))"
EAGER = {
    "-static": "cannot load blobs",
    "-nostdlib": "which the runtime needs",
    "-nodefaultlibs -lc": "which the runtime needs",
    "-nolibc": "which the runtime needs",
    "-nostartfiles": "which the runtime needs",
    "-nostdlib -lstdc++ -lgcc_s -lc": "which the runtime needs",
}


@dataclass(frozen=True)
class Link:
    """One link of the project. `options` are the driver's own words for it."""

    driver: str
    linker: str
    is_library: bool
    options: str = ""
    from_archive: bool = False

    @property
    def name(self) -> str:
        kind = "library" if self.is_library else "program"
        words = re.sub(r"[^a-z+]+", "_", self.options)
        return "-".join(filter(None, (self.driver, self.linker, kind, words, "archive" * self.from_archive)))

    @property
    def output(self) -> str:
        return f"{self.name}/libx.so" if self.is_library else f"{self.name}/main"

    def line(self) -> str:
        """Return the command, which runs in the directory of its language's objects."""
        use = f"-fuse-ld={self.linker}" if self.linker else ""
        blob = "libblob.a" if self.from_archive else "blob.o"
        objects = f"entry.o {blob}" if self.is_library else f"main.o entry.o {blob}"
        shared = "-shared" if self.is_library else ""
        return f"{self.driver} {use} {shared} {objects} -o {self.output} {self.options}"


def links() -> list[Link]:
    # Drivers for C bring the least, so they meet each linker with both kinds of output.
    made = [Link(d, n, k) for d in ("gcc", "clang-19") for n in LINKERS for k in (True, False)]
    made += [Link(d, n, i % 2 == j) for j, d in enumerate(("g++", "clang++-19")) for i, n in enumerate(LINKERS)]
    made += [Link(d, "", k) for d in ("nvcc", "hipcc") for k in (True, False)]
    defs = "-Wl,-z,defs -Wl,--as-needed"
    made += [Link(d, "", True, f"{defs} -static-libgcc") for d in ("gcc", "clang-19")]
    made += [Link(d, "", True, f"{defs} -static-libgcc -static-libstdc++") for d in ("g++", "clang++-19")]
    made += [Link("gcc", "", False, "-no-pie"), Link("gcc", "", False, from_archive=True)]
    made += [Link("gcc", "", True, "-Wl,-z,now", from_archive=True), Link("clang++-19", "", True, "-nostdlib++")]
    made += [Link("g++", "", True, "-nodefaultlibs -lstdc++ -lgcc_s -lc"), Link("gcc", "", True, "-nolibc -lc")]
    return made + [Link("gcc", "", option != "-static", option) for option in EAGER]


def make(where: Path, every: list[Link]) -> None:
    lines = ["set -e"]
    for language, extern in (("c", ""), ("cpp", 'extern "C" ')):
        (where / language / "blob").mkdir(parents=True)
        for name, text in (("blob/blob", BLOB), ("entry", DISPATCH), ("main", MAIN)):
            (where / language / f"{name}.{language}").write_text(text.replace("EXTERN ", extern))
        compiler = "gcc" if language == "c" else "g++"
        lines += [f"cd {where}/{language}"]
        lines += [f"{compiler} -O1 -fPIC -c {f}.{language} -o {Path(f).name}.o" for f in ("blob/blob", "entry", "main")]
        lines += ["rm -f libblob.a", "ar rc libblob.a blob.o"]
        for link in (link for link in every if DRIVERS[link.driver] == language):
            lines += [f"mkdir -p {link.name}", link.line()]
    (where / "build.sh").write_text("\n".join(lines) + "\n")


def answer(link: Link, where: Path) -> tuple[int, str]:
    """Return status and output of the project as that link has made it."""
    file = where / DRIVERS[link.driver] / link.output
    words = [sys.executable, "-c", CALL, str(file)] if link.is_library else [str(file)]
    done = subprocess.run(words, capture_output=True, text=True)
    return done.returncode, done.stdout or done.stderr[-300:]


def test_the_smallest_project_does_by_every_link_what_it_does_ahead_of_time(
    lazyck: Lazyck, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIP_PLATFORM", "amd")  # beside an nvcc, hipcc would call that
    tools = {d for d in DRIVERS if shutil.which(d)} | {n for n, program in LINKERS.items() if shutil.which(program)}
    every = [link for link in links() if link.driver in tools and (not link.linker or link.linker in tools)]
    assert len(every) >= 8
    ahead, lazy = tmp_path / "ahead", tmp_path / "lazy"
    for where in (ahead, lazy):
        make(where, every)
    subprocess.run(["sh", "build.sh"], cwd=ahead, check=True, capture_output=True)
    done = lazyck("build", "full", "--blobs", "*/blob/*", "--tmp-dir", tmp_path / "t", "--", "sh", "build.sh", cwd=lazy)
    assert done.returncode == 0, done.stdout + done.stderr
    wrong = {}
    for link in every:
        wanted, seen = answer(link, ahead), answer(link, lazy)
        is_lazy = bool(read_manifest(lazy / DRIVERS[link.driver] / link.output).blobs)
        if seen != wanted or is_lazy == (link.options in EAGER):
            wrong[link.name] = (wanted, seen, is_lazy)
    assert not wrong
    for reason in EAGER.values():
        assert reason in done.stderr + done.stdout
    if missing := sorted((set(DRIVERS) | set(LINKERS)) - tools):
        pytest.skip(f"only with what is at hand: no {', '.join(missing)}")
