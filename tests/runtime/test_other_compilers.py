"""Tests that an entry's key names what compiled it: a compiler that was replaced at its path, a
header of the system that was changed, and a library that was renamed lead to entries of their own,
which never reach those who have the build's."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from support import HERE, Lazyck
from support.bundles import Bundle, make_bundle

from lazyck import abi
from lazyck.formats.layout import EntryPath
from lazyck.toolchains.identity import compiler_identity

CLANG = next((p for p in ("/usr/bin/clang++-19", "/usr/bin/clang++-15") if Path(p).exists()), "")
BLOB = 'extern "C" int one() { return OF_SYSTEM; }\n'


@dataclass(frozen=True)
class Host:
    """A machine: its compiler and a header of its system are files that a test may replace. `asked`
    counts how often the compiler was asked which one it is."""

    bundle: Bundle
    rt: Path
    header: Path
    asked: Path

    @property
    def compiler(self) -> Path:
        return self.bundle.directory / "cxx"

    @property
    def cache(self) -> Path:
        return Path(os.environ["LAZYCK_CACHE_DIR"])

    def run(self, verb: str, **env: str) -> subprocess.CompletedProcess[str]:
        words: list[str | Path] = [self.rt, verb, "--from", self.bundle.file, "--", "one"]
        full = {**os.environ, "LAZYCK_LOG": "info", **env}
        return subprocess.run(words, env=full, capture_output=True, text=True)

    def compile(self, **env: str) -> str:
        done = self.run("compile", **env)
        assert done.returncode == 0, done.stderr
        return done.stderr

    def replace_compiler(self, line: str) -> None:
        text = self.compiler.read_text()
        self.compiler.write_text(text.replace("#!/bin/sh\n", f"#!/bin/sh\n{line}\n"))

    def toolchains(self) -> list[str]:
        """Return the names of what compiled the entries, in their order."""
        entries = sorted(self.cache.glob("v1/*/*/*.so"), key=lambda p: p.stat().st_mtime_ns)
        return [EntryPath.of(p).build for p in entries]

    def compiles(self) -> int:
        return len(self.bundle.compiled())

    def times_asked(self) -> int:
        return len(self.asked.read_text().split()) if self.asked.exists() else 0


@pytest.fixture
def host(tmp_path: Path, rt_tool: Path) -> Host:
    header, asked, script = tmp_path / "b/sys/of.h", tmp_path / "asked", tmp_path / "b/cxx"
    header.parent.mkdir(parents=True)
    header.write_text("#define OF_SYSTEM 1\n")
    flags = ("-include", str(header))
    programs, name = (str(script), HERE.cxx), "unknown yet"
    for _ in range(2):  # the compiler has its name only once it is there
        bundle = make_bundle(
            tmp_path / "b", {"one": BLOB}, toolchain="host", flags=flags, toolchain_id=name, programs=programs,
            headers=[header],
        )  # fmt: skip
        made = Host(bundle, rt_tool, header, asked)
        made.replace_compiler(f"[ \"$1\" = --version ] && echo x >> '{asked}' && exec {HERE.cxx} --version")
        name = compiler_identity((str(script),), programs=programs)
    asked.unlink()
    return made


def test_the_build_s_compiler_has_the_build_s_key_and_is_asked_once_for_all_processes(host: Host) -> None:
    host.compile()
    (recipe,) = host.bundle.manifest.recipes
    assert host.toolchains() == [recipe.toolchain_id]
    assert host.times_asked() == 1
    shutil.rmtree(host.cache / "v1")
    host.compile()
    assert host.toolchains() == [recipe.toolchain_id]
    assert host.times_asked() == 1  # its files are those of the record
    assert host.compiles() == 2


def test_a_hit_asks_nothing(host: Host) -> None:
    host.compile()
    shutil.rmtree(host.cache / ".compilers")
    host.asked.unlink()
    host.compiler.unlink()
    host.compile()
    assert (host.times_asked(), host.compiles()) == (0, 1)


def test_a_replaced_compiler_makes_entries_of_its_own_and_the_build_s_stay(host: Host) -> None:
    host.compile()
    before = host.compiler.read_text()
    shutil.move(host.cache, host.cache.with_name("shared"))
    host.replace_compiler('[ "$1" = --version ] || set -- "$@" -DOTHER')
    said = host.compile()
    (recipe,) = host.bundle.manifest.recipes
    assert f"'{host.compiler}' is " in said
    assert f"but the library was built with {recipe.toolchain_id}" in said
    (other,) = host.toolchains()
    assert other.startswith("gcc")
    assert other != recipe.toolchain_id
    # Both machines share a cache: each has what its compiler made, and nothing is compiled again.
    shutil.copytree(host.cache.with_name("shared"), host.cache, dirs_exist_ok=True)
    shutil.rmtree(host.cache / f"v1/libtiny/{HERE.name}-{recipe.toolchain_id}")
    host.compile()
    assert host.compiles() == 2
    host.compiler.write_text(before)
    host.compile()
    assert host.compiles() == 3
    assert host.toolchains() == [other, recipe.toolchain_id]


@pytest.mark.skipif(not CLANG, reason="needs clang++")
def test_a_compiler_of_another_kind_is_named_by_its_own_words(host: Host) -> None:
    host.compiler.write_text(f'#!/bin/sh\nexec {CLANG} "$@"\n')
    host.compile()
    (name,) = host.toolchains()
    assert name.startswith(Path(CLANG).name.replace("++-", ""))


def test_a_changed_header_of_the_system_is_in_the_key_as_long_as_it_differs(host: Host) -> None:
    (recipe,) = host.bundle.manifest.recipes
    host.header.write_text("#define OF_SYSTEM 2\n")
    said = host.compile()
    assert f"'{host.header}' is not as the library was built with" in said
    assert "but the library was built with" not in said  # the compiler is the same
    (other,) = host.toolchains()
    assert other.startswith(f"{recipe.toolchain_id}{abi.HEADERS_MARK}")
    assert "'{host.header}'" not in host.compile()
    assert host.compiles() == 1
    host.header.write_text("#define OF_SYSTEM 1\n")
    host.compile()
    assert host.toolchains() == [other, recipe.toolchain_id]


def test_a_lost_header_of_the_system_is_another_one(host: Host) -> None:
    host.replace_compiler('[ "$1" = --version ] || set -- "$@" -DOF_SYSTEM=3')
    host.header.rename(host.header.with_suffix(".gone"))
    host.header.with_name("of.h").mkdir()
    assert f"'{host.header}' is not as" in host.run("compile").stderr


def test_what_another_compiler_made_is_found_where_compiling_is_forbidden(host: Host) -> None:
    host.header.write_text("#define OF_SYSTEM 2\n")
    host.compile()
    frozen = host.run("compile", LAZYCK_JIT="off")
    assert frozen.returncode == 0, frozen.stderr
    shutil.rmtree(host.cache / "v1")
    asked = host.times_asked()
    frozen = host.run("compile", LAZYCK_JIT="off")
    assert "is missing in the cache" in frozen.stderr
    assert host.times_asked() == asked  # nothing could have been found


def test_status_tells_what_another_compiler_made(host: Host) -> None:
    assert '"cached": false' in host.run("status").stdout
    assert host.times_asked() == 0
    host.header.write_text("#define OF_SYSTEM 2\n")
    host.compile()
    said = host.run("status").stdout
    (name,) = host.toolchains()
    assert '"cached": true' in said
    assert f"{HERE.name}-{name}/one-" in said


def test_a_compiler_that_cannot_be_asked_compiles_nothing(host: Host) -> None:
    host.replace_compiler('[ "$1" = --version ] && echo out of order >&2 && exit 3')
    done = host.run("compile")
    assert done.returncode == 1
    assert (
        f"blob 'one': its compiler cannot be asked which it is: `{host.compiler} --version`: exit status 3"
        in done.stderr
    )
    assert "out of order; install that compiler, or fill the cache" in done.stderr
    assert (host.toolchains(), host.compiles()) == ([], 0)


def test_a_list_of_headers_that_was_changed_is_refused(host: Host) -> None:
    listed = host.bundle.file.parent / "tree/.lazyck/host.headers"
    listed.write_bytes(listed.read_bytes()[:-3] + b"x.h\0")
    done = host.run("compile")
    assert done.returncode == 1
    assert f"'{listed}' was changed; install the library again" in done.stderr
    assert host.compiles() == 0


def test_explain_tells_another_compiler_and_other_headers_apart(host: Host, lazyck: Lazyck) -> None:
    host.header.write_text("#define OF_SYSTEM 2\n")
    host.compile()
    (name,) = host.toolchains()
    host.header.write_text("#define OF_SYSTEM 1\n")
    said = lazyck("cache", "explain", host.bundle.file, "one").stdout
    assert f"the system's headers: wanted the build's, it has others ({name[-12:]})" in said
    assert "toolchain" not in said


# -- a real build ----------------------------------------------------------------------------------

SOURCES = {
    "blob/f.cpp": "#include <vector>\nint f() { return std::vector<int>(7).size() + OF_COMPILER; }\n",
    "lib.cpp": 'int f();\nextern "C" int call() { return f(); }\n',
}
CALL = "import ctypes, sys; print([ctypes.CDLL(path).call() for path in sys.argv[1:]])"


@dataclass(frozen=True)
class Built:
    library: Path
    compiler: Path

    def call(self, *libraries: Path, **env: str) -> str:
        argv: list[str | Path] = [sys.executable, "-c", CALL, *(libraries or (self.library,))]
        done = subprocess.run(argv, env={**os.environ, **env}, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def entries(self) -> list[EntryPath]:
        return [EntryPath.of(p) for p in sorted(Path(os.environ["LAZYCK_CACHE_DIR"]).glob("v1/*/*/*.so"))]


@pytest.fixture
def built(tmp_path: Path, lazyck: Lazyck) -> Built:
    for name, text in SOURCES.items():
        (tmp_path / "p" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "p" / name).write_text(text)
    compiler = tmp_path / "bin/c++"
    compiler.parent.mkdir()
    compiler.write_text(f'#!/bin/sh\nexec {HERE.cxx} -DOF_COMPILER=1 "$@"\n')
    compiler.chmod(0o755)
    commands = "$CXX -fPIC -c blob/f.cpp -o f.o && $CXX -fPIC -c lib.cpp -o lib.o && $CXX -shared f.o lib.o -o libk.so"
    env = {"CXX": str(compiler)}
    done = lazyck("build", "full", "--toolchain", "host", "--blobs", "*/blob/*", "--", "sh", "-c", commands,
                  cwd=tmp_path / "p", env=env)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return Built(tmp_path / "p/libk.so", compiler)


def test_runtime_and_build_name_a_real_compiler_alike(built: Built, lazyck: Lazyck) -> None:
    assert built.call() == "[8]"
    (entry,) = built.entries()
    said = lazyck("inspect", "--json", built.library).stdout
    assert f'"{entry.build}"' in said
    assert "cc1plus" in said
    listed = next(built.library.parent.rglob("host.headers")).read_bytes()
    assert b"/vector\0" in listed
    assert b"stdc-predef.h\0" in listed


def test_two_machines_with_two_compilers_share_a_cache(built: Built) -> None:
    assert built.call() == "[8]"
    text = built.compiler.read_text()
    shutil.rmtree(os.environ["LAZYCK_CACHE_DIR"])
    built.compiler.write_text(text.replace("OF_COMPILER=1", "OF_COMPILER=2"))
    assert built.call() == "[9]"
    built.compiler.write_text(text)
    assert built.call() == "[8]"
    assert len({entry.build for entry in built.entries()}) == 2
    # On the machine of the build, its own entry is found first; none is compiled.
    assert built.call(LAZYCK_JIT="off") == "[8]"


@pytest.mark.skipif(shutil.which("patchelf") is None, reason="needs patchelf")
def test_a_renamed_library_uses_the_entries_of_the_old_one(built: Built) -> None:
    renamed = built.library.with_name("libk-1a2b3c4d.so")
    subprocess.run(["patchelf", "--set-soname", renamed.name, "--output", renamed, built.library], check=True)
    assert built.call() == "[8]"
    assert built.call(built.library, renamed, LAZYCK_JIT="off") == "[8, 8]"
