"""Builds libamdhip64.so on first use: into the home's lib/, or into the user's cache if lib/ cannot
be written."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fake_rocm.home import HOME, FakeRocmError, find_host_compiler

# There is one file per soname, so that libraries linked against any version of the real one find
# theirs.
_SONAME_MAJORS = (5, 6, 7)
_LINKS = {"libamdhip64.so": "libamdhip64.so.6"}
_STAMP = "fake_rocm.digest"
_LOCK = "fake_rocm.lock"
_FLAGS = ["-std=c++17", "-O2", "-fPIC", "-Wall", "-Wextra", f"-I{HOME}/include", f"-I{HOME}/src"]


def library_dir() -> Path:
    """Return the directory that holds libamdhip64.so. Build the library if the sources have
    changed since it was built."""
    digest = source_digest()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fake_rocm_home" / digest[:16]
    candidates = (HOME / "lib", cache)
    for directory in candidates:
        if _is_current(directory, digest):
            return directory
    for directory in candidates:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            with _locked(directory):
                if not _is_current(directory, digest):
                    _build(directory, digest)
                return directory
        except OSError:
            continue
    raise FakeRocmError(f"cannot build libamdhip64.so: neither {candidates[0]} nor {candidates[1]} can be written")


def source_digest() -> str:
    """Return a digest of the contents of this home: the library's sources, the headers, and the
    compiler driver."""
    digest = hashlib.sha256()
    for part in ("src", "include", "libexec"):
        for path in sorted((HOME / part).rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                digest.update(f"{path.relative_to(HOME)}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def _is_current(directory: Path, digest: str) -> bool:
    try:
        return (directory / _STAMP).read_text() == digest
    except OSError:
        return False


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    # The kernel releases the lock when the process ends, however that happens.
    fd = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _build(directory: Path, digest: str) -> None:
    staging = Path(tempfile.mkdtemp(prefix=".build.", dir=directory))
    try:
        runtime = staging / "runtime.o"
        # All sources are one translation unit: the headers are read once, and the first use waits a
        # third of the time.
        sources = sorted(path for path in (HOME / "src").glob("*.cpp") if path.name != "variant.cpp")
        unit = "".join(f'#include "{path}"\n' for path in sources)
        _compile(["-x", "c++", "-c", "-o", str(runtime), "-"], unit)
        for major in _SONAME_MAJORS:
            name = f"libamdhip64.so.{major}"
            variant = staging / f"variant{major}.o"
            _compile([f"-DFAKE_ROCM_SONAME_MAJOR={major}", "-c", "-o", str(variant), f"{HOME}/src/variant.cpp"])
            exports = f"-Wl,--version-script={HOME}/src/exports.map"
            # The library is preloaded into programs of any compiler, so it brings its own C++
            # library.
            static = ["-static-libstdc++", "-static-libgcc"]
            objects = [str(runtime), str(variant)]
            _compile(["-shared", f"-Wl,-soname,{name}", exports, *static, "-o", str(staging / name), *objects, "-ldl"])
            os.rename(staging / name, directory / name)
        for link, target in _LINKS.items():
            os.symlink(target, staging / link)
            os.rename(staging / link, directory / link)
        (staging / _STAMP).write_text(digest)
        os.rename(staging / _STAMP, directory / _STAMP)  # comes last: it says that the rest is there
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _compile(arguments: list[str], stdin: str = "") -> None:
    argv = [*find_host_compiler().argv, *_FLAGS, *arguments]
    done = subprocess.run(argv, input=stdin, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        raise FakeRocmError(f"cannot build libamdhip64.so: exit code {done.returncode} from {argv}\n{done.stdout}")
