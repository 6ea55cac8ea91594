"""Test that a program with more rights than its caller takes nothing from the caller: neither cache
nor compiler nor bundle."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.lazylib import CXX, LazyLibrary, as_new, build_lazy_library, run
from support.small_library import BLOBS, CALL_CAUGHT, HEADER, MAIN, SYMBOLS

from lazyck import abi
from lazyck.postbuild.bundle import deploy

CALLER = "12345"
NO_SETUID = """
#include <sys/auxv.h>
int main() { return getauxval(AT_SECURE) ? 0 : 9; }
"""


@pytest.fixture
def public(lib: LazyLibrary) -> Path:
    """Return the directory of the library, which other users can read."""
    return lib.directory.parent


def as_caller(*argv: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    words = ["setpriv", "--reuid", CALLER, "--regid", CALLER, "--clear-groups", *map(str, argv)]
    full = {"PATH": os.environ["PATH"], **env}
    return subprocess.run(words, env=full, cwd="/", capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def plain(objects_dir: Path) -> Iterator[LazyLibrary]:
    """Build a library with a setuid-root program. Its cache in root's home is removed
    afterwards."""
    yield from setuid_library(objects_dir, sealed=False)


@pytest.fixture(scope="module")
def deployed(objects_dir: Path) -> Iterator[LazyLibrary]:
    """Build the library and program with a bundle as `lazyck build` makes it."""
    yield from setuid_library(objects_dir, sealed=True)


@pytest.fixture
def lib(plain: LazyLibrary) -> LazyLibrary:
    return unused(plain)


@pytest.fixture
def sealed(deployed: LazyLibrary) -> LazyLibrary:
    return unused(deployed)


def unused(lib: LazyLibrary) -> LazyLibrary:
    """Return the library as it was when it was built, without the traces of an earlier test."""
    public = lib.directory.parent
    (public / "seen").unlink(missing_ok=True)
    for path in (public / "mine", public / "config", root_cache(public.name)):
        shutil.rmtree(path, ignore_errors=True)
    return as_new(lib)


def setuid_library(objects_dir: Path, sealed: bool) -> Iterator[LazyLibrary]:
    # Other users can read the directory. pytest's own are closed to them.
    with tempfile.TemporaryDirectory(prefix="lazyck-test-") as path:
        Path(path).chmod(0o755)
        yield from setuid_library_in(Path(path), objects_dir, sealed)


def setuid_library_in(public: Path, objects_dir: Path, sealed: bool) -> Iterator[LazyLibrary]:
    if os.geteuid() != 0:
        pytest.skip("only root can make a setuid-root program")
    name = public.name
    steps = (CXX, "-std=c++17", "-fPIC", "-I", f"{abi.PH_ROOT}/{'demo/tree' if sealed else 'src'}", "-c", abi.PH_SOURCE,
             "-o", abi.PH_OUTPUT)  # fmt: skip
    (public / "lib").mkdir()
    lib = build_lazy_library(
        public / "lib", objects_dir, BLOBS, MAIN, header=HEADER,
        symbols=SYMBOLS, compile_words=steps, cache_name=name, sealed=sealed,
    )  # fmt: skip
    # The compiler must not be a script, because a shell drops the rights that it has from a setuid
    # program.
    wrapper = public / "wrapper.cpp"
    wrapper.write_text(
        "#include <fstream>\n#include <unistd.h>\n"
        f'int main(int, char** argv) {{ std::ofstream out("{public}/seen", std::ios::app);\n'
        f'for (char** e = environ; *e; ++e) out << *e << "\\n"; out.close();\n'
        f'argv[0] = const_cast<char*>("{CXX}"); execv("{CXX}", argv); }}\n'
    )
    lib.compiler.unlink()
    run([CXX, wrapper, "-o", lib.compiler])
    for path in (public, *public.rglob("*")):
        path.chmod(0o755)
    program = lib.program(CALL_CAUGHT)
    probe = lib.program(NO_SETUID, name="probe")
    for path in (program, probe):
        path.chmod(0o4755)
    if as_caller(probe).returncode != 0:
        pytest.skip(f"setuid programs in {public} do not get their rights (nosuid?)")
    cache = root_cache(name)
    yield lib
    shutil.rmtree(cache, ignore_errors=True)


def root_cache(name: str) -> Path:
    return Path(pwd.getpwuid(0).pw_dir) / ".cache" / name


def hostile(public: Path) -> dict[str, str]:
    """Return what a caller may try: places, a preloaded library, settings, and its own tools in
    front of the compiler's."""
    mine = public / "mine"
    mine.mkdir()
    for tool in ("as", "ld", "collect2", "cc1plus"):
        (mine / tool).write_text(f"#!/bin/sh\ntouch {mine}/ran-$(basename $0)\nexit 1\n")
        (mine / tool).chmod(0o755)
    os.chown(mine, int(CALLER), int(CALLER))
    config = public / "config" / "lazyck"  # owned by root, so that only the program's rights prevent reading it
    config.mkdir(parents=True)
    (config / "lazyck.env").write_text("LAZYCK_LAUNCHER=/nonexistent\n")
    return {
        "XDG_CONFIG_HOME": str(config.parent),
        "LAZYCK_CACHE_DIR": str(mine / "cache"), "XDG_CACHE_HOME": str(mine / "xdg"), "HOME": str(mine / "home"),
        "LAZYCK_NAME": "other", "LAZYCK_ROOT": str(mine), "LAZYCK_LOG": "debug",
        "LAZYCK_JIT": "off", "LAZYCK_JOBS": "nonsense", "PATH": f"{mine}:{os.environ['PATH']}",
        "COMPILER_PATH": str(mine), "GCC_EXEC_PREFIX": str(mine) + "/", "LD_PRELOAD": str(mine / "none.so"),
        "LD_LIBRARY_PATH": str(mine), "TMPDIR": str(mine), "TZ": str(mine / "zone"), "PWD": str(mine),
    }  # fmt: skip


def test_setuid_program_ignores_the_environment_and_uses_roots_cache(lib: LazyLibrary, public: Path) -> None:
    done = as_caller(lib.directory / "main", **hostile(public))
    assert (done.stdout, done.returncode) == ("8\n", 0), done.stderr
    assert sorted(p.name for p in (public / "mine").iterdir()) == ["as", "cc1plus", "collect2", "ld"]
    cache = root_cache(public.name)
    assert len(list(cache.rglob("*.so"))) == 1
    for path in (cache, *cache.rglob("*")):
        assert path.lstat().st_uid == 0
        assert path.lstat().st_mode & 0o022 == 0


def test_compiler_of_a_setuid_program_sees_no_variable_of_the_caller(lib: LazyLibrary, public: Path) -> None:
    done = as_caller(lib.directory / "main", **hostile(public))
    assert done.stdout == "8\n", done.stderr
    names = {line.partition("=")[0] for line in (public / "seen").read_text().splitlines()}
    assert names <= {"PATH", "LC_ALL", "PWD", "TZ", "HOME", "TMPDIR"}, names  # which have values of lazyck's own
    assert str(public / "mine") not in (public / "seen").read_text()


def test_bundle_that_the_caller_can_write_is_not_compiled_by_a_setuid_program(lib: LazyLibrary) -> None:
    source = lib.directory / "lazyck/src/add.cpp"
    os.chown(source, int(CALLER), int(CALLER))
    done = as_caller(lib.directory / "main")
    assert done.returncode == 3
    assert "refusing to compile blob 'add' in a privileged program" in done.stdout
    assert f"it belongs to user {CALLER}" in done.stdout


@pytest.mark.parametrize("place", ["tree/demo.h", "tree/add.cpp", "tree", "contents", "", "..", "sources.tar.gz"])
@pytest.mark.parametrize("how", ["owner", "mode"])
def test_nothing_that_leads_to_what_a_setuid_program_compiles_is_anybody_elses(
    sealed: LazyLibrary, place: str, how: str
) -> None:
    own = sealed.directory / "lazyck" / "demo"
    if place == "sources.tar.gz":
        deploy(own, own)
    path = (own / place).resolve()
    if how == "owner":
        os.chown(path, int(CALLER), int(CALLER))
    else:
        path.chmod(0o777)
    done = as_caller(sealed.directory / "main")
    reason = f"it belongs to user {CALLER}" if how == "owner" else "others can write to it"
    assert done.returncode == 3 and f"'{path}': {reason}" in done.stdout, done
    assert not list(root_cache(sealed.directory.parent.name).rglob("*.so"))


def test_bundle_that_is_roots_is_compiled_by_a_setuid_program(sealed: LazyLibrary) -> None:
    done = as_caller(sealed.directory / "main")
    assert (done.stdout, done.returncode) == ("8\n", 0), done.stderr
