"""Computes keys of blobs by content: two blobs with one key compile to equal objects.

A key covers the compiler, the flags, the source, its own preprocessed text, and the path and
content of every header that it reads. A new header that is found earlier on the include path
changes the key too, because the list of headers comes from a preprocess that every link runs.
"""

import os
from collections.abc import Iterable, Mapping
from functools import lru_cache

from lazyck.errors import LazyckError
from lazyck.files import digest, encode
from lazyck.postbuild.bundle import FileDigests
from lazyck.postbuild.bundle_paths import SYSTEM_DIRS, inside
from lazyck.postbuild.probe.preprocess import makes_assembler_read, read_source
from lazyck.postbuild.probe_cache import code_version
from lazyck.toolchains import Toolchain
from lazyck.toolchains.command import CompileCommand
from lazyck.toolchains.identity import compiler_identity


def group_key(toolchain: Toolchain, blob: CompileCommand, parts: Iterable[str], env: Mapping[str, str]) -> str:
    """Return the key of what the blobs of a group share: their compiler, `parts`, and files that
    options name (`-imacros`, lists for sanitizers). Return an empty string for a compiler that does
    not say its version: nothing is kept of its blobs."""
    compiler = blob.call.argv[: blob.call.prefix]
    words = [
        value for word in toolchain.base_words(blob)[blob.call.prefix :] for value in (word, word.partition("=")[2])
    ]
    named = sorted({path for path in map(blob.call.path, filter(None, words)) if os.path.isfile(path)})
    try:
        identity = compiler_identity(compiler, env)
        programs = [os.stat(os.path.realpath(word)) for word in compiler if word.startswith("/")]
    except (LazyckError, OSError):
        return ""
    stamps = [f"{p.st_size} {p.st_mtime_ns}" for p in programs]
    return digest(
        *map(encode, (code_version(), toolchain.name, identity, *stamps, *parts, files_key(named, FileDigests())))
    )


def blob_keys(shared: str, headers: Mapping[str, frozenset[str]], texts: Mapping[str, str]) -> dict[str, str]:
    """Map each source to its key, for blobs whose group has the key `shared`. Blobs that
    make the assembler read other files have no key. `headers` are what each of them reads,
    `texts` is their own preprocessed text."""
    contents = FileDigests()
    known: dict[frozenset[str], str] = {}
    keys = {}
    for source, text in texts.items():
        read = headers[source]
        if read not in known:
            known[read] = "" if any(map(_embeds, read)) else files_key(read, contents)
        if makes_assembler_read(text) or not known[read]:
            continue
        # A header that another blob has read before leaves an empty line.
        own = "\n".join(line for line in text.split("\n") if line)
        keys[source] = digest(*map(encode, (shared, source, contents.of_file(source), own, known[read])))
    return keys


def files_key(files: Iterable[str], contents: FileDigests) -> str:
    return digest(*(part for f in sorted(files) for part in (encode(f), contents.of_file(f).encode())))


@lru_cache(maxsize=65536)
def _embeds(header: str) -> bool:
    """Return whether a header of the project has assembler text that reads another file."""
    return not _is_of_the_system(header) and makes_assembler_read(read_source(header))


def _is_of_the_system(path: str) -> bool:
    return any(inside(path, d) for d in SYSTEM_DIRS)
