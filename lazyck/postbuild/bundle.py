"""Makes the bundle: what ships beside a lazy library so that blobs can be compiled anywhere. It
holds their sources, the headers that they reach, and the recipe that compiles them.

The bundle mirrors the build's directory tree (`<root>/<library>/tree/...`), so that relative
includes keep working. System and toolchain headers stay where they are. All of it is decided as
values. Only `write` and `deploy` do I/O; `deploy` makes the copies that are shipped.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lazyck import abi
from lazyck.files import digest, encode
from lazyck.formats.manifest import Manifest, Recipe
from lazyck.formats.manifest import encode as encode_manifest
from lazyck.formats.tarball import EPOCH, EPOCH_VARIABLE, write_tarball
from lazyck.postbuild.bundle_paths import BundlePaths, map_env, map_paths
from lazyck.postbuild.cxx.includes import depends_on_place, with_relative_includes
from lazyck.postbuild.state import commit, staging
from lazyck.toolchains.base import Toolchain
from lazyck.toolchains.command import CompileCommand, LinkCommand

KEY_VERSION = "6"
CONTENTS_VERSION = b"lazyck contents 1"
_ONCE = re.compile(rb"^[ \t]*#[ \t]*pragma[ \t]+once\b", re.MULTILINE)


@dataclass(frozen=True)
class Identity:
    """Names the compiler that the build used, by its name in keys, what that was made of, and the
    SHA-256 of the list of headers."""

    name: str
    programs: tuple[str, ...] = ()
    headers: str = ""


def make_recipe(
    blob: CompileCommand,
    base: Sequence[str],
    toolchain: Toolchain,
    compiler_is: Identity,
    link: LinkCommand,
    paths: BundlePaths,
    runtime: str = "",
    linked: Sequence[str] = (),
) -> Recipe:
    """Return how `blob` and all others with its base words are compiled at run time.

    `runtime` is the place in the bundle of an object by which the blob reaches a GPU runtime within
    the library, or the library's wrappers of one. It is empty if there is no such object. `linked`
    are further words of the link.
    """
    compiler = [paths.word(w) if w.startswith("/") else w for w in base[: blob.call.prefix]]
    flags = toolchain.recipe_words(base)[blob.call.prefix :]
    compile_words = [
        *compiler,
        abi.PH_ARCHS,
        *map_paths(flags, blob.call.cwd, toolchain, paths),
        "-c",
        abi.PH_SOURCE,
        "-o",
        abi.PH_OUTPUT,
    ]
    raw_link = toolchain.link_words(base, link)
    link_words = [*compiler, *map_paths(raw_link[blob.call.prefix :], blob.call.cwd, toolchain, paths)]
    if runtime:
        link_words.insert(link_words.index(abi.PH_INPUT) + 1, f"{abi.PH_ROOT}/{runtime}")
    link_words += linked
    env = tuple(map_env(toolchain.base_env(blob), blob.call.cwd, toolchain, paths))
    if not any(name == EPOCH_VARIABLE for name, _ in env):
        env = (*env, (EPOCH_VARIABLE, str(EPOCH)))
    words = (*compile_words, *link_words, *(value for _, value in env))
    home = paths.home if any(abi.PH_TOOLCHAIN in w for w in words) else ""
    programs = (paths.foreign_name(p) for p in compiler_is.programs)
    return Recipe(
        toolchain=toolchain.name,
        toolchain_id=compiler_is.name,
        home=home,
        home_env=toolchain.home_env,
        compile=tuple(compile_words),
        link=tuple(link_words),
        arch_flags=toolchain.arch_flags,
        env=env,
        programs=tuple(paths.word(p) if home else p for p in programs),
        headers=compiler_is.headers,
    )


def device_recipe(recipe: Recipe, toolchain: Toolchain, program: str) -> Recipe:
    """Return how `lazyck-unit`, at the place `program` of the bundle, compiles device code of a
    source that `recipe` compiles whole: by the very same command. `lazyck-unit` makes the library
    itself, so there is no link step."""
    items = toolchain.table.split(recipe.compile[1:])
    command = [w for i in items if i.name not in toolchain.hinders_units for w in i.words]
    command = [w if w != abi.PH_OUTPUT else "unit.o" for w in command]
    command = [w.replace(abi.PH_NAME, "0") for w in command]  # `lazyck-unit` gives names itself
    head = (f"{abi.PH_ROOT}/{program}", toolchain.unit_verbs[1], abi.PH_KERNEL, abi.PH_SOURCE, abi.PH_OUTPUT, "--")
    words = (*head, recipe.compile[0], *command)
    return replace(recipe, compile=words, link=())


def entry_recipe(recipe: Recipe, toolchain: Toolchain, program: str) -> Recipe:
    """Return how `lazyck-unit` compiles the host code of a blob that `recipe` compiles whole."""
    device = device_recipe(recipe, toolchain, program).compile
    return replace(recipe, compile=(device[0], toolchain.entry_verb, *device[2:]))


class FileDigests:
    """Computes digests of files, and reads each file once."""

    def __init__(self) -> None:
        self._files: dict[str, str] = {}
        self._sets: dict[frozenset[str], str] = {}

    def of_file(self, path: str) -> str:
        if path not in self._files:
            self._files[path] = hashlib.sha256(Path(path).read_bytes()).hexdigest()
        return self._files[path]

    def of_headers(self, headers: frozenset[str], paths: BundlePaths) -> str:
        """Return one digest over names and contents of headers, in the bundle or not."""
        if headers not in self._sets:
            named = ((_name_in_key(h, paths), h) for h in headers)
            parts = (part for name, h in sorted(named) for part in (encode(name), self.of_file(h).encode()))
            self._sets[headers] = digest(*parts)
        return self._sets[headers]

    def foreign_list(self, headers: Iterable[str], paths: BundlePaths) -> bytes:
        """Return the list of those `headers` that are not for the bundle: for each, the SHA-256 and
        the path that it has where the build's toolchain is. The runtime compares them with those of
        its machine before it compiles (runtime/src/store/compilers.cpp)."""
        named = sorted({paths.foreign_name(h): h for h in headers if paths.is_foreign(h)}.items())
        records = (f"{self.of_file(h)} {name}" for name, h in named)
        return b"".join(encode(record) + b"\0" for record in (abi.HEADERS_VERSION, *records))


def _name_in_key(header: str, paths: BundlePaths) -> str:
    return paths.word(paths.foreign_name(header)) if paths.is_foreign(header) else paths.in_tree(header)


def blob_digest(recipe: Recipe, name: str, library: tuple[str, ...], source: str, headers: str) -> str:
    """Return the build-time part of a blob's key: everything that its compilation reads except
    arch, toolchain and salt.

    `library` is the machine of the library (nodes of two machines may share a cache) and the
    private names of the blob's functions. The library's `name` does not count: programs share
    entries, and so do copies of a library under other names.
    """
    words = [w for part in (recipe.compile, recipe.link, recipe.arch_flags) for w in (*part, "")]
    words += [w for pair in recipe.env for w in pair]
    words = [w.replace(f"{abi.PH_ROOT}/{name}/", f"{abi.PH_ROOT}/") for w in words]
    return digest(*map(encode, (KEY_VERSION, *library, *words, source, headers)))


def write(root: Path, files: Mapping[str, str | bytes], manifest: Manifest) -> tuple[bytes, int]:
    """Lay out the bundle of a library at `root`. `files` maps a place to the file that goes there,
    or to what is written there.

    The file `contents` has the digest of each file, for the runtime
    (runtime/src/bundle/contents.cpp has the grammar), and the manifest has the digest of that list.
    So the library, which carries the manifest, can tell its bundle from any other. Replaces an
    older bundle of the library. Returns the encoded manifest, and the number of bytes written.
    """
    library = manifest.library
    own = root / library
    shutil.rmtree(own, ignore_errors=True)
    own.mkdir(parents=True)
    made: set[str] = set()
    where = {source: place for place, source in files.items() if isinstance(source, str)}
    apart = PragmaOnce()
    size = 0
    contents = [CONTENTS_VERSION]
    for place, source in sorted(files.items()):
        target = f"{root}/{place}"
        directory = os.path.dirname(target)
        if directory not in made:
            os.makedirs(directory, exist_ok=True)
            made.add(directory)
        if isinstance(source, bytes):
            data = source
        else:
            data = apart.kept(with_relative_includes(Path(source).read_bytes(), place, where), source, place)
        with open(target, "wb") as out:  # pathlib takes as long as the rest
            out.write(data)
        os.utime(target, (0, 0))  # as unpacked files have it
        if "/.lazyck/" in place and isinstance(source, str) and os.access(source, os.X_OK):
            os.chmod(target, 0o755)
        size += len(data)
        contents.append(hashlib.sha256(data).hexdigest().encode() + b" " + encode(place))
    listing = b"".join(record + b"\0" for record in contents)
    encoded = encode_manifest(replace(manifest, contents=hashlib.sha256(listing).hexdigest()))
    (own / "contents").write_bytes(listing)
    (own / "manifest").write_bytes(encoded)
    return encoded, size + len(listing) + len(encoded)


class PragmaOnce:
    """Lets `#pragma once` take for one file in a bundle what it takes for one in the build.

    GCC treats two files with `#pragma once` as one if their sizes, contents and modification times
    (in seconds) are equal. All files of a bundle have one time, so their sizes must differ if their
    relative includes resolve differently. Clang treats two names of one file so, which a link makes
    or a hard link. In a bundle, the second name includes the first.
    """

    def __init__(self) -> None:
        self._times: dict[str, dict[int, int]] = {}
        self._places: dict[tuple[int, int], str] = {}

    def kept(self, data: bytes, source: str, place: str) -> bytes:
        """Return the contents of `source` for its `place` in the bundle. Those of another file of
        equal contents and another time have an empty line more."""
        if not _ONCE.search(data):
            return data
        if not depends_on_place(data):
            status = os.stat(source)
            first = self._places.setdefault((status.st_dev, status.st_ino), place)
            return data if first == place else encode(f'#include "{os.path.relpath(first, os.path.dirname(place))}"\n')
        times = self._times.setdefault(digest(data), {})
        return data + b"\n" * times.setdefault(int(Path(source).stat().st_mtime), len(times))


def deploy(own: Path, target: Path) -> None:
    """Put a copy of `own`, one library's part of a bundle, at `target`, in place of an older one.

    The copy is to be shipped, so its thousands of sources and headers are one file: a wheel or a
    layer of an image compresses each file by itself, and installing many small ones takes long. The
    runtime unpacks it (runtime/src/store/sources.cpp).
    """
    temporary = staging(target, ".")
    shutil.copy2(own / "manifest", temporary / "manifest")
    files = sorted(p for p in (own / "tree").rglob("*") if p.is_file())
    with (temporary / abi.BUNDLE_ARCHIVE).open("wb") as out:
        # `contents` comes last: where it is, all other files are.
        write_tarball(out, ((f"{own.name}/{p.relative_to(own).as_posix()}", p) for p in [*files, own / "contents"]))
    commit(temporary, target)
