"""Test the cache: entries are whole or not used, the cache is ours or not used, and keys separate
what differs."""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from support import Machine, on_each_machine, wait_until
from support.lazylib import LazyLibrary, build_lazy_library
from support.small_library import BLOBS, CALL_CAUGHT, HEADER, MAIN, SYMBOLS


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, objects_dir: Path, machine: Machine) -> LazyLibrary:
    where = tmp_path_factory.mktemp("cache-lib")
    lib = build_lazy_library(where, objects_dir, BLOBS, MAIN, header=HEADER, symbols=SYMBOLS, machine=machine)
    lib.program(CALL_CAUGHT)
    return lib


@pytest.fixture
def lib(shared: LazyLibrary) -> LazyLibrary:
    """Provide a library with an empty cache and no compile counted."""
    shutil.rmtree(shared.cache, ignore_errors=True)
    shared.calls.unlink(missing_ok=True)
    return shared


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def flip(data: bytes) -> bytes:
    return data[:5000] + bytes([data[5000] ^ 1]) + data[5001:]


def strip_trailer(data: bytes) -> bytes:
    return data[:-64]


@on_each_machine
@pytest.mark.parametrize("damage", [cut, flip, strip_trailer, lambda _: b"", lambda _: b"#!/bin/sh\n" * 100])
def test_damaged_entry_is_moved_aside_and_compiled_again(lib: LazyLibrary, damage: Callable[[bytes], bytes]) -> None:
    program = lib.directory / "main"
    assert lib.call(program).stdout == "8\n"
    (entry,) = lib.entries()
    entry.write_bytes(damage(entry.read_bytes()))
    frozen = lib.call(program, env={"LAZYCK_JIT": "off"})
    assert frozen.returncode == 3
    assert "is damaged" in frozen.stdout
    done = lib.call(program)
    assert done.stdout == "8\n"
    assert "damaged" in done.stderr
    assert lib.compiles() == 2
    assert len(list(entry.parent.glob("*.bad-*"))) == 1
    assert lib.call(program).stderr == ""


def test_entry_that_the_loader_refuses_is_moved_aside_and_compiled_again(tmp_path: Path, objects_dir: Path) -> None:
    blobs = {"add": "extern int missing;\nint add(int a, int b) { return a + b\n#ifdef BAD\n+ missing\n#endif\n; }\n"}
    main, symbols = "int add(int, int);\nint use(int x) { return add(x, x); }\n", {"add": ("_Z3addii",)}
    lib = build_lazy_library(tmp_path, objects_dir, blobs, main, header="int use(int);\n", symbols=symbols)
    program = lib.program(CALL_CAUGHT)
    text = lib.compiler.read_text()
    lib.compiler.write_text(text.replace('"$@"', '-DBAD "$@"'))
    refused = lib.call(program)  # what was just compiled is not compiled again
    assert "it needs missing" in refused.stdout and lib.compiles() == 1, refused
    lib.compiler.write_text(text)
    repaired = lib.call(program)
    assert repaired.stdout == "8\n" and "it needs missing" in repaired.stderr, repaired
    assert len(list(lib.cache.glob("v1/*/*/*.bad-*"))) == 1
    assert (lib.call(program).stderr, lib.compiles()) == ("", 2)


def test_damage_is_found_in_an_entry_that_was_whole_before(lib: LazyLibrary) -> None:
    program = lib.directory / "main"
    lib.call(program)
    (entry,) = lib.entries()
    seen = entry.with_name(entry.name + ".seen")

    def is_noted() -> bool:  # an entry is noted only once its change time lies two seconds back
        assert lib.call(program).stderr == ""
        return seen.exists()

    wait_until(is_noted, pause=0.3)
    assert lib.call(program).stderr == ""
    before = entry.stat()
    with entry.open("r+b") as f:
        f.seek(5000)
        byte = f.read(1)[0]
        f.seek(5000)
        f.write(bytes([byte ^ 1]))
    os.utime(entry, ns=(before.st_atime_ns, before.st_mtime_ns))
    done = lib.call(program)
    assert done.stdout == "8\n"
    assert "its contents changed" in done.stderr
    seen.write_bytes(b"x" * len(seen.read_bytes()))
    assert lib.call(program).stdout == "8\n"
    assert lib.compiles() == 2


def test_entry_of_another_blob_is_not_used(lib: LazyLibrary) -> None:
    program = lib.directory / "main"
    lib.call(program)
    (entry,) = lib.entries()
    other = lib.call(program, env={"LAZYCK_EXTRA_CACHE_KEY": "x"})
    assert other.returncode == 0
    (salted,) = [e for e in lib.entries() if e != entry]
    shutil.copy(entry, salted)
    assert "an entry for another key" in lib.call(program, env={"LAZYCK_EXTRA_CACHE_KEY": "x"}).stderr


def test_salt_separates_entries(lib: LazyLibrary) -> None:
    program = lib.directory / "main"
    for salt in ("", "one", "two", "one", ""):
        assert lib.call(program, env={"LAZYCK_EXTRA_CACHE_KEY": salt}).stdout == "8\n"
    assert lib.compiles() == 3
    assert len({e.parent for e in lib.entries()}) == 3


def test_directories_are_private(lib: LazyLibrary) -> None:
    old = os.umask(0)
    try:
        lib.call(lib.directory / "main")
    finally:
        os.umask(old)
    directories = [lib.cache, *(p for p in lib.cache.rglob("*") if p.is_dir())]
    assert len(directories) == 10
    assert {p.stat().st_mode & 0o777 for p in directories} == {0o700}


@pytest.mark.parametrize("place", [".", "v1", "v1/demo"])
@pytest.mark.parametrize("filled", [True, False])
def test_cache_that_others_can_write_is_refused(lib: LazyLibrary, place: str, filled: bool) -> None:
    program = lib.directory / "main"
    if filled:
        lib.call(program)
    else:
        (lib.cache / place).mkdir(parents=True)
    for mode in (0o777, 0o770):
        (lib.cache / place).chmod(mode)
        done = lib.call(program)
        assert done.returncode == 3
        assert "others can write" in done.stdout
        assert "chmod go-w" in done.stdout
    (lib.cache / place).chmod(0o755)
    assert lib.call(program).stdout == "8\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_cache_of_another_user_is_refused(lib: LazyLibrary) -> None:
    program = lib.directory / "main"
    lib.call(program)
    os.chown(lib.cache / "v1", 12345, 12345)
    done = lib.call(program)
    assert done.returncode == 3
    assert "belongs to user 12345" in done.stdout


def test_symbolic_link_is_refused(lib: LazyLibrary, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere")
    done = lib.call(lib.directory / "main", env={"LAZYCK_CACHE_DIR": str(link)})
    assert done.returncode == 3
    assert "symbolic link" in done.stdout
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="tries a cache that root has filled")
def test_cache_filled_by_root_serves_other_users(lib: LazyLibrary) -> None:
    lib.call(lib.directory / "main")
    with tempfile.TemporaryDirectory(prefix="lazyck-test-") as public:  # others cannot enter pytest's directories
        for path in (lib.library, lib.directory / "main"):
            shutil.copy(path, public)
        shutil.copytree(lib.cache, f"{public}/cache")
        for path in (Path(public), *Path(public).rglob("*")):
            path.chmod(0o755)
        env = {"LAZYCK_CACHE_DIR": f"{public}/cache", "LD_LIBRARY_PATH": public}
        done = lib.call("setpriv", "--reuid", "12345", "--clear-groups", f"{public}/main", env=env)
    assert done.stdout == "8\n", done


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("LAZYCK_JOBS", "many"),
        ("LAZYCK_JOBS", "0"),
        ("LAZYCK_JOBS", "99999999999999999999"),
        ("LAZYCK_LOG", "maybe"),
        ("LAZYCK_LOG_FORMAT", "xml"),
        ("LAZYCK_JIT", "never"),
        ("LAZYCK_ON_ERROR", "explode"),
        ("LAZYCK_NAME", "../up"),
        ("LAZYCK_ARCHS", "gfx942;$(id)"),
    ],
)
def test_bad_value_names_its_variable(lib: LazyLibrary, variable: str, value: str) -> None:
    done = lib.call(lib.directory / "main", env={variable: value})
    assert done.returncode == 3
    assert variable in done.stdout
    assert lib.compiles() == 0


def test_default_place_follows_xdg_home_and_name(lib: LazyLibrary, tmp_path: Path) -> None:
    program = lib.directory / "main"
    home = {"LAZYCK_CACHE_DIR": "", "HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": ""}
    assert lib.call(program, env=home).stdout == "8\n"
    assert (tmp_path / "home/.cache/lazyck/v1/demo").is_dir()
    assert lib.call(program, env={**home, "LAZYCK_NAME": "mine"}).stdout == "8\n"
    assert (tmp_path / "home/.cache/mine/v1/demo").is_dir()
    assert lib.call(program, env={**home, "XDG_CACHE_HOME": str(tmp_path / "xdg")}).stdout == "8\n"
    assert (tmp_path / "xdg/lazyck/v1/demo").is_dir()


def test_verbose_shows_commands_and_hits(lib: LazyLibrary) -> None:
    program = lib.directory / "main"
    first = lib.call(program, env={"LAZYCK_LOG": "debug"}).stderr
    assert f"[lazyck] {lib.compiler} " in first
    second = lib.call(program, env={"LAZYCK_LOG": "debug"}).stderr
    assert second.startswith("[lazyck] found add for x86_64: ")
