"""Maps the paths of a build's compiles to the words of recipes. A path in a recipe is in the
bundle, in the toolchain's home, or in the system's directories."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from lazyck import abi
from lazyck.abi import Role
from lazyck.files import absolute, physical
from lazyck.formats.manifest import Recipe
from lazyck.machines import MACHINES
from lazyck.toolchains.base import Toolchain
from lazyck.toolchains.options import CommandItem

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
        """Return where `path` goes, relative to the bundle's tree: by no link, so that `..` leads
        where it leads in the build."""
        path = physical(path)
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
        place = os.path.realpath(path) if os.path.isdir(path) else physical(path)
        if has_headers and place in self.held and not self.is_foreign(path):
            return f"{abi.PH_ROOT}/{self.in_bundle(place)}"
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
            found.update(absolute(path, cwd) for word in item.words for path in HEADER_PATH.findall(word))
    given = (word for _, value in variables for word in value.split())
    found.update(absolute(path, cwd) for word in given for path in HEADER_PATH.findall(word))
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
        parts = [paths.searched(absolute(p, "/"), has_headers=has_headers) for p in found[1].split(":")]
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
            given = [absolute(directory, cwd) for directory in value.split(":")]
            mapped = [paths.searched(path, has_headers=name in toolchain.header_env) for path in given]
            if name == "COMPILER_PATH":  # which may hold programs: `path_outside` finds that directory
                mapped = [w or (path if os.path.isdir(path) else "") for w, path in zip(mapped, given, strict=True)]
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
