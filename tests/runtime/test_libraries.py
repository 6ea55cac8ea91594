"""Test the shape of a lazy library: how it links, what it exports, what runs when it loads, and its
C interface."""

import re
import shutil
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support import AARCH64, HERE, RISCV64, Machine, machine_params
from support.lazylib import CLANG, CXX, SOURCES, LazyLibrary, build_lazy_library, run, runtime_objects
from support.small_library import BLOBS, CALL_CAUGHT, HEADER, MAIN, SYMBOLS

from lazyck import abi
from lazyck.errors import BuildError
from lazyck.formats.manifest import encode
from lazyck.postbuild.link.stubs import render_stubs
from lazyck.postbuild.objects import elf
from lazyck.postbuild.objects.cudart import CudaRuntime, render_jumps
from lazyck.toolchains import gpu_runtimes


def build(directory: Path, objects_dir: Path, **changes: object) -> LazyLibrary:
    directory.mkdir(exist_ok=True)
    arguments = {"blobs": BLOBS, "main": MAIN, "header": HEADER, "symbols": SYMBOLS, **changes}
    return build_lazy_library(directory, objects_dir, **arguments)  # type: ignore[arg-type]


def test_stub_is_one_jump(tmp_path: Path, objects_dir: Path) -> None:
    lib = build(tmp_path, objects_dir)
    listing = run(["objdump", "-d", "--no-show-raw-insn", lib.library]).stdout
    lines = listing.split("<_Z3addii>:\n")[1].splitlines()[:2]
    assert [line.split("\t")[1].split()[0] for line in lines] == ["endbr64", "jmp"]
    assert "lazyck_slots" in lines[1]


COMPILERS = [
    pytest.param(HERE, CXX, id="g++"),
    *([pytest.param(HERE, CLANG, id="clang++")] if CLANG else []),
    pytest.param(AARCH64, AARCH64.cxx, id="aarch64-g++", marks=AARCH64.marks),
    pytest.param(RISCV64, RISCV64.cxx, id="riscv64-g++", marks=RISCV64.marks),
]


@pytest.mark.parametrize(("machine", "compiler"), COMPILERS, indirect=["machine"])
def test_next_to_nothing_runs_at_load_and_only_the_interface_is_exported(
    tmp_path: Path, objects_dir: Path, machine: Machine, compiler: str
) -> None:
    lib = build(tmp_path, objects_dir, machine=machine, compiler=compiler)
    for o in runtime_objects(objects_dir, compiler, ()):
        lists = re.findall(r"'\.rela\.(?:init_array|ctors).*?(?:\n\n|\Z)", run(["readelf", "-rW", o]).stdout, re.S)
        runs = [line.split()[4:] for each in lists for line in each.splitlines()[2:] if line]
        assert len(runs) == (o.name == "runtime.o"), f"{o}: {runs}"
        if runs:  # by a symbol of its own, or as a place in a section
            at = int(runs[0][-1], 16) if runs[0][0].startswith(".text") else None
            rows = [line.split() for line in run(["nm", "--defined-only", o]).stdout.splitlines()]
            named = [row[2] for row in rows if int(row[0], 16) == at and row[1] in "tT"] or runs[0][:1]
            assert any("note_error_stream" in name for name in named), "only descriptor 2 is looked at"
        assert not o.with_suffix(".log").exists(), "no compiler warns"
    assert "have_lse" not in run(["nm", lib.library]).stdout, "a constructor of libgcc's"
    exported = {line.split()[-1] for line in run(["nm", "-D", "--defined-only", lib.library]).stdout.splitlines()}
    assert {e for e in exported if e.startswith("lazyck")} == {
        *re.findall(r"\b(lazyck_\w+)\(", re.sub(r"/\*.*?\*/", "", (SOURCES / "lazyck.h").read_text(), flags=re.S)),
        abi.SYMBOL_MARK,
    }
    # The library exports only what callers catch, and what it would export without lazyck.
    own = {e for e in exported if "6lazyck" in e}
    assert own <= {f"_Z{kind}N6lazyck12CompileErrorE" for kind in ("TV", "TI", "TS")}
    assert not {e for e in exported - own if re.match(r"_Z(N|TV|TI|TS)?K?S|_Z\w*9__gnu_cxx|__", e)}
    needed = set(re.findall(r"NEEDED.*\[(.*)\]", run(["readelf", "-dW", lib.library]).stdout))
    assert not {n for n in needed if n.startswith("ld-linux-x86-64")}
    assert {"_Z3addii", "_Z3subii", "_Z3usei"} <= exported
    assert "TEXTREL" not in run(["readelf", "-dW", lib.library]).stdout
    assert re.search(r"GNU_STACK.* RW ", run(["readelf", "-lW", lib.library]).stdout)


@pytest.mark.parametrize(
    "link_flags",
    [
        ["-Wl,--gc-sections", "-Wl,-z,now", "-Wl,-z,relro"],
        ["-Wl,-z,ibt", "-Wl,-z,shstk"],
        pytest.param(
            ["-Wl,-Bsymbolic", "-Wl,--icf=all", "-fuse-ld=gold"],
            marks=pytest.mark.skipif(not shutil.which("ld.gold"), reason="no ld.gold (Debian: binutils-gold)"),
        ),
        ["-Wl,--version-script=exports.map"],
    ],
)
def test_library_works_however_it_is_linked(tmp_path: Path, objects_dir: Path, link_flags: list[str]) -> None:
    (tmp_path / "exports.map").write_text("{ global: _Z3usei; _Z3subii; local: *; };\n")
    lib = build(tmp_path, objects_dir, link_flags=link_flags)
    done = lib.call(lib.program(CALL_CAUGHT))
    assert done.stdout == "8\n", done.stderr
    failed = lib.call(tmp_path / "main", env={"LAZYCK_JOBS": "no"})
    assert (failed.returncode, "LAZYCK_JOBS" in failed.stdout) == (3, True)


@pytest.mark.parametrize("kind", ["-pie", "-no-pie"])
def test_stubs_work_inside_an_executable(tmp_path: Path, objects_dir: Path, kind: str) -> None:
    lib = build(tmp_path, objects_dir)
    flags = ["-fPIE"] if kind == "-pie" else ["-fno-pie"]
    source = tmp_path / "prog.cpp"
    source.write_text('#include "demo.h"\nint main() { auto p = sub; return p(use(4), 1) == 7 && p == sub ? 0 : 1; }\n')
    run([CXX, *flags, "-c", source, "-o", tmp_path / "prog.o"])
    objects = runtime_objects(objects_dir, CXX, ())
    run([CXX, kind, "-o", tmp_path / "prog", tmp_path / "prog.o", tmp_path / "demo.o", tmp_path / "stubs.o", *objects,
         "-Wl,--gc-sections", "-pthread", "-ldl"])  # fmt: skip
    done = lib.call(tmp_path / "prog")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("machine", machine_params(AARCH64), indirect=True)
def test_code_stands_branch_target_identification(machine: Machine, tmp_path: Path, objects_dir: Path) -> None:
    # Debian's crt files do not support BTI, so the link leaves them out.
    own = 'extern "C" { __attribute__((visibility("hidden"))) void* __dso_handle = &__dso_handle; }\n'
    lib = build(
        tmp_path, objects_dir, main=MAIN + own, machine=machine, main_flags=["-mbranch-protection=standard"],
        link_flags=["-nostartfiles", "-Wl,-z,force-bti"],
    )  # fmt: skip
    program = lib.program(CALL_CAUGHT)
    assert lib.call(program).stdout == "8\n"
    landing_pad, no_operation = b"\x5f\x24\x03\xd5", b"\x1f\x20\x03\xd5"
    lib.library.write_bytes(lib.library.read_bytes().replace(landing_pad, no_operation))
    assert lib.call(program).returncode == -signal.SIGILL, "it is enforced"


ASSEMBLERS = [
    pytest.param((HERE.name, CXX), id="g++"),
    pytest.param((AARCH64.name, AARCH64.cxx), id="aarch64-g++", marks=AARCH64.marks),
    pytest.param((RISCV64.name, RISCV64.cxx), id="riscv64-g++", marks=RISCV64.marks),
    *([pytest.param((HERE.name, CLANG), id="clang++")] if CLANG else []),
    *([pytest.param(("aarch64", CLANG, "--target=aarch64-linux-gnu"), id="aarch64-clang++")] if CLANG else []),
    *([pytest.param(("riscv64", CLANG, "--target=riscv64-linux-gnu"), id="riscv64-clang++")] if CLANG else []),
]


@pytest.mark.parametrize("assembler", ASSEMBLERS)
def test_any_symbol_name_assembles(tmp_path: Path, assembler: tuple[str, ...]) -> None:
    machine, *compiler = assembler
    names = ["_Z1fv", "odd name", "rax", "x0", "lsl", "$x", "a-b", "ünï", "x(y)+1", "1abc", ".hidden", "_ZN1aB5cxx11Ev"]
    names.append("x" * 4000)
    (tmp_path / "m").write_bytes(b"x")
    (tmp_path / "s.s").write_text(render_stubs(names, "m", machine), encoding="utf-8")
    run([*compiler, "-c", "s.s", "-o", "s.o"], cwd=tmp_path)
    listing = run(["nm", "s.o"], cwd=tmp_path).stdout
    for name in names:
        assert f" T {name}\n" in listing


@pytest.mark.parametrize("assembler", ASSEMBLERS)
def test_the_way_to_a_gpu_runtime_assembles_and_slow_paths_are_evenly_spaced(
    tmp_path: Path, assembler: tuple[str, ...]
) -> None:
    machine, *compiler = assembler
    (tmp_path / "m").write_bytes(b"x")
    many = [f"f{i}" for i in range(3000)]  # more than the immediate value of an instruction holds
    (tmp_path / "s.s").write_text(render_stubs(many, "m", machine, wrapped=sorted(gpu_runtimes.CUDA_RUNTIME.functions)))
    jumps = render_jumps(CudaRuntime(tuple(f"cudaF{i}" for i in range(600)), "table", machine))
    (tmp_path / "j.s").write_text(jumps)
    run([*compiler, "-c", "s.s", "j.s"], cwd=tmp_path)
    image = elf.open_image(tmp_path / "s.o")
    slots = next(s for s in image.symbols() if s.name == abi.SYMBOL_SLOTS)
    table = image.symbols()
    rows = [table[i].value + addend for _, i, addend in image.relocations(slots.section)]
    assert [row - rows[0] for row in rows] == [16 * i for i in range(len(many))]
    code = image.content(next(s for s in image.sections if s.name == ".text.lazyck_stubs"))
    assert len(code) == rows[0] + 16 * len(many)


def test_machine_without_stubs_is_an_error() -> None:
    with pytest.raises(BuildError, match="z80"):
        render_stubs(["f"], "m", machine="z80")


INTERFACE = """
import ctypes, sys
class Stats(ctypes.Structure):
    _fields_ = [(n, ctypes.c_uint64) for n in
        "size blobs symbols loaded hits misses compiles failures damaged compile_ns".split()]
def load(path, mode=ctypes.RTLD_LOCAL):
    lib = ctypes.CDLL(path, mode)
    lib.lazyck_last_error.restype = ctypes.c_char_p
    return lib
def stats(lib):
    s = Stats(ctypes.sizeof(Stats))
    assert lib.lazyck_get_stats(ctypes.byref(s)) == 0, lib.lazyck_last_error()
    return s
"""


def python(lib: LazyLibrary, text: str, *words: str | Path) -> str:
    done = lib.call(sys.executable, "-c", INTERFACE + text, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_interface_counts_prefetches_and_reports(tmp_path: Path, objects_dir: Path) -> None:
    lib = build(tmp_path, objects_dir)
    text = """
lib = load(sys.argv[1])
assert lib.lazyck_abi_version() == 3 and lib.lazyck_last_error() == b""
s = stats(lib)
assert (s.blobs, s.symbols, s.loaded, s.misses) == (2, 2, 0, 0)
assert lib.lazyck_prefetch(b"none*") == -1 and b"none*" in lib.lazyck_last_error()
assert lib.lazyck_prefetch(b"a*") == 1
assert lib.lazyck_prefetch(b"*") == 2
assert lib._Z3usei(4) == 8
s = stats(lib)
print(s.loaded, s.hits, s.misses, s.compiles, s.failures, s.compile_ns > 0)
small = (ctypes.c_uint64 * 3)(24, 9, 9)
assert lib.lazyck_get_stats(small) == 0 and list(small) == [24, 2, 2]
assert lib.lazyck_set_cache_dir(sys.argv[2].encode()) == -1 and sys.argv[2].encode() in lib.lazyck_last_error()
"""
    (tmp_path / "file").write_text("")
    assert python(lib, text, lib.library, tmp_path / "file") == "2 0 2 2 0 True\n"
    assert python(lib, text, lib.library, tmp_path / "file") == "2 2 0 0 0 False\n"


def test_cache_dir_can_be_set_by_the_program(tmp_path: Path, objects_dir: Path) -> None:
    lib = build(tmp_path, objects_dir)
    python(lib, "lib = load(sys.argv[1]); assert lib.lazyck_set_cache_dir(sys.argv[2].encode()) == 0; lib._Z3usei(1)",
           lib.library, tmp_path / "other")  # fmt: skip
    assert not lib.cache.exists()
    assert list((tmp_path / "other").glob("v1/demo/*/add-*.so"))


@pytest.mark.parametrize("mode", ["RTLD_GLOBAL", "RTLD_LOCAL"])
def test_two_lazy_libraries_do_not_cross(tmp_path: Path, objects_dir: Path, mode: str) -> None:
    one = build(tmp_path / "one", objects_dir, name="one")
    blobs = {"mul": "int mul(int a, int b) { return a * b; }\n"}
    main = "int mul(int, int); int use_mul(int x) { return mul(x, x); }\n"
    two = build(tmp_path / "two", objects_dir, name="two", blobs=blobs, main=main, symbols={"mul": ("_Z3mulii",)})
    text = f"""
one, two = (load(p, ctypes.{mode}) for p in sys.argv[1:3])
assert one.lazyck_set_cache_dir(sys.argv[3].encode()) == 0
assert one._Z3usei(4) == 8 and two._Z7use_muli(4) == 16
assert (stats(one).blobs, stats(two).blobs) == (2, 1)
assert two.lazyck_prefetch(b"none") == -1 and one.lazyck_last_error() == b""
"""
    python(one, text, one.library, two.library, tmp_path / "first")
    assert list((tmp_path / "first").glob("v1/*")) == [tmp_path / "first/v1/one"]
    assert list(one.cache.glob("v1/*")) == [one.cache / "v1/two"]


def test_a_manifest_that_does_not_describe_the_slots_is_refused(tmp_path: Path, objects_dir: Path) -> None:
    lib = build(tmp_path, objects_dir, embed=lambda manifest: encode(replace(manifest, blobs=())))
    done = lib.call(lib.program(CALL_CAUGHT))
    assert done.returncode == 3
    assert "its manifest describes 0 symbols, but it has 2 slots" in done.stdout


def test_headers_compile_alone_with_all_warnings(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text('#include "lazyck.h"\nint main(void) { return 0; }\n')
    run(
        ["cc", "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-I", SOURCES, "-fsyntax-only", tmp_path / "a.c"]
    )
    (tmp_path / "b.cpp").write_text(
        '#include "error.hpp"\nint main() { try { } catch (const lazyck::CompileError&) { } }\n'
    )
    run([CXX, "-std=c++11", "-Wall", "-Wextra", "-Werror", "-I", SOURCES, tmp_path / "b.cpp", "-o", tmp_path / "b"])
