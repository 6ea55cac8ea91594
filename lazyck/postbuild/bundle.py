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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from lazyck import abi
from lazyck.abi import Role
from lazyck.files import digest, encode
from lazyck.formats.manifest import Manifest, Recipe
from lazyck.formats.manifest import encode as encode_manifest
from lazyck.formats.tarball import EPOCH, EPOCH_VARIABLE, write_tarball
from lazyck.machines import MACHINES
from lazyck.postbuild.cxx.includes import depends_on_place, with_relative_includes
from lazyck.postbuild.state import commit, staging
from lazyck.toolchains.base import Toolchain
from lazyck.toolchains.command import CompileCommand, LinkCommand
from lazyck.toolchains.options import CommandItem

KEY_VERSION = "4"
CONTENTS_VERSION = b"lazyck contents 1"
SYSTEM_DIRS = (
    *("/usr/include", "/usr/lib", "/usr/local/include", "/usr/local/lib/gcc"),
    *(f"/usr/{name}-linux-gnu" for name in MACHINES),  # of cross compilers
)

# This matches the absolute path of a header, or of a directory of headers, wherever it stands in an
# option: also among words for another compiler (`-Xcompiler -Wall,-I/x`, `-Wp,-I/x`). Words may be
# joined by \n.
HEADER_PATH = re.compile(
    r"(?:^|(?<=[,=\s'\"]))-{1,2}(?:I|isystem(?:-after)?|iquote|idirafter|include(?:-directory)?|imacros)[=,\s]*"
    r"(/[^,:\"'<>\\\n]+)",
    re.MULTILINE,
)
# This matches a whole option that names directories in which a link looks for libraries, also among
# words for the linker.
_LIBRARY_PATH = re.compile(r"(?:^|(?<=[,=\s'\"]))-{1,2}(?:L|R|library-path|rpath(?:-link)?)[=,\s]*(/[^,\"'\s]+)")
# These options have text as their value, which leads to no file.
_TEXT = re.compile(
    r"-{1,2}(?:D|U|define-macro|undefine-macro)|-f(?:[a-z]+-(?:prefix-map|compilation-dir)|random-seed)="
)
_TEXT_INSIDE = re.compile(rf"(?:^|(?<=[,\s'\"]))(?:{_TEXT.pattern})[^,\s]*")
_ABSOLUTE = re.compile(r"(?:^|(?<=[,=:\s'\"]))/[^,=:\s'\"]*")
_SEARCHES = frozenset({Role.INCLUDE, Role.INCLUDE_QUOTED, Role.INCLUDE_SYSTEM, Role.INCLUDE_AFTER, Role.LIBRARY_DIR})
_ROUNDABOUT = re.compile(r"/\.{0,2}(?:/|$)")  # a path that is not normalized
_ONCE = re.compile(rb"^[ \t]*#[ \t]*pragma[ \t]+once\b", re.MULTILINE)


@dataclass(frozen=True)
class BundlePaths:
    """Maps the build's paths to the bundle, and tells which belong to a toolchain or the system."""

    home: str
    shim_homes: Mapping[str, str]
    library: str
    prefix: str = "/"
    held: frozenset[str] = frozenset()  # every file of the bundle, and every directory above one, down from `prefix`

    @cached_property
    def _foreign(self) -> tuple[str, ...]:
        # The compiler may read below another name of its home: `/usr/local/cuda` is a link.
        homes = () if self.home in ("", "/", "/usr") else (self.home, os.path.realpath(self.home))
        return tuple(f"{d.rstrip('/')}/" for d in (*homes, *SYSTEM_DIRS))

    @cached_property
    def _lead(self) -> str:
        return self.prefix.rstrip("/") + "/"

    def real(self, path: str) -> str:
        """Return `path` with a shim home replaced by the home that it mirrors."""
        for shim, real in self.shim_homes.items():
            if inside(path, shim):
                return real + path[len(shim) :]
        return path

    def is_foreign(self, path: str) -> bool:
        """Return whether `path` is the system's or the toolchain's, and not for the bundle."""
        return f"{self.real(path)}/".startswith(self._foreign)

    def in_bundle(self, path: str) -> str:
        """Return where `path` goes, relative to the bundle's root."""
        return f"{self.library}/tree/{self.in_tree(path)}"

    def in_tree(self, path: str) -> str:
        """Return where `path` goes, relative to the bundle's tree."""
        is_plain = path.startswith(self._lead) and not _ROUNDABOUT.search(path)
        return path[len(self._lead) :] if is_plain else os.path.relpath(path, self.prefix)

    def foreign_name(self, path: str) -> str:
        """Return the path of a file that is not for the bundle, below the toolchain's home if the
        compiler read it by the home's real path."""
        path, real = self.real(path), os.path.realpath(self.home) if self.home else ""
        return self.home + path[len(real) :] if real not in ("", "/", "/usr") and inside(path, real) else path

    def word(self, path: str) -> str:
        """Return `path` as a word of a recipe, relative to the toolchain's home if it is below."""
        path = self.real(path)
        if self.home in ("", "/", "/usr"):
            return path
        home = next((h for h in (self.home, os.path.realpath(self.home)) if inside(path, h)), "")
        return abi.PH_TOOLCHAIN + path[len(home) :] if home else path

    def searched(self, path: str, *, has_headers: bool = True) -> str:
        """Return `path`, where a compile looks for something, as a word of a recipe: in the bundle
        if it holds headers that are there, in the toolchain's home, or in the system's
        directories. The result is empty for any other path. Nothing was found there, and after the
        build, another user may be able to put something there."""
        if has_headers and path in self.held and not self.is_foreign(path):
            return f"{abi.PH_ROOT}/{self.in_bundle(path)}"
        words = (self.word(path), self.word(os.path.realpath(path)))
        return next((w for w in words if not w.startswith("/")), words[0] if of_system(words[0]) else "")


def inside(path: str, directory: str) -> bool:
    """Return whether `path` is `directory` or lies below it (as text)."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def of_system(path: str) -> bool:
    return any(inside(path, directory) for directory in abi.SYSTEM_DIRECTORIES.split())


def with_parents(files: Iterable[str], prefix: str) -> frozenset[str]:
    """Return `files` and all directories that hold them, down from `prefix`."""
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
    dirs = {os.path.dirname(f) for f in files}
    return os.path.commonpath(dirs) if dirs else "/"


def header_directories(
    words: Sequence[str], cwd: str, toolchain: Toolchain, variables: Iterable[tuple[str, str]]
) -> set[str]:
    """Return where a compile looks for headers, by its options `words` and its `variables`."""
    variables = tuple(variables)
    found = {
        absolute(value, cwd) for name, value in variables if name in toolchain.header_env for value in value.split(":")
    }
    for item in toolchain.table.split(words):
        if item.name in toolchain.path_options:
            found.update(_named_path(item, cwd))
        else:
            found.update(os.path.normpath(path) for word in item.words for path in HEADER_PATH.findall(word))
    given = (word for _, value in variables for word in value.split())
    found.update(os.path.normpath(path) for word in given for path in HEADER_PATH.findall(word))
    return found


def _named_path(item: CommandItem, cwd: str) -> list[str]:
    """Return the path that an option names, or nothing if the compiler searches for the file: a
    header that is read before the source, and is not in the working directory."""
    path = absolute(item.value or "", cwd)
    return [path] if item.role is not Role.INCLUDE_FILE or os.path.isfile(path) else []


def map_paths(words: Sequence[str], cwd: str, toolchain: Toolchain, paths: BundlePaths) -> list[str]:
    """Return the options of a compile, with the values of path options mapped into the bundle.
    Directories to search that `BundlePaths.searched` does not know are left out."""
    out: list[str] = []
    for item in toolchain.table.split(words):
        is_library = item.role is Role.LIBRARY_DIR
        if item.value and (is_library or item.name in toolchain.path_options):
            named = _named_path(item, cwd)
            word = paths.searched(named[0], has_headers=not is_library) if named else ""
            if not named:
                out += item.words
            elif word or item.role not in _SEARCHES:
                out += item.with_value(word or named[0])
        else:
            mapped = [paths.word(w) if w.startswith("/") else _map_inside(w, paths) for w in item.words]
            if all(mapped):
                out += mapped
    return out


def _map_inside(words: str, paths: BundlePaths) -> str:
    """Map the directories that are searched by words that are meant for another program. The result
    is empty if `words` name no others and nothing else."""

    def mapped(found: re.Match[str], *, has_headers: bool) -> str:
        parts = [paths.searched(os.path.normpath(p), has_headers=has_headers) for p in found[1].split(":")]
        return found[0].replace(found[1], ":".join(parts)) if all(parts) else ""

    out = HEADER_PATH.sub(lambda m: mapped(m, has_headers=True), words)
    out = _LIBRARY_PATH.sub(lambda m: mapped(m, has_headers=False), out)
    if out == words:
        return words
    out = re.sub(r"([,\s])[,\s]+", r"\1", out).strip(", ")
    return "" if out in ("-Wp", "-Wl") or out.endswith("=") else out


def map_env(
    variables: Iterable[tuple[str, str]], cwd: str, toolchain: Toolchain, paths: BundlePaths
) -> Iterator[tuple[str, str]]:
    """Yield variables of a compile, with the directories mapped as `map_paths` maps options."""
    for name, value in variables:
        if value and name in (*toolchain.header_env, *toolchain.search_env):
            # An empty directory means the working directory, which at run time is another one.
            given = (absolute(directory, cwd) for directory in value.split(":"))
            mapped = [paths.searched(path, has_headers=name in toolchain.header_env) for path in given]
            if any(mapped):
                yield name, ":".join(filter(None, mapped))
        elif value.startswith("/"):
            yield name, paths.searched(value, has_headers=False) or paths.word(value)
        else:
            # A path in a variable has no blanks: a word of a command may have some.
            yield name, _map_inside(value.replace(" ", "\n"), paths).replace("\n", " ")


def path_outside(recipe: Recipe, toolchain: Toolchain) -> str:
    """Return a path in `recipe` that is in neither the bundle, nor the toolchain's home, nor the
    system's directories, or an empty string. The compilers themselves do not count."""
    compilers = recipe.compile[: recipe.compile.index(abi.PH_ARCHS)]
    items = (i for words in (recipe.compile, recipe.link) for i in toolchain.table.split(words))
    others = (i for i in items if i.role is not Role.HOST_COMPILER and not _TEXT.match(i.words[0]))
    given = [w for i in others for w in (*i.words, i.value or "") if w not in compilers]
    given += [value for name, value in recipe.env if name != abi.CCBIN_VARIABLE]
    found = (path for word in given for path in _ABSOLUTE.findall(_TEXT_INSIDE.sub("", word)))
    return next((path for path in found if not of_system(path)), "")


def absolute(path: str, cwd: str) -> str:
    return os.path.normpath(os.path.join(cwd, path))


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
    soname: str,
    paths: BundlePaths,
    runtime: str = "",
) -> Recipe:
    """Return how `blob` and all others with its base words are compiled at run time.

    `soname` is that of the library, or empty if the link makes an executable. A blob names its
    library as an auxiliary filter, so the loader resolves each of the blob's references there
    first, before the blob's own definitions. So each function has one address and each variable
    exists once, as in a library that was linked ahead of time. For an executable this needs no
    word: the loader looks there before all else.

    `runtime` is the place in the bundle of an object by which the blob reaches a GPU runtime within
    the library, or the library's wrappers of one. It is empty if there is no such object.
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
    if soname:
        raw_link = (*raw_link, "-Xlinker", f"--auxiliary={abi.PH_SONAME}")
    else:
        raw_link = tuple(w for w in raw_link if abi.PH_LIBRARY not in w)
    link_words = [*compiler, *map_paths(raw_link[blob.call.prefix :], blob.call.cwd, toolchain, paths)]
    if runtime:
        link_words.insert(link_words.index(abi.PH_INPUT) + 1, f"{abi.PH_ROOT}/{runtime}")
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

    `library` is the soname and the machine of the library (nodes of two machines may share a cache)
    and the private names of the blob's functions. The library's `name` does not count: programs
    share entries.
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
            data = apart.kept(with_relative_includes(Path(source).read_bytes(), place, where), source)
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
    """Prevents `#pragma once` from merging files in a bundle that are distinct in the build.

    GCC treats two files with `#pragma once` as one if their sizes, contents and modification times
    (in seconds) are equal. All files of a bundle have one time, so their sizes must differ if their
    relative includes resolve differently.
    """

    def __init__(self) -> None:
        self._times: dict[str, dict[int, int]] = {}

    def kept(self, data: bytes, source: str) -> bytes:
        """Return the contents for the bundle, with an empty line for each earlier distinct time."""
        if not _ONCE.search(data) or not depends_on_place(data):
            return data
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
