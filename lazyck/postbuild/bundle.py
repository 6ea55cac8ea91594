"""The bundle: what ships beside a lazy library so that blobs can be compiled anywhere: their sources, the headers
that they reach, and the recipe that compiles them.

The bundle mirrors the build's directory tree (`<root>/<library>/tree/...`), so that relative includes keep
working; system and toolchain headers stay where they are. All of it is decided as values; `write` does the I/O, and
`deploy` that of copies which are shipped.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from lazyck import abi
from lazyck.command import CompileCommand, LinkCommand
from lazyck.files import digest, encode
from lazyck.manifest import Recipe
from lazyck.tarball import write_tarball
from lazyck.toolchains.base import Toolchain

KEY_VERSION = "2"
CONTENTS_VERSION = b"lazyck contents 1"
SYSTEM_DIRS = (
    *("/usr/include", "/usr/lib", "/usr/local/include", "/usr/local/lib/gcc"),
    *("/usr/aarch64-linux-gnu", "/usr/x86_64-linux-gnu"),  # of cross compilers
)


@dataclass(frozen=True)
class Places:
    """Which directories are the toolchain's or the system's, and which shim home stands for which real one.

    `held` names every file of the bundle and every directory above one, down from `prefix`.
    """

    home: str
    shim_homes: Mapping[str, str]
    library: str
    prefix: str = "/"
    held: frozenset[str] = frozenset()

    def real(self, path: str) -> str:
        """`path` with a shim home replaced by the home that it mirrors."""
        for shim, real in self.shim_homes.items():
            if inside(path, shim):
                return real + path[len(shim) :]
        return path

    def is_foreign(self, path: str) -> bool:
        """Whether `path` belongs to the system or the toolchain and so does not go into the bundle."""
        path = self.real(path)
        return any(inside(path, d) for d in (*names_of(self.home), *SYSTEM_DIRS))

    def in_bundle(self, path: str) -> str:
        """Where `path` goes, relative to the bundle's root."""
        return os.path.join(self.library, "tree", os.path.relpath(path, self.prefix))

    def word(self, path: str) -> str:
        """`path` as a word of a recipe: below the toolchain's home, else as it is."""
        path = self.real(path)
        if self.home not in ("", "/", "/usr") and inside(path, self.home):
            return abi.PH_TOOLCHAIN + path[len(self.home) :]
        return path

    def header_word(self, path: str) -> str:
        """Like `word`, for the value of an option that names headers: those of the bundle are found there."""
        if path in self.held and not self.is_foreign(path):
            return f"{abi.PH_ROOT}/{self.in_bundle(path)}"
        return self.word(path)


@lru_cache
def names_of(home: str) -> tuple[str, ...]:
    """A toolchain's home, also as its compiler names it in what it reads: `/usr/local/cuda` is a link to it."""
    return () if home in ("", "/", "/usr") else (home, os.path.realpath(home))


def inside(path: str, directory: str) -> bool:
    """Whether `path` is `directory` or lies below it (as text)."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def with_parents(files: Iterable[str], prefix: str) -> frozenset[str]:
    """`files` and all directories that hold them, down from `prefix`."""
    found: set[str] = set()
    for file in files:
        path = file
        while path not in found and inside(path, prefix):
            found.add(path)
            if path == prefix:
                break
            path = os.path.dirname(path)
    return frozenset(found)


def common_prefix(files: Iterable[str]) -> str:
    """The deepest directory that holds all `files`."""
    dirs = {os.path.dirname(f) for f in files}
    return os.path.commonpath(dirs) if dirs else "/"


def map_paths(words: Sequence[str], cwd: str, toolchain: Toolchain, places: Places) -> list[str]:
    """Options of a compile command with the values of path options made absolute and mapped into the bundle."""
    out: list[str] = []
    for item in toolchain.table.split(words):
        if item.name in toolchain.path_options and item.value:
            place = places.header_word(absolute(item.value, cwd))
            lead = item.words[0][: len(item.words[0]) - len(item.value)]
            out += [item.words[0], place] if len(item.words) == 2 else [lead + place]
        else:
            out += [places.word(w) if w.startswith("/") else w for w in item.words]
    return out


def absolute(path: str, cwd: str) -> str:
    """`path` joined to `cwd`, without `.` and `..`."""
    return os.path.normpath(os.path.join(cwd, path))


def make_recipe(
    blob: CompileCommand,
    base: Sequence[str],
    toolchain: Toolchain,
    toolchain_id: str,
    link: LinkCommand,
    links_library: bool,
    places: Places,
) -> Recipe:
    """How `blob` and all others with the same base words are compiled at run time."""
    compiler = [places.word(w) if w.startswith("/") else w for w in base[: blob.call.prefix]]
    flags = toolchain.recipe_words(base)[blob.call.prefix :]
    compile_words = [
        *compiler,
        abi.PH_ARCHS,
        *map_paths(flags, blob.call.cwd, toolchain, places),
        "-c",
        abi.PH_SOURCE,
        "-o",
        abi.PH_OUTPUT,
    ]
    raw_link = toolchain.link_words(base, link)
    if not links_library:
        raw_link = tuple(w for w in raw_link if abi.PH_LIBRARY not in w)
    link_words = [*compiler, *map_paths(raw_link[blob.call.prefix :], blob.call.cwd, toolchain, places)]
    return Recipe(
        toolchain=toolchain.name,
        toolchain_id=toolchain_id,
        home=places.home if any(abi.PH_TOOLCHAIN in w for w in (*compile_words, *link_words)) else "",
        home_env=toolchain.home_env,
        compile=tuple(compile_words),
        link=tuple(link_words),
        arch_flags=toolchain.arch_flags,
        env=toolchain.base_env(blob),
        drop_env=toolchain.flag_env,
    )


class Contents:
    """Digests of files, each read once."""

    def __init__(self) -> None:
        self._files: dict[str, str] = {}
        self._sets: dict[frozenset[str], str] = {}

    def of_file(self, path: str) -> str:
        if path not in self._files:
            self._files[path] = digest(Path(path).read_bytes())
        return self._files[path]

    def of_headers(self, headers: frozenset[str], places: Places) -> str:
        """One digest over names and contents of the headers that go into the bundle."""
        if headers not in self._sets:
            own = sorted(h for h in headers if not places.is_foreign(h))
            parts = (part for h in own for part in (encode(places.in_bundle(h)), self.of_file(h).encode()))
            self._sets[headers] = digest(*parts)
        return self._sets[headers]


def blob_digest(recipe: Recipe, library: tuple[str, str], source: str, headers: str) -> str:
    """The build-time part of a blob's key: everything that its compilation reads except arch, toolchain and salt.

    `library` is the soname and the machine of the library: nodes of two machines may share a cache.
    """
    words = [w for part in (recipe.compile, recipe.link, recipe.arch_flags) for w in (*part, "")]
    words += [w for pair in recipe.env for w in pair]
    return digest(*map(encode, (KEY_VERSION, *library, *words, source, headers)))


def write(root: Path, files: Mapping[str, str], manifest: bytes, library: str) -> int:
    """Lay out the bundle of `library` at `root`: `files` maps a place in the bundle to the file that goes there.

    The file `contents` has the digest of each, for the runtime (runtime/src/contents.cpp has the grammar). Replaces an
    older bundle of the same library; returns the bytes written.
    """
    own = root / library
    if own.exists():
        shutil.rmtree(own)
    made: set[Path] = set()
    size = 0
    contents = [CONTENTS_VERSION]
    for place, source in sorted(files.items()):
        target = root / place
        if target.parent not in made:
            target.parent.mkdir(parents=True, exist_ok=True)
            made.add(target.parent)
        data = Path(source).read_bytes()
        target.write_bytes(data)
        size += len(data)
        contents.append(hashlib.sha256(data).hexdigest().encode() + b" " + encode(place))
    own.mkdir(parents=True, exist_ok=True)
    listing = b"".join(record + b"\0" for record in contents)
    (own / "contents").write_bytes(listing)
    (own / "manifest").write_bytes(manifest)
    return size + len(listing) + len(manifest)


def deploy(own: Path, target: Path) -> None:
    """Put a copy of `own`, the part of a bundle that is one library's, at `target`, in the place of an older one.

    It is to be shipped, so its thousands of sources and headers are one file: a wheel or a layer of an image compresses
    each file by itself, and installing many small ones takes long. The runtime unpacks it (runtime/src/archive.cpp).
    """
    temporary = target.with_name(f".{target.name}.new")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    shutil.copy2(own / "manifest", temporary / "manifest")
    files = sorted(p for p in (own / "tree").rglob("*") if p.is_file())
    with (temporary / abi.BUNDLE_ARCHIVE).open("wb") as out:
        # `contents` last: where it is, all is
        write_tarball(out, ((f"{own.name}/{p.relative_to(own).as_posix()}", p) for p in [*files, own / "contents"]))
    old = target.with_name(f".{target.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)
    temporary.rename(target)
    shutil.rmtree(old, ignore_errors=True)
