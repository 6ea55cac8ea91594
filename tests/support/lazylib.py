"""Build small lazy libraries by hand: stubs, runtime, manifest and bundle, without shim and
probe."""

import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType

from filelock import FileLock

from lazyck import abi
from lazyck.files import private_directory
from lazyck.formats.manifest import BlobRecord, Manifest, Recipe, encode
from lazyck.postbuild.bundle import CONTENTS_VERSION
from lazyck.postbuild.describe import digest_of_keys
from lazyck.postbuild.link.stubs import render_stubs
from lazyck.runtime.builder import OBJECTS, compile_objects
from lazyck.runtime.builder import SOURCES as SOURCES
from lazyck.settings.environment import tools_dir
from support import HERE, Machine

CXX = HERE.cxx
CLANG = shutil.which("clang++-19") or shutil.which("clang++")


@cache
def runtime_objects(out: Path, compiler: str, flags: tuple[str, ...]) -> tuple[Path, ...]:
    # Objects without flags are stored where a user has them, so that tests of whole builds need not
    # compile the runtime, too.
    store = out if flags else private_directory(tools_dir(os.environ)) / OBJECTS
    return tuple(compile_objects(store, [compiler], SOURCES, flags, jobs=2))


def run(argv: Sequence[str | Path], **kwargs: object) -> subprocess.CompletedProcess[str]:
    """Run a command that must succeed."""
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True, **kwargs)  # type: ignore[call-overload]
    assert done.returncode == 0, f"{shlex.join(map(str, argv))}\n{done.stdout}{done.stderr}"
    return done  # type: ignore[no-any-return]


PROGRAM_FLAGS = ("-std=c++17", "-g", "-pthread")
# These headers of the C++ library take most of the time of compiling a small program.
_HEADERS = ("atomic", "chrono", "cstdio", "cstdlib", "stdexcept", "string", "thread", "vector")


@cache
def standard_headers(objects_dir: Path, command: tuple[str, ...]) -> Path:
    """Return a header that has what tests' programs include, compiled by `command` once for all
    tests that share `objects_dir`."""
    directory = objects_dir / hashlib.sha256(repr(command).encode()).hexdigest()[:16]
    directory.mkdir(parents=True, exist_ok=True)
    header, compiled = directory / "standard.h", directory / "standard.h.gch"
    with FileLock(directory / ".lock"):
        if not compiled.exists():
            header.write_text("".join(f"#include <{name}>\n" for name in _HEADERS))
            run([*command, "-x", "c++-header", header, "-o", directory / "new"])
            (directory / "new").replace(compiled)
    return header


_FUNCTIONS: dict[str, tuple[str, ...]] = {}


def functions_of(source: Path, header: str, flags: Sequence[str], compiler: str = CXX) -> tuple[str, ...]:
    """Return the mangled names of the functions that `source` exports. `header` is the text that it
    includes."""
    key = repr((source.read_text(), header, flags, compiler))
    if key not in _FUNCTIONS:
        _FUNCTIONS[key] = _functions_of(source, flags, compiler)
    return _FUNCTIONS[key]


def _functions_of(source: Path, flags: Sequence[str], compiler: str) -> tuple[str, ...]:
    out = source.with_suffix(".probe.o")
    run([compiler, *flags, "-c", source, "-o", out])
    lines = run(["nm", "--defined-only", "--extern-only", out]).stdout.splitlines()
    out.unlink()
    return tuple(line.split()[2] for line in lines if line.split()[1] in "TWi")


@dataclass(frozen=True)
class LazyLibrary:
    """Describes a built lazy library with its bundle, a cache directory and a compiler that
    counts."""

    directory: Path
    library: Path
    manifest: Manifest
    compiler: Path
    calls: Path
    machine: Machine = HERE
    flags: tuple[str, ...] = ()  # also for its programs
    env: dict[str, str] = field(default_factory=dict)
    objects_dir: Path | None = None
    programs: dict[str, tuple[str, list[str]]] = field(default_factory=dict)  # text and command of each

    @property
    def cache(self) -> Path:
        return Path(self.env[abi.ENV_CACHE_DIR])

    @property
    def manifest_file(self) -> Path:
        return self.directory / "lazyck" / self.manifest.library / "manifest"

    def compiles(self, blob: str = "") -> int:
        """Return how often the compile step (not the link step) ran, for all blobs or one."""
        lines = self.calls.read_text().splitlines() if self.calls.exists() else []
        return sum(1 for line in lines if " -c " in line and f"{blob}.cpp" in line)

    def entries(self) -> list[Path]:
        return sorted(self.cache.glob("v1/*/*/*.so"))

    def program(
        self, main: str, name: str = "main", flags: Sequence[str] = (), compiler: str = "", libs: Sequence[str] = ()
    ) -> Path:
        """Build an executable from the source text `main` that links the library, unless it was
        built before."""
        source = self.directory / f"{name}.cpp"
        program = self.directory / name
        rpath = ["-Wl,-rpath," + str(self.directory)] if "," not in str(self.directory) else []
        words = [compiler or self.machine.cxx, *PROGRAM_FLAGS, *self.flags, *flags]
        if self.objects_dir and not flags and not compiler:
            words += ["-include", str(standard_headers(self.objects_dir, tuple(words)))]
        words += ["-I", str(self.directory), "-I", str(SOURCES), str(source), "-o", str(program), str(self.library),
                  *rpath, "-ldl", *libs]  # fmt: skip
        if self.programs.get(name) != (main, words):
            source.write_text(main)
            run(words)
            self.programs[name] = main, words
        return program

    def words(self, *argv: str | Path) -> list[str]:
        """Return the words that start `argv` on this machine."""
        is_own = Path(argv[0]).parent == self.directory and Path(argv[0]) != self.compiler
        return [*(self.machine.runner if is_own else ()), *map(str, argv)]

    def call(self, *argv: str | Path, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run a program of this library or of this machine."""
        full = {**os.environ, **self.env, **(env or {})}
        words = self.words(*argv)
        done = subprocess.run(
            words, capture_output=True, text=True, errors="surrogateescape", env=full, timeout=300, check=False
        )
        if done.returncode:  # pytest shows the output if the test fails
            print(f"exit status {done.returncode}: {' '.join(map(str, argv))}\n{done.stderr}")
        return done


def as_new(lib: LazyLibrary) -> LazyLibrary:
    """Return a library that tests share as it was when it was built: with its bundle and its
    compiler, an empty cache and no compile counted. Its programs stay."""
    kept = lib.directory / "kept"
    bundle = lib.directory / "lazyck"
    if kept.exists():
        shutil.rmtree(bundle, ignore_errors=True)
        shutil.copytree(kept, lib.directory, dirs_exist_ok=True)
    else:
        shutil.copytree(bundle, kept / bundle.name)
        for compiler in lib.directory.iterdir():
            if compiler.is_file() and compiler.read_bytes().startswith(b"#!"):
                shutil.copy2(compiler, kept)
    for noted in (lib.calls, *lib.directory.glob(f"{lib.compiler.name}.*")):  # `slow_compiler`
        noted.unlink(missing_ok=True)
    # What an earlier test has started and killed may still end: it finds another cache.
    cache = Path(tempfile.mkdtemp(prefix="cache-", dir=lib.directory)) / "cache"
    return replace(lib, env={**lib.env, abi.ENV_CACHE_DIR: str(cache)})


def counting_compiler(path: Path, calls: Path, compiler: str) -> None:
    """Write a script that notes its calls in `calls`, in whole lines even if many run at once."""
    path.write_text(
        "#!/bin/sh\n"
        f"printf '%s\\n' \"$(echo \" $* \" | tr '\\n' ' ')\" >> {shlex.quote(str(calls))}\n"
        f'exec {shlex.quote(compiler)} "$@"\n'
    )
    path.chmod(0o755)


def contents_of(root: Path, files: Sequence[Path]) -> bytes:
    """Return the text of the file `contents` of a bundle at `root` with these files."""
    digests = [(hashlib.sha256(f.read_bytes()).hexdigest(), f.relative_to(root)) for f in files]
    records = [CONTENTS_VERSION, *(f"{digest} {place}".encode() for digest, place in digests)]
    return b"".join(record + b"\0" for record in records)


def build_lazy_library(
    directory: Path,
    objects_dir: Path,
    blobs: Mapping[str, str],
    main: str = "",
    *,
    header: str = "",
    name: str = "demo",
    machine: Machine = HERE,
    compiler: str = "",
    flags: Sequence[str] = (),
    main_flags: Sequence[str] = (),
    link_flags: Sequence[str] = (),
    runtime_flags: Sequence[str] = (),
    symbols: Mapping[str, tuple[str, ...]] | None = None,
    toolchain: str = "host",
    toolchain_id: str = "g++-test",
    arch_flags: Sequence[str] = (),
    archs: Sequence[str] = (),
    home: str = "",
    home_env: Sequence[str] = (),
    compile_words: Sequence[str] | None = None,
    env: Sequence[tuple[str, str]] = (),
    embed: Callable[[Manifest], bytes] = encode,
    cache_name: str = "",
    sealed: bool = False,
    kernels: Mapping[str, str] = MappingProxyType({}),
    wrapped: Sequence[str] = (),
) -> LazyLibrary:
    """Build a library from `main` and the lazily compiled `blobs` (name → source). All sources see
    `header` as "demo.h".

    `embed` makes the manifest in the library. With `sealed`, the bundle is as `lazyck build` makes
    it, and the library knows the digest of its contents. `main` registers the `kernels` (name → a
    source that defines their image) for the host unit `unit`, by functions among `wrapped`.
    """
    compiler = compiler or machine.cxx
    flags = (*machine.flags, *flags)
    if machine.flags:
        runtime_flags = (*machine.flags, "-O0", *runtime_flags)
    root = directory / "lazyck"
    src = f"{name}/tree" if sealed else "src"
    (root / src).mkdir(parents=True)
    (root / name).mkdir(exist_ok=True)
    (directory / "demo.h").write_text(header)
    (root / src / "demo.h").write_text(header)
    calls, script = directory / "calls.log", directory / "cxx"
    counting_compiler(script, calls, compiler)
    library = directory / f"lib{name}.so"
    all_flags = ["-std=c++17", "-O1", "-fPIC", *flags]
    records = []
    for blob, text in blobs.items():
        source = root / src / f"{blob}.cpp"
        source.write_text(text)
        known = symbols[blob] if symbols else functions_of(source, header, all_flags, compiler)
        key = hashlib.sha256(repr((text, header, all_flags)).encode()).hexdigest()
        records.append(BlobRecord(blob, f"{src}/{blob}.cpp", 0, key, known))
    functions = [s for record in records for s in record.symbols]
    for kernel, text in {"*": "", **kernels}.items() if kernels else ():
        blob = "whole" if kernel == "*" else f"of_{kernel}"
        (root / src / f"{blob}.cpp").write_text(text)
        known = tuple(kernels) if kernel == "*" else (kernel,)
        key = hashlib.sha256(text.encode()).hexdigest()
        records.append(BlobRecord(blob, f"{src}/{blob}.cpp", 0, key, known, f"unit\t{kernel}\t\t\t"))
    recipe = Recipe(
        toolchain=toolchain,
        toolchain_id=toolchain_id,
        home=home,
        home_env=tuple(home_env),
        compile=tuple(compile_words)
        if compile_words is not None
        else (str(script), abi.PH_ARCHS, *all_flags, "-I", f"{abi.PH_ROOT}/{src}", "-c",
              abi.PH_SOURCE, "-o", abi.PH_OUTPUT),
        link=(str(script), *flags, "-shared", "-o", abi.PH_OUTPUT, abi.PH_INPUT),
        arch_flags=tuple(arch_flags),
        env=tuple(env),
    )  # fmt: skip
    manifest = Manifest(
        name,
        library.name,
        cache_name,
        "",
        tuple(archs),
        (recipe,),
        tuple(records),
        creator="test",
        digest=digest_of_keys(records, [recipe]),
        machine=machine.name,
    )
    manifest_file = root / name / "manifest"
    if sealed:
        listing = contents_of(root, sorted((root / src).iterdir()))
        (root / name / "contents").write_bytes(listing)
        manifest = replace(manifest, contents=hashlib.sha256(listing).hexdigest())
    manifest_file.write_bytes(encode(manifest))
    stubs = directory / "stubs.s"
    (directory / "embedded").write_bytes(embed(manifest))
    device = len(manifest.symbols) - len(functions)
    rendered = render_stubs(functions, "embedded", machine.name, device_symbols=device, wrapped=wrapped)
    stubs.write_text(rendered, errors="surrogateescape")
    run([compiler, "-c", "stubs.s", "-o", "stubs.o"], cwd=directory)
    (directory / f"{name}.cpp").write_text(main)
    run([compiler, *all_flags, *main_flags, "-I", directory, "-c", f"{name}.cpp", "-o", f"{name}.o"], cwd=directory)
    objects = runtime_objects(objects_dir, compiler, tuple(runtime_flags))
    run([compiler, *flags, "-shared", "-o", library.name, f"{name}.o", "stubs.o", *objects, *link_flags,
         *(f"-Wl,--wrap={w}" for w in wrapped), f"-Wl,-soname,{library.name}", "-pthread", "-ldl"],
        cwd=directory)  # fmt: skip
    cache_dir = directory / "cache"
    env_of_calls = {abi.ENV_CACHE_DIR: str(cache_dir), **machine.env}
    return LazyLibrary(directory, library, manifest, script, calls, machine, tuple(flags), env_of_calls, objects_dir)
