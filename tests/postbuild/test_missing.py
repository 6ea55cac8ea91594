"""Tests whether a link without the blobs that failed leaves symbols undefined, with real
libraries."""

import os
import platform
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from support import AARCH64, HERE

from lazyck.errors import BuildError, CommandError
from lazyck.postbuild.eager import EagerObject
from lazyck.postbuild.link.observe import check_complete, needed_libraries
from lazyck.postbuild.reasons import Reason, ReasonKind
from lazyck.postbuild.state import LinkState
from lazyck.toolchains.command import CompileCommand, Invocation

STATE = LinkState("libx", "libx.so", "/w/libx.so", "", ".", (), "", (HERE.cxx,), ())


def shared(where: Path, name: str, text: str, *more: str | Path, compiler: str = HERE.cxx) -> Path:
    source, made = where / f"{name}.cpp", where / f"lib{name}.so"
    source.write_text(text)
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-nostdlib", source, "-o", made, f"-Wl,-soname,lib{name}.so", *more], check=True
    )
    return made


def failed(where: Path, text: str, message: str = "") -> EagerObject:
    source = where / "blob.cpp"
    source.write_text(text)
    call = Invocation("c++", "host", str(where), ("c++", "-c", str(source)), 1, ())
    error = CommandError("compiling it", ["c++"], 1, message)
    return EagerObject(CompileCommand(call, str(source), "x.o"), (Reason(ReasonKind.DATA, "d"),), where / "x.o", error)


def test_a_cxx_symbol_that_nothing_defines_is_an_error_and_the_library_goes(tmp_path: Path) -> None:
    library = shared(tmp_path, "x", "int lost(); int other(); int f() { return lost() + other(); }")
    with pytest.raises(BuildError) as e:
        check_complete(STATE, tmp_path, [failed(tmp_path, "", "the compiler's message")], [], os.environ)
    said = str(e.value)
    assert "libx.so: nothing defines these symbols:\n  _Z4lostv\n  _Z5otherv\n" in said
    assert f"{tmp_path}/blob.cpp ({ReasonKind.DATA.says}: d)" in said
    assert "compiling it" in said
    assert not library.exists()


def test_what_a_library_provides_or_a_reference_may_lack_is_not_missed(tmp_path: Path) -> None:
    shared(tmp_path, "y", "int there() { return 1; }")
    text = "int there(); __attribute__((weak)) int perhaps(); int f() { return there() + (perhaps ? perhaps() : 0); }"
    library = shared(tmp_path, "x", text, f"-L{tmp_path}", "-ly", f"-Wl,-rpath,{tmp_path}")
    check_complete(STATE, tmp_path, [failed(tmp_path, "")], [], os.environ)
    assert library.exists()


def test_a_c_name_counts_if_the_source_of_a_failed_blob_mentions_it(tmp_path: Path) -> None:
    text = 'extern "C" int from_program(); int f() { return from_program(); }'
    library = shared(tmp_path, "x", text)
    check_complete(STATE, tmp_path, [failed(tmp_path, "int g();\n")], [], os.environ)
    assert library.exists()
    with pytest.raises(BuildError, match="from_program"):
        check_complete(
            STATE, tmp_path, [failed(tmp_path, 'extern "C" int from_program() { return 1; }\n')], [], os.environ
        )


def test_of_many_symbols_twenty_are_named(tmp_path: Path) -> None:
    names = [f"lost{i:02}" for i in range(23)]
    text = "".join(f"int {n}();\n" for n in names) + f"int f() {{ return {' + '.join(f'{n}()' for n in names)}; }}"
    shared(tmp_path, "x", text)
    with pytest.raises(BuildError) as e:
        check_complete(STATE, tmp_path, [failed(tmp_path, "")], [], os.environ)
    said = str(e.value)
    assert "_Z6lost19v" in said and "_Z6lost20v" not in said
    assert "... and 3 more" in said


def test_needed_libraries_are_found_as_the_loader_finds_them_and_in_turn(tmp_path: Path) -> None:
    third = shared(tmp_path, "z", "int third() { return 3; }")
    rpath = (f"-L{tmp_path}", f"-Wl,-rpath,{tmp_path}")
    second = shared(tmp_path, "y", "int third(); int second() { return third(); }", *rpath, "-lz")
    library = shared(tmp_path, "x", "int second(); int f() { return second(); }", *rpath, "-ly")
    assert set(needed_libraries(library, [], STATE.runtime_compiler, os.environ)) >= {second, third}


@pytest.mark.skipif(bool(AARCH64.missing) or platform.machine() == "aarch64", reason="needs a cross compiler")
def test_for_another_machine_the_link_s_own_libraries_come_first(tmp_path: Path) -> None:
    cxx = AARCH64.cxx
    third = shared(tmp_path, "z", "int third() { return 3; }", compiler=cxx)
    second = shared(tmp_path, "y", "int third(); int second() { return third(); }", tmp_path / "libz.so", compiler=cxx)
    text = "int second(); int f() { return second(); }"
    library = shared(tmp_path, "x", text, second, "-Wl,--no-as-needed", "-lm", compiler=cxx)
    found = needed_libraries(library, [str(second), str(third)], (cxx,), os.environ)
    assert found[0] == second and third in found
    libm = next(path for path in found if path.name.startswith("libm."))
    assert libm.is_absolute() and libm.is_file()
    # Without what the link named, nothing here can be found of it.
    assert second not in needed_libraries(library, [], (cxx,), os.environ)
    state = replace(STATE, runtime_compiler=(cxx,))
    check_complete(state, tmp_path, [failed(tmp_path, "")], [str(second), str(third)], os.environ)
    assert library.exists()
