"""Test that a cache directory that somebody else could fill is refused, with the reason and the
remedy."""

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from support import Lazyck
from support.lazylib import CXX, LazyLibrary, build_lazy_library
from support.small_library import BLOBS, HEADER, MAIN, SYMBOLS

from lazyck import abi
from lazyck.errors import UsageError
from lazyck.files import private_directory
from lazyck.settings.environment import tools_dir

MAIN_PROGRAM = r"""
#include "demo.h"
#include "error.hpp"
#include "lazyck.h"
#include <cstdio>
int main(int argc, char** argv) {
    if (argc > 1 && lazyck_set_cache_dir(argv[1]) != 0) { std::puts(lazyck_last_error()); return 4; }
    try { std::printf("%d\n", use(4)); return 0; }
    catch (const lazyck::CompileError& e) { std::puts(e.what()); return 3; }
}
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, objects_dir: Path) -> LazyLibrary:
    where = tmp_path_factory.mktemp("directories")
    lib = build_lazy_library(where, objects_dir, BLOBS, MAIN, header=HEADER, symbols=SYMBOLS)
    lib.program(MAIN_PROGRAM)
    return lib


@pytest.fixture
def lib(shared: LazyLibrary) -> LazyLibrary:
    shutil.rmtree(shared.cache, ignore_errors=True)
    shared.calls.unlink(missing_ok=True)
    return shared


def refusal(lib: LazyLibrary, *words: str, **env: str) -> str:
    """Return what a call prints that must not compile anything."""
    done = lib.call(lib.directory / "main", *words, env=env)
    assert done.returncode in (3, 4), done
    assert lib.compiles() == 0
    return done.stdout


@pytest.mark.parametrize("path", [".", "./", "..", "cache", "./cache", "../cache", " /x"])
def test_relative_cache_is_refused(
    lib: LazyLibrary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    said = refusal(lib, LAZYCK_CACHE_DIR=path)
    assert "LAZYCK_CACHE_DIR=" in said
    assert "below the working directory is refused" in said
    assert "give the absolute path of a directory of your own" in said
    assert "below the working directory is refused" in refusal(lib, path)
    assert not list((tmp_path / "here").iterdir())


@pytest.mark.parametrize("path", ["/", "//", "/.", "/tmp/../tmp/x", "/x/.."])
def test_cache_whose_path_hides_where_it_leads_is_refused(lib: LazyLibrary, path: str) -> None:
    assert "give the absolute path of a directory of your own" in refusal(lib, LAZYCK_CACHE_DIR=path)


@pytest.mark.parametrize("end", ["", "/", "//", "/.", "/./"])
def test_link_is_refused_however_its_path_ends(lib: LazyLibrary, tmp_path: Path, end: str) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    said = refusal(lib, LAZYCK_CACHE_DIR=f"{tmp_path}/link{end}")
    assert "it is a symbolic link; set LAZYCK_CACHE_DIR to where it points" in said
    assert not list((tmp_path / "elsewhere").iterdir())


def test_link_above_the_root_is_the_users_business(lib: LazyLibrary, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    done = lib.call(lib.directory / "main", env={"LAZYCK_CACHE_DIR": f"{tmp_path}/link/cache"})
    assert done.stdout == "8\n"


@pytest.mark.parametrize("place", ["v1", "v1/demo", "v1/demo/*", ".locks", ".staging"])
def test_link_inside_the_cache_is_refused(lib: LazyLibrary, tmp_path: Path, place: str) -> None:
    assert lib.call(lib.directory / "main").stdout == "8\n"
    lib.calls.unlink()
    (directory,) = lib.cache.glob(place)
    shutil.move(directory, tmp_path / "moved")
    directory.symlink_to(tmp_path / "moved")
    if place.startswith("."):  # needed to compile, not to read
        for entry in lib.entries():
            entry.unlink()
    said = refusal(lib)
    assert f"refusing the cache directory '{directory}': it is a symbolic link" in said


@pytest.mark.parametrize("place", [".locks", ".staging"])
def test_directory_in_which_others_could_meddle_with_a_compile_is_refused(lib: LazyLibrary, place: str) -> None:
    (lib.cache / place).mkdir(parents=True)
    (lib.cache / place).chmod(0o777)
    said = refusal(lib)
    assert "others can write to it (mode 0777); run: chmod go-w " in said


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_predictable_directory_in_tmp_that_another_user_made_is_refused(lib: LazyLibrary) -> None:
    with tempfile.TemporaryDirectory(prefix="lazyck-test-") as shared_tmp:
        Path(shared_tmp).chmod(0o1777)
        taken = Path(shared_tmp, "lazyck")
        taken.mkdir(mode=0o700)
        os.chown(taken, 12345, 12345)
        said = refusal(lib, LAZYCK_CACHE_DIR="", XDG_CACHE_HOME=shared_tmp)
        assert f"refusing the cache directory '{taken}': it belongs to user 12345" in said
        assert "set LAZYCK_CACHE_DIR to a directory of your own" in said


@pytest.mark.parametrize("kind", ["file", "fifo"])
def test_what_is_no_directory_is_refused(lib: LazyLibrary, tmp_path: Path, kind: str) -> None:
    path = tmp_path / kind
    if kind == "fifo":
        os.mkfifo(path)
    else:
        path.write_text("")
    assert "set LAZYCK_CACHE_DIR to a directory of your own" in refusal(lib, LAZYCK_CACHE_DIR=str(path))


# -- programs that lazyck compiles for itself, and runs --------------------------------------------


def test_tools_directory_is_private_and_nobody_elses(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        made = private_directory(tmp_path / "new" / "lazyck-tools")
    finally:
        os.umask(old)
    assert made.stat().st_mode & 0o777 == 0o700
    made.chmod(0o777)
    assert private_directory(made).stat().st_mode & 0o777 == 0o755
    (tmp_path / "link").symlink_to(made)
    with pytest.raises(UsageError, match="it is a symbolic link"):
        private_directory(tmp_path / "link")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_tools_directory_of_another_user_is_refused(lib: LazyLibrary, lazyck: Lazyck, tmp_path: Path) -> None:
    taken = tmp_path / "xdg" / "lazyck-tools"
    taken.mkdir(parents=True)
    os.chown(taken, 12345, 12345)
    env = {"XDG_CACHE_HOME": str(tmp_path / "xdg")}
    done = lazyck("prebuild", "list", "--manifest", lib.manifest_file, env=env)
    assert done.returncode == 2
    assert f"refusing the directory {taken}: it belongs to user 12345" in done.stderr
    assert "set XDG_CACHE_HOME to a directory of your own" in done.stderr
    assert not list(taken.iterdir())


def test_relative_home_gives_no_tools_directory_below_the_working_directory() -> None:
    assert not str(tools_dir({"XDG_CACHE_HOME": "here"})).startswith("here")
    assert not str(tools_dir({"HOME": "."})).startswith(".")


def test_without_variables_the_tools_are_in_the_home_that_the_system_knows() -> None:
    assert tools_dir({}) == Path(pwd.getpwuid(os.geteuid()).pw_dir, ".cache/lazyck-tools")


def test_directories_put_in_the_caches_place_during_a_compile_are_not_compiled_in(
    lib: LazyLibrary, tmp_path: Path
) -> None:
    # Somebody who may rename the directory above the cache can do this.
    evil = tmp_path / "evil.cpp"
    evil.write_text((lib.directory / "lazyck/src/add.cpp").read_text().replace("+", "+ 100 +"))
    compiler = lib.compiler.read_text()
    lib.compiler.write_text(
        compiler.replace(
            "exec ",
            f'''case " $* " in *"/add.cpp "*)
    {CXX} -fPIC -I {lib.directory} -c {evil} -o {tmp_path}/evil.o
    {CXX} "$@" || exit
    mv {lib.cache} {tmp_path}/real
    mkdir -m 700 -p {lib.cache} {lib.cache}/.staging "{lib.cache}/.staging/$(basename "$(pwd -P)")"
    cp -a {tmp_path}/real/v1 {lib.cache}
    cp {tmp_path}/evil.o "{lib.cache}/.staging/$(basename "$(pwd -P)")/blob.o"
    exit ;;
esac
exec ''',
        )
    )
    try:
        done = lib.call(lib.directory / "main", env={abi.TEST_UNRESTRICTED: "1"})
        assert (done.returncode, done.stdout) == (0, "8\n"), done
        assert (tmp_path / "evil.o").exists()
        assert lib.compiles("add") == 1
        # The files of this compile are removed in the directory's new place.
        assert list((lib.cache / ".staging").glob("add-*/blob.o"))
        assert not list((tmp_path / "real/.staging").iterdir())
    finally:
        lib.compiler.write_text(compiler)


# This program calls one blob, waits for a line, and calls the other blob.
TWO_CALLS = r"""
#include "demo.h"
#include "error.hpp"
#include <cstdio>
int main() {
    std::printf("%d\n", use(4));
    std::fflush(stdout);
    std::getchar();
    try { std::printf("%d\n", sub(5, 2)); return 0; }
    catch (const lazyck::CompileError& e) { std::puts(e.what()); return 3; }
}
"""


def start(lib: LazyLibrary, program: Path) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(
        lib.words(program), env={**os.environ, **lib.env}, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True
    )


def strangers_copy(directory: Path) -> None:
    """Replace `directory` by a copy that belongs to somebody else."""
    kept = directory.with_name("kept")
    directory.rename(kept)
    shutil.copytree(kept, directory)
    for path in (directory, *directory.rglob("*")):
        os.chown(path, 12345, 12345)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make a stranger's directory")
@pytest.mark.parametrize("place", ["", "v1", "v1/demo", "v1/demo/*"])
def test_a_directory_that_was_good_is_looked_at_again_at_each_call(lib: LazyLibrary, place: str) -> None:
    program = lib.program(TWO_CALLS, name="two")
    assert start(lib, program).communicate("\n", timeout=60)[0].endswith("\n3\n")
    lib.calls.unlink()
    running = start(lib, program)
    assert running.stdout is not None
    assert running.stdout.readline() == "8\n"
    strangers_copy(next(lib.cache.glob(place)) if place else lib.cache)
    said, _ = running.communicate("\n", timeout=60)
    assert "refusing the cache directory" in said and "it belongs to user 12345" in said, said
    assert lib.compiles() == 0


def test_a_cache_that_is_removed_and_filled_anew_is_found_by_a_running_process(lib: LazyLibrary) -> None:
    program = lib.program(TWO_CALLS, name="two")
    assert start(lib, program).communicate("\n", timeout=60)[0].endswith("\n3\n")
    running = start(lib, program)
    assert running.stdout is not None
    assert running.stdout.readline() == "8\n"
    shutil.rmtree(lib.cache)
    assert start(lib, program).communicate("\n", timeout=60)[0].endswith("\n3\n")
    before = lib.compiles()
    said, _ = running.communicate("\n", timeout=60)
    assert (said, lib.compiles()) == ("3\n", before)
