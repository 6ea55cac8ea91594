"""Test that a link takes from static archives of blobs the members that it takes ahead of time."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import Lazyck

from lazyck.postbuild.archives import Linkable, pulled
from lazyck.postbuild.objects import elf

pytestmark = pytest.mark.differs("each test compares its library itself")

FILES = {
    "api.hpp": "#pragma once\nint used(int);\nint through_inline(int);\nint spare(int);\n"
    "inline int both(int x) { return through_inline(x); }\n"
    "struct Made { int x; Made(int); ~Made(); Made operator+(const Made &) const; };\nMade make(int);\n"
    "int from_real(int);\nint behind_real(int);\nint asked(int);\nint chosen();\n",
    "main.cpp": '#include "api.hpp"\nextern "C" int run(int x) { return used(x) + chosen(); }\n',
    "real.cpp": '#include "api.hpp"\nint from_real(int x) { return behind_real(x) + 1; }\n',
    "blob/used.cpp": '#include "api.hpp"\n'
    "int used(int x) { auto a = make(x); return (a + a).x + both(1) + from_real(x); }\n",
    "blob/inline.cpp": '#include "api.hpp"\nint through_inline(int x) { return x + 100; }\n',
    "blob/made.cpp": '#include "api.hpp"\n'
    "Made::Made(int n) : x(n) {}\nMade::~Made() {}\nMade Made::operator+(const Made &o) const { return x + o.x; }\n",
    "blob/make.cpp": '#include "api.hpp"\nMade make(int x) { return Made(x); }\n',
    "blob/behind.cpp": '#include "api.hpp"\nint behind_real(int x) { return x * 1000; }\n',
    "blob/spare.cpp": '#include "api.hpp"\nint spare(int x) { return -x; }\n',
    "blob/asked.cpp": '#include "api.hpp"\nint asked(int x) { return -x; }\n',
    "blob/chosen1.cpp": "int chosen() { return 1000000; }\n",
    "blob/chosen2.cpp": "int table[2] = {1, 2};\nint chosen() { return 2000000; }\nint other() { return table[1]; }\n",
    "blob/registers.cpp": '#include <cstdio>\nstruct R { R() { std::fputs("registered", stderr); } } r;\n'
    "int unused() { return 1; }\n",
}
NEEDED = ["behind", "chosen1", "inline", "made", "make", "used"]
RESULT = str(6 + 101 + 3001 + 1000000)
BLOBS = [*NEEDED, "asked", "chosen2", "registers", "spare"]
COMPILE = "set -e\nfor f in *.cpp blob/*.cpp; do c++ -O1 -fPIC -I. -c $f -o $(basename $f .cpp).o; done\n"
ARCHIVE = f"ar rcs libparts.a {' '.join(f'{b}.o' for b in sorted(BLOBS))} real.o\n"


class Built:
    """Builds the files lazily with `script`."""

    def __init__(self, lazyck: Lazyck, where: Path, script: str) -> None:
        self.where, self.lazyck = where, lazyck
        for name, text in FILES.items():
            (where / name).parent.mkdir(exist_ok=True)
            (where / name).write_text(text)
        (where / "build.sh").write_text(COMPILE + script)
        done = lazyck("build", "full", "--toolchain", "host", "--", "sh", "build.sh", cwd=where)
        assert done.returncode == 0, done.stderr
        self.report = done.stderr

    @property
    def left_out(self) -> int:
        found = re.search(r"(\d+) blobs? of static libraries (?:is|are) needed by nothing in this link", self.report)
        return int(found[1]) if found else 0

    def check(self) -> list[Any]:
        done = self.lazyck("check", "--tmp-dir", ".lazyck-build", "--json", cwd=self.where)
        (found,) = json.loads(done.stdout)
        return [(d["kind"], d["demangled"]) for d in found["differences"] if d["fails"]]

    def call(self) -> tuple[str, bool]:
        """Return what the library computes, and whether it contains `registers`."""
        code = "import ctypes; print(ctypes.CDLL('./libx.so').run(3))"
        done = subprocess.run([sys.executable, "-c", code], cwd=self.where, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip(), "registered" in done.stderr


def test_what_only_the_text_of_a_lazy_blob_tells_is_taken_and_the_rest_is_left_out(
    lazyck: Lazyck, tmp_path: Path
) -> None:
    """The members are needed by an inline function, an operator, an implicit destructor, and a real
    member of the archive. Two more are only declared in a header, and do no harm."""
    built = Built(lazyck, tmp_path, f"{ARCHIVE}c++ -shared -o libx.so main.o libparts.a\n")
    assert "10 blobs deferred, 8 lazy" in built.report and "0 eager" in built.report, built.report
    assert built.left_out == 2
    assert built.check() == []
    assert built.call() == (RESULT, False)


@pytest.mark.parametrize(
    ("link", "left_out"),
    [
        ("-Wl,--whole-archive libparts.a -Wl,--no-whole-archive", 0),
        ("-Wl,--push-state,--whole-archive,libparts.a,--pop-state", 0),
        ("-Wl,--whole-archive -Wl,--no-whole-archive libparts.a", 2),
        ("-Wl,--push-state,--whole-archive,--pop-state libparts.a", 2),
        ("-Wl,-u,_Z5askedi libparts.a", 2),
        ("-Wl,--undefined=_Z5askedi -Xlinker -u -Xlinker _Z5sparei libparts.a", 2),
        ("-Wl,--no-as-needed libneeds.so libparts.a -Wl,-rpath,$PWD", 2),
        ("libparts.a spare.o", 2),
        ("again.cpp libparts.a", 2),
        ("-fuse-ld=lld -Wl,--start-lib asked.o spare.o -Wl,--end-lib libparts.a", 2),
    ],
)
def test_how_a_link_can_take_members_otherwise(lazyck: Lazyck, tmp_path: Path, link: str, left_out: int) -> None:
    # If the link takes all members, two of them must not define `chosen`.
    archive = ARCHIVE if left_out else ARCHIVE.replace("chosen2.o", "")
    needs = (
        'echo "int spare(int); int x() { return spare(1); }" > ../n.cpp; c++ -fPIC -shared ../n.cpp -o libneeds.so\n'
    )
    built = Built(lazyck, tmp_path, f"{archive}{needs}echo > again.cpp\nc++ -fPIC -shared -o libx.so main.o {link}\n")
    assert built.left_out == left_out, built.report
    if "again" not in link:  # lazyck check cannot compile what the link itself compiles
        assert built.check() == []
        assert built.call() == (RESULT, not left_out)


def test_a_program_takes_the_first_of_two_definitions_and_runs_no_other_initializers(
    lazyck: Lazyck, tmp_path: Path
) -> None:
    program = 'extern "C" int run(int);\n#include <cstdio>\nint main() { std::printf("%d\\n", run(3)); }\n'
    script = f"{ARCHIVE}cat > start.cc <<'END'\n{program}END\nc++ -c start.cc\nc++ -o prog start.o main.o libparts.a\n"
    built = Built(lazyck, tmp_path, script)
    assert (built.left_out, built.check()) == (2, [])
    shown = subprocess.run([tmp_path / "prog"], capture_output=True, text=True)
    assert shown.stdout == f"{RESULT}\n", shown.stderr
    assert "registered" not in shown.stderr


def parts(**given: tuple[str, str]) -> list[Linkable]:
    return [Linkable(name, frozenset(d.split()), frozenset(n.split())) for name, (d, n) in given.items()]


def test_what_is_pulled() -> None:
    chain = [[parts(a=("a", "b c"), b=("b", ""), c=("c d", "a"), spare=("e", "a"))]]
    assert pulled(chain, {"a"}, set()) == {"a", "b", "c"}
    assert pulled(chain, {"a"}, {"b"}) == {"a", "c"}
    assert pulled(chain, {"a"}, {"a"}) == set()
    assert pulled(chain, {"e"}, set()) == {"a", "b", "c", "spare"}
    rivals = [[parts(one=("f g", ""), two=("f", ""), three=("g h", ""))]]
    assert pulled(rivals, {"f", "h"}, set()) <= {"one", "three"}
    in_order = [[parts(early=("f", ""))], [parts(g=("g", "f h"), f=("f", ""))], [parts(h=("h", "f early"))]]
    assert pulled(in_order, {"g"}, set()) == {"g", "f", "h"}
    assert pulled(in_order, {"g"}, set(), in_order=False) == {"g", "early", "h"}
    group = [[parts(early=("f", "")), parts(g=("g", "h")), parts(h=("h", "f"))]]
    assert pulled(group, {"g"}, set()) == {"g", "h", "early"}
    within = [[parts(b=("q", ""), a=("p q", ""))]]
    assert pulled(within, {"p", "q"}, set()) == {"a", "b"}


def test_a_source_that_the_link_compiles_is_read_as_an_object(lazyck: Lazyck, tmp_path: Path) -> None:
    (tmp_path / "blob").mkdir()
    (tmp_path / "main.cpp").write_text(
        'extern "C" int f(int);\nint main(int n, char**) { return f(n) - 7 - NEEDED; }\n'
    )
    (tmp_path / "blob" / "eager.cpp").write_text(
        "int table = 3;\n" + 'extern "C" int f(int x) { return x + 2 * table; }\n'
    )
    # Nothing needs this member, which could not be a second object of the link.
    (tmp_path / "blob" / "spare.cpp").write_text('extern "C" int f(int) { return 1; }\nint g(int x) { return x; }\n')
    build = tmp_path / "build.sh"
    script = "set -e\nfor f in blob/*.cpp; do c++ -c $f -o $(basename $f .cpp).o; done\nar rcs libspare.a spare.o\n"
    link = "c++ -DNEEDED=0 -o main main.cpp eager.o libspare.a"
    build.write_text(script + link)
    command = ("build", "full", "--toolchain", "host", "--", "sh", "build.sh")
    done = lazyck(*command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "1 blob of static libraries is needed by nothing" in done.stderr, done.stderr
    assert subprocess.run([tmp_path / "main"]).returncode == 0
    build.write_text(script + link.replace("-DNEEDED=0", ""))
    done = lazyck(*command, cwd=tmp_path)
    assert done.returncode != 0
    assert "NEEDED" in done.stderr
    shown = re.search(r"compile of main.cpp ended with status 1; its command is in (\S+)", done.stderr)
    assert shown, done.stderr
    assert "-c main.cpp" in Path(shown[1]).read_text()


def test_a_wrapper_in_an_archive_is_wanted_by_who_calls_what_it_wraps(lazyck: Lazyck, tmp_path: Path) -> None:
    (tmp_path / "blob").mkdir()
    wrapper = 'extern "C" int __real_f(int);\nextern "C" int __wrap_f(int x) { return __real_f(x) + 500; }\n'
    (tmp_path / "blob" / "wrap.cpp").write_text(wrapper)
    (tmp_path / "blob" / "f.cpp").write_text('extern "C" int f(int x) { return x + 1; }\n')
    (tmp_path / "main.cpp").write_text('extern "C" int f(int);\nextern "C" int run(int x) { return f(x); }\n')
    script = "set -e\nfor f in *.cpp blob/*.cpp; do c++ -fPIC -c $f -o $(basename $f .cpp).o; done\n"
    script += "ar rcs libp.a wrap.o f.o\nc++ -shared -o libx.so main.o libp.a -Wl,--wrap=f\n"
    (tmp_path / "build.sh").write_text(script)
    done = lazyck("build", "full", "--toolchain", "host", "--", "sh", "build.sh", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    code = "import ctypes; print(ctypes.CDLL('./libx.so').run(3))"
    assert subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True).stdout == "504\n"


def test_a_member_that_would_stand_in_place_of_a_library_s_function_is_taken_if_code_needs_it(
    lazyck: Lazyck, tmp_path: Path
) -> None:
    """Two texts name `random`, and so an archive's own one, which the code of one blob calls."""
    files = {
        "own.cpp": 'extern "C" long random() { return 4; }\n',
        "blob/never.cpp": '#include <cstdlib>\nextern "C" int never(int x) { return false ? random() : x; }\n',
        "blob/calls.cpp": '#include <cstdlib>\nextern "C" int calls(int x) { return random() + x; }\n',
    }
    (tmp_path / "blob").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    script = "set -e\nfor f in *.cpp blob/*.cpp; do c++ -O1 -fPIC -c $f -o $(basename $f .cpp).o; done\n"
    script += "ar rcs libown.a own.o\nfor n in never calls; do c++ -shared $n.o -o lib$n.so libown.a; done\n"
    done = lazyck("build", "full", "--toolchain", "host", "--", "sh", "-c", script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    exported = {name: elf.read_shared(tmp_path / f"lib{name}.so").defined for name in ("never", "calls")}
    assert {name: "random" in defined for name, defined in exported.items()} == {"never": False, "calls": True}


@pytest.mark.parametrize("linker", ["bfd", "gold", "lld"])
def test_the_runtime_s_own_calls_bring_in_no_member(lazyck: Lazyck, tmp_path: Path, linker: str) -> None:
    """The runtime allocates, and so would the link have the archive's allocator."""
    files = {
        "own.cpp": "#include <cstdlib>\n#include <new>\nvoid *operator new(std::size_t n) { return std::malloc(n); }\n"
        "void operator delete(void *p) noexcept { std::free(p); }\n"
        "void operator delete(void *p, std::size_t) noexcept { std::free(p); }\n",
        "blob/f.cpp": 'extern "C" int f(int x) { return x + 1; }\n',
    }
    (tmp_path / "blob").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    script = "set -e\nfor f in *.cpp blob/*.cpp; do c++ -fPIC -c $f -o $(basename $f .cpp).o; done\n"
    script += f"ar rcs libown.a own.o\nc++ -fuse-ld={linker} -shared f.o -o libx.so libown.a\n"
    done = lazyck("build", "full", "--toolchain", "host", "--", "sh", "-c", script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "_Znwm" not in elf.read_shared(tmp_path / "libx.so").defined
    code = "import ctypes; print(ctypes.CDLL('./libx.so').f(3))"
    assert subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True).stdout == "4\n"


COMPILED = "set -e\nfor f in *.c blob/*.c; do cc -fPIC -c $f -o $(basename $f .c).o; done\n"


def both_ways(lazyck: Lazyck, at: Path, files: dict[str, str], script: str) -> dict[str, tuple[str, set[str]]]:
    """Build libx.so in both ways. Return what its `run(1)` gives, and its exports of one letter."""
    code = "import ctypes; print(ctypes.CDLL('./libx.so').run(1))"
    found = {}
    for way in ("ahead", "lazy"):
        (at / way / "blob").mkdir(parents=True)
        for name, text in files.items():
            (at / way / name).write_text(text)
        words = ["sh", "-c", COMPILED + script]
        if way == "lazy":
            done = lazyck("build", "full", "--toolchain", "host", "--", *words, cwd=at / way)
        else:
            done = subprocess.run(words, cwd=at / way, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        ran = subprocess.run([sys.executable, "-c", code], cwd=at / way, capture_output=True, text=True)
        exported = elf.read_shared(at / way / "libx.so").defined
        found[way] = (ran.stdout, {name for name in exported if len(name) == 1})
    return found


@pytest.mark.parametrize("linker", ["bfd", "gold", "lld"])
@pytest.mark.parametrize("dropping", ["", "-Wl,--as-needed", "-Wl,--no-as-needed"])
def test_archives_and_libraries_are_scanned_as_the_linker_does(
    lazyck: Lazyck, tmp_path: Path, linker: str, dropping: str
) -> None:
    """`early` is scanned before anything wants `g`, and so is the library, which has `h`."""
    files = {
        "run.c": "int f(int); int run(int x) { return f(x); }\n",
        "h.c": "int h(int x) { return x + 30; }\nint other;\n",
        "blob/early.c": "int g(int x) { return x + 1000; }\n",
        "blob/f.c": "int g(int); int h(int); int f(int x) { return g(x) + h(x); }\n",
        "blob/g.c": "int g(int x) { return x + 2000; }\n",
        "blob/last.c": "int h(int x) { return x + 40; }\n",
    }
    script = "cc -shared h.o -o libh.so\nar rcs liba.a early.o\nar rcs libb.a f.o g.o\nar rcs libc.a last.o\n"
    script += f"cc -fuse-ld={linker} -shared run.o {dropping} liba.a ./libh.so libb.a libc.a -o libx.so -Wl,-rpath,.\n"
    found = both_ways(lazyck, tmp_path, files, script)
    assert found["lazy"] == found["ahead"]


@pytest.mark.parametrize("linker", ["bfd", "gold", "lld"])
@pytest.mark.parametrize(
    "inputs",
    [
        "liba.a run.o libb.a",
        "run.o -Wl,--start-group libb.a liba.a -Wl,--end-group",
        "liba.a run.o -Wl,-( libb.a -Wl,-)",
        "run.o liba.a ./libh.so",
        "run.o ./libh.so liba.a",
        "run.o -Wl,--as-needed ./libi.so liba.a libg.a",
    ],
)
def test_what_is_taken_depends_on_what_stands_before_it(
    lazyck: Lazyck, tmp_path: Path, linker: str, inputs: str
) -> None:
    files = {
        "run.c": "int f(int); int run(int x) { return f(x); }\n",
        "h.c": "int f(int x) { return x + 30; }\n",
        "i.c": "int g(int); int i(int x) { return g(x); }\n",
        "blob/a.c": "int f(int x) { return x + 1000; }\n",
        "blob/b.c": "int f(int x) { return x + 2000; }\n",
        "blob/g.c": "int g(int x) { return x; }\n",
    }
    script = "for l in h i; do cc -shared $l.o -o lib$l.so; done\nfor l in a b g; do ar rcs lib$l.a $l.o; done\n"
    script += f"cc -fuse-ld={linker} -shared {inputs} -o libx.so -Wl,-rpath,.\n"
    found = both_ways(lazyck, tmp_path, files, script.replace("-(", "'-('").replace("-)", "'-)'"))
    assert found["lazy"] == found["ahead"]


@pytest.mark.parametrize(
    "link",
    [
        "c++ -shared f.o -o libx.so -lc",
        "at() { c++ -print-file-name=$1; }; c++ -shared -nostdlib $(at crti.o) $(at crtbeginS.o) f.o -o libx.so "
        "-lstdc++ -lm -lc -lgcc_s $(at crtendS.o) $(at crtn.o)",
        "cc -shared f.o -o libx.so -l:libstdc++.a",
        "cc -shared f.o -o libx.so -Wl,-Bstatic -lstdc++ -Wl,-Bdynamic",
        "c++ -shared f.o -o libx.so -static-libstdc++ -static-libgcc",
    ],
)
def test_the_runtime_finds_all_that_it_calls_where_a_link_names_the_system_s_archives(
    lazyck: Lazyck, tmp_path: Path, link: str
) -> None:
    (tmp_path / "blob").mkdir()
    (tmp_path / "blob" / "f.cpp").write_text('extern "C" int f(int x) { return x + 1; }\n')
    script = f"set -e\nc++ -fPIC -c blob/f.cpp -o f.o\n{link}\n"
    done = lazyck("build", "full", "--toolchain", "host", "--", "sh", "-c", script, cwd=tmp_path)
    assert done.returncode == 0 and "1 lazy" in done.stderr, done.stderr
    code = "import ctypes; print(ctypes.CDLL('./libx.so').f(3))"
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert ran.stdout == "4\n", ran
