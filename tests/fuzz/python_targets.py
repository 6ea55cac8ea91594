"""Defines what each of Python's decoders has to do with any bytes: answer, or raise one of lazyck's
own errors.

Only `TARGETS` defines this. Hypothesis and the corpora use it in test_fuzz_python.py, and libFuzzer
uses it in run_python.py. A target takes the input, and a file for decoders that read files. Nothing
beside that file matters.
"""

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from lazyck.errors import LazyckError
from lazyck.formats.manifest import decode
from lazyck.formats.record import decode_records
from lazyck.interceptor.compile_commands import export, load
from lazyck.interceptor.log import read_log
from lazyck.postbuild.objects import elf
from lazyck.postbuild.objects.embedded import read_manifest
from lazyck.postbuild.reasons import advise
from lazyck.remote import entry_record, lease
from lazyck.remote.sign import KeyRing
from lazyck.remote.tiers import parse_tiers
from lazyck.report.inspect import Files, eager_of, render_blobs, render_eager, render_summary, to_json
from lazyck.toolchains import ALL, ROCM
from lazyck.toolchains.command import CompileCommand, Invocation
from lazyck.toolchains.options import join

Target = Callable[[bytes, Path], None]
FILES = Files("libdemo.so", 1)


@contextlib.contextmanager
def only_known_errors() -> Iterator[None]:
    with contextlib.suppress(LazyckError):
        yield


def take_manifest(data: bytes, file: Path) -> None:
    with only_known_errors():
        manifest = decode(data, "fuzz")
        render_summary(manifest, FILES)
        render_blobs(manifest, manifest.blobs)
        render_eager(manifest)
        advise(eager_of(manifest))
        json.dumps(to_json(manifest, manifest.blobs, FILES))


def take_record(data: bytes, file: Path) -> None:
    with only_known_errors():
        decode_records(data, "fuzz")


OBJECT_READERS: tuple[Callable[[Path], object], ...] = (
    lambda p: elf.read_object(p),
    lambda p: elf.read_shared(p),
    lambda p: elf.read_section(p, ".dynsym"),
    lambda p: elf.section_offset(p, ".dynsym"),
    lambda p: [list(elf.open_image(p).relocations(i)) for i in range(5)],
    lambda p: elf.machine(p),
    lambda p: elf.deferred_records(p),
    lambda p: read_manifest(p),
)
ARCHIVE_READERS: tuple[Callable[[Path], object], ...] = (elf.read_archive, elf.deferred_records, elf.machine)


def take_elf(data: bytes, file: Path) -> None:
    file.write_bytes(data)
    for read in OBJECT_READERS:
        with only_known_errors():
            read(file)


def take_archive(data: bytes, file: Path) -> None:
    file.write_bytes(data)
    for read in ARCHIVE_READERS:
        with only_known_errors():
            read(file)


def take_compile_commands(data: bytes, file: Path) -> None:
    file.write_bytes(data)
    with only_known_errors():
        for entry in load(file):
            os.fsencode(" ".join(entry.arguments) + entry.file + entry.directory + entry.output)
    # A build is about to write its own records to this file. What is there is merged, or it is
    # somebody else's.
    with only_known_errors():
        export(file.with_name("no-records"), file)
        json.loads(file.read_bytes())


def take_log(data: bytes, file: Path) -> None:
    file.write_bytes(data)
    with only_known_errors():
        read_log(file)


def take_words(data: bytes, file: Path) -> None:
    """Check that the option tables lose no word of a command line, and that code that reads options
    takes any words."""
    words = split_words(data)
    call = Invocation("c++", "host", "/", ("c++", *words), 1, (("NVCC_APPEND_FLAGS", " ".join(words)),))
    ROCM.names_native(words)
    for toolchain in ALL:
        assert list(join(toolchain.table.split(words))) == words
        toolchain.archs_in(words)
        toolchain.hides_symbols(("c++", *words))
        toolchain.base_words(CompileCommand(call, "/a.cpp", "/a.o"))
        with only_known_errors():
            toolchain.parse_archs(" ".join(words))


def split_words(data: bytes) -> list[str]:
    """Return a command line as the kernel passes it: NUL ends a word, and bytes that are not UTF-8
    become surrogates."""
    return [os.fsdecode(word) for word in data.split(b"\0")] if data else []


def join_words(words: Sequence[str]) -> bytes:
    return b"\0".join(map(os.fsencode, words))


def take_remote(data: bytes, file: Path) -> None:
    """Decode what a remote answers (a record or a lease, whichever was requested), and parse what
    LAZYCK_REMOTE may say."""
    with only_known_errors():
        found = entry_record.decode(data)
        if found is not None:
            assert entry_record.decode(entry_record.encode(found)) == found
            assert not KeyRing(frozenset(s.key for s in found.signatures[:1])).believe(found) or found.statement
    held = lease.decode(data, 15.0)
    assert held.seconds > 0 and held.failures >= 0 and held.host.isprintable()
    with only_known_errors():
        for tier in parse_tiers(data.decode("utf-8", "surrogateescape")):
            assert tier.label.isprintable()
            assert tier.scheme == "file" or "@" not in tier.label.partition("://")[2].partition("/")[0]


TARGETS: dict[str, Target] = {
    "py_manifest": take_manifest,
    "py_record": take_record,
    "py_elf": take_elf,
    "py_archive": take_archive,
    "py_compile_commands": take_compile_commands,
    "py_log": take_log,
    "py_words": take_words,
    "py_remote": take_remote,
}
CORPUS = Path(__file__).parent / "corpus"


def corpus(target: str) -> list[Path]:
    """Return a target's first inputs: its own, and those of the runtime's decoder of that format
    (`elf` for `py_elf`)."""
    directories = (CORPUS / target.removeprefix("py_"), CORPUS / target)
    return [file for directory in directories if directory.is_dir() for file in sorted(directory.iterdir())]
