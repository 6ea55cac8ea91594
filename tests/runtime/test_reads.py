"""Test that a compile reads only the bundle, the toolchain, the system and its own directory, and
what a compile is that nothing limits."""

import shutil
import subprocess
from pathlib import Path

import pytest
from support.lazylib import LazyLibrary, build_lazy_library
from support.small_library import BLOBS, CALL_CAUGHT, HEADER, MAIN, SYMBOLS

from lazyck import abi
from lazyck.library.process import landlock_version

pytestmark = pytest.mark.skipif(not landlock_version(), reason="this kernel has no Landlock")
UNLIMITED = {abi.TEST_UNRESTRICTED: "1"}


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A directory that is neither the bundle's nor the toolchain's."""
    (tmp_path / "outside").mkdir()
    return tmp_path / "outside"


def make(directory: Path, objects_dir: Path, add: str = "") -> LazyLibrary:
    directory.mkdir()
    blobs = BLOBS if not add else {**BLOBS, "add": add + BLOBS["add"]}
    return build_lazy_library(directory, objects_dir, blobs, MAIN, header=HEADER, symbols=SYMBOLS)


@pytest.mark.parametrize("how", [{}, UNLIMITED], ids=["limited", "unlimited"])
def test_a_compile_needs_nothing_else(tmp_path: Path, objects_dir: Path, how: dict[str, str]) -> None:
    lib = make(tmp_path / "lib", objects_dir)
    done = lib.call(lib.program(CALL_CAUGHT), env=how)
    assert done.stdout == "8\n", done.stderr


@pytest.mark.parametrize(
    "text",
    ['#include "{}"\n', 'asm(".pushsection .rodata; .incbin \\"{}\\"; .popsection");\n'],
    ids=["preprocessor", "assembler"],
)
def test_a_file_that_is_in_no_list_is_an_error_that_names_it(
    tmp_path: Path, objects_dir: Path, outside: Path, text: str
) -> None:
    file = outside / "more.h"
    file.write_text("// of somebody\n")
    lib = make(tmp_path / "lib", objects_dir, text.format(file))
    program = lib.program(CALL_CAUGHT)
    done = lib.call(program)
    assert f"the toolchain's ({lib.directory}), and '{file}' is in none of them: " in done.stdout
    assert lib.call(program, env=UNLIMITED).stdout == "8\n"


def test_a_directory_of_temporary_files_of_all_users_is_not_read(tmp_path: Path, objects_dir: Path) -> None:
    lib = make(tmp_path / "lib", objects_dir)
    lib.compiler.write_text(
        '#!/bin/sh\nset -e\nfile=$(mktemp)\necho mine > "$file"\ncat "$file" > /dev/null\n'
        'case $(realpath "$file") in */.staging/*) ;; *) exit 7 ;; esac\n'
        'for each in /tmp /var/tmp /dev/shm; do if ls "$each" 2> /dev/null; then exit 8; fi; done\nexec g++ "$@"\n'
    )
    done = lib.call(lib.program(CALL_CAUGHT), env={"TMPDIR": str(tmp_path)})
    assert done.stdout == "8\n", done.stderr


def test_a_compiler_is_found_whole_where_its_links_lead(tmp_path: Path, objects_dir: Path) -> None:
    # As with /usr/bin/c++, a link in /etc/alternatives and a toolkit of its own.
    lib = make(tmp_path / "lib", objects_dir)
    kit, other = tmp_path / "kit", tmp_path / "other"
    for directory in (kit / "bin", kit / "share", other):
        directory.mkdir(parents=True)
    (kit / "share" / "flags").write_text("-O1\n")
    (kit / "bin" / "cxx").write_text(f'#!/bin/sh\nexec g++ $(cat {kit}/share/flags) "$@"\n')
    (kit / "bin" / "cxx").chmod(0o755)
    (other / "cxx").symlink_to("../kit/bin/cxx")
    lib.compiler.unlink()
    lib.compiler.symlink_to(other / "cxx")
    done = lib.call(lib.program(CALL_CAUGHT))
    assert done.stdout == "8\n", done.stderr


@pytest.mark.parametrize("lead", ["{}", "/usr/bin/env {}"])
def test_the_interpreter_of_a_compiler_that_is_a_script_is_found_whole(
    tmp_path: Path, objects_dir: Path, lead: str
) -> None:
    lib = make(tmp_path / "lib", objects_dir)
    shell = tmp_path / "python" / "bin" / "shell"
    shell.parent.mkdir(parents=True)
    shutil.copy("/bin/sh", shell)
    named = lead.format(shell if lead == "{}" else shell.name)
    lib.compiler.write_text(f'#!{named}\nexec g++ "$@"\n')
    done = lib.call(lib.program(CALL_CAUGHT), env={"PATH": f"{shell.parent}:/usr/bin:/bin"})
    assert done.stdout == "8\n", done.stdout


def test_a_users_home_is_not_the_directory_of_a_compiler_in_its_bin(
    tmp_path: Path, objects_dir: Path, outside: Path
) -> None:
    lib = make(tmp_path / "lib", objects_dir)
    (tmp_path / "bin").mkdir()
    (outside / "flags").write_text("-O1\n")
    script = tmp_path / "bin" / "cxx"
    script.write_text(f'#!/bin/sh\nflags=$(cat {outside}/flags) || exit 1\nexec g++ $flags "$@"\n')
    script.chmod(0o755)
    lib.compiler.unlink()
    lib.compiler.symlink_to(script)
    program = lib.program(CALL_CAUGHT)
    assert f"'{outside}/flags' is in none of them" in lib.call(program, env={"HOME": str(tmp_path)}).stdout
    assert lib.call(program, env={"HOME": str(tmp_path / "elsewhere")}).stdout == "8\n"


def test_programs_of_a_compiler_are_not_taken_from_where_it_may_not_read(
    tmp_path: Path, objects_dir: Path, outside: Path
) -> None:
    assembler = outside / "as"
    assembler.write_text("#!/bin/sh\nexit 9\n")
    assembler.chmod(0o755)
    lib = make(tmp_path / "lib", objects_dir)
    for how in ({}, UNLIMITED):
        cache = {abi.ENV_CACHE_DIR: str(tmp_path / f"cache{len(how)}")}
        done = lib.call(lib.program(CALL_CAUGHT), env={**how, **cache, "PATH": f"{outside}:/usr/bin:/bin"})
        assert done.stdout == "8\n", done.stderr


def test_a_launcher_has_its_own_files_and_variables(tmp_path: Path, objects_dir: Path, outside: Path) -> None:
    (outside / "settings").write_text("-O1")
    launcher = outside / "keeper"
    launcher.write_text(
        '#!/bin/sh\n[ "$KEEPER_DIR" ] && [ ! "$LD_RUN_PATH" ] && [ "$HOME" = /of/user ] || exit 5\n'
        'flags=$(cat "$KEEPER_DIR/settings") || exit 6\nexec "$@" $flags\n'
    )
    launcher.chmod(0o755)
    lib = make(tmp_path / "lib", objects_dir)
    env = {abi.ENV_LAUNCHER: str(launcher), "KEEPER_DIR": str(outside), "HOME": "/of/user", "LD_RUN_PATH": "/x"}
    done = lib.call(lib.program(CALL_CAUGHT), env=env)
    assert done.stdout == "8\n", done.stderr


def test_what_is_limited_cannot_gain_rights_and_its_caller_still_can(tmp_path: Path, objects_dir: Path) -> None:
    lib = make(tmp_path / "lib", objects_dir)
    lib.compiler.write_text(f'#!/bin/sh\ngrep NoNewPrivs /proc/self/status >> {lib.calls}\nexec g++ "$@"\n')
    own = '#include <cstdlib>\nvoid show() { std::fflush(stdout); std::system("grep NoNewPrivs /proc/self/status"); }\n'
    program = lib.program(CALL_CAUGHT.replace("int main() {", f"{own}int main() {{ std::atexit(show);"))
    before = subprocess.run(["grep", "NoNewPrivs", "/proc/self/status"], capture_output=True, text=True, check=True)
    done = lib.call(program)
    assert done.stdout == "8\n" + before.stdout, done.stderr
    assert set(lib.calls.read_text().split()) == {"NoNewPrivs:", "1"}
