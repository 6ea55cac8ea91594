"""Runs the last step, which `build full` and `build quick` share: links runtime objects and kept
objects, and copies the library to the place that the build asked for and to the install dir."""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from lazyck import abi, proc
from lazyck.errors import BuildError, FormatError, LinkError
from lazyck.files import encode, own_folder, write_atomic, write_if_different
from lazyck.formats import manifest
from lazyck.postbuild.bundle import deploy
from lazyck.postbuild.link import outputs
from lazyck.postbuild.link_rules import unwrapped
from lazyck.postbuild.objects import elf
from lazyck.postbuild.objects.embedded import read_manifest
from lazyck.postbuild.state import HERE, LinkState, library_dirs, load, resolve
from lazyck.runtime.builder import OBJECTS, compile_objects
from lazyck.settings.environment import tools_dir
from lazyck.toolchains import linker_options
from lazyck.toolchains.options import CommandItem

RUNTIME = "\x01X"  # a word of a link command that stands for all runtime objects
RESPONSE_FILE_ABOVE = 96 * 1024  # bytes of argv: a single exec may carry 128 KiB in one word and 2 MiB in all
_COPY = re.compile(re.escape(f"{HERE}/objects/") + "(?!shown-)[^,]+")  # a true copy, not an edited one
# This is the directory that setuptools packs into a wheel:
# `build/lib.linux-x86_64-cpython-311/...`.
_WHEEL_TREE = re.compile(r"lib\.linux-[\w.-]+")


def runtime_objects(directory: Path, compiler: Sequence[str], source: Path, env: Mapping[str, str]) -> list[Path]:
    """Return the runtime's objects, each compiled once per user, or once per tmp dir if there is no
    place for them in the user's directories. `directory` is one library's."""
    return compile_objects(own_folder(tools_dir(env), OBJECTS) or directory.parent.parent / "runtime", compiler, source)


def assemble(directory: Path, name: str, text: str, compiler: Sequence[str]) -> None:
    """Make `name`.o in `directory`. stubs.o holds the stubs, the slots and the manifest."""
    write_atomic(directory / f"{name}.S", text.encode("utf-8", "surrogateescape"))
    argv = [*compiler, "-c", "-x", "assembler", f"{name}.S", "-o", f"{name}.o"]
    proc.check(f"assembling {name}.S", argv, cwd=directory)


def is_moved(state: LinkState, directory: Path) -> bool:
    """Return whether the tmp dir was moved, and the library names the bundle's old place."""
    linked = directory / state.file_name
    if not state.runtime or state.keeps_root or state.beside or not linked.is_file():
        return False
    data = elf.read_section(linked, abi.MANIFEST_SECTION)
    return data is not None and manifest.decode_root(data, str(linked)) != str(directory / "bundle")


def bake_root(state: LinkState, directory: Path) -> None:
    """Make stubs.o and the bundle's manifest again, with the bundle's present place."""
    kept = directory / "manifest"
    data = manifest.encode(replace(manifest.decode(kept.read_bytes(), str(kept)), root=str(directory / "bundle")))
    for path in (kept, directory / "bundle" / state.library / "manifest"):
        write_atomic(path, data)
    assemble(directory, "stubs", (directory / "stubs.S").read_text("utf-8", "surrogateescape"), state.runtime_compiler)


def command(state: LinkState, directory: Path, objects: Sequence[Path]) -> list[str]:
    words: list[str] = []
    for word in state.words:
        words += [str(o) for o in objects] if word == RUNTIME else [resolve(word, directory)]
    return words


def without_claims(objects: Sequence[Path], state: LinkState, directory: Path) -> list[Path]:
    """Return the runtime's `objects`, or copies for a link that wraps functions which they call,
    such as malloc, or takes an archive with such functions: what the project wraps are its own
    calls, and what it takes of archives is what it needs itself."""
    names = unwrapped(state.words)
    if not names and not state.not_for_runtime:
        return list(objects)
    folder = directory / "adapted"
    folder.mkdir(exist_ok=True)
    for path in objects:
        adapted = elf.open_image(path).with_references(names, frozenset(state.not_for_runtime))
        write_if_different(folder / path.name, adapted)
    return [folder / path.name for path in objects]


def relink(
    state: LinkState,
    directory: Path,
    objects: Sequence[Path],
    env: Mapping[str, str],
    originals: Mapping[str, str] | None = None,
    more: Sequence[CommandItem] = (),
) -> proc.Result:
    """Run the link command of `state` where the project ran it, if that is still there, into the
    library's directory. Return the result.

    Inside the project's build, `originals` gives the project's names of kept copies, so that the
    linker says what it would say without lazyck. By the options `more`, it then also writes the
    other files that the project asks for. Raises `LinkError` there, else `CommandError`.
    """
    words = [*state.words, *(part for item in more for word in item.words for part in ("-Xlinker", word))]
    rules = next(iter(linker_options.values(more, "dependency-file")), "")
    if originals:
        words = [_COPY.sub(lambda m: originals.get(m[0], m[0]), w) for w in words]
    state = replace(state, words=tuple(words))
    argv = command(state, directory, without_claims(objects, state, directory))
    if sum(len(w) + 1 for w in argv) > RESPONSE_FILE_ABOVE:
        response = directory / "link.rsp"
        quoted = (w.replace("\\", "\\\\").replace('"', '\\"') for w in argv[1:])
        write_atomic(response, os.fsencode("\n".join(f'"{w}"' for w in quoted)))
        argv = [argv[0], *state.response[:-1], f"{state.response[-1]}{response}"]
    what = f"link of {state.file_name}"
    cwd = Path(os.path.normpath(directory / state.cwd))
    cwd = cwd if cwd.is_dir() else directory
    link_env = proc.anchored({**env, **dict(state.env)}, cwd)
    if originals is None:
        return proc.check(what, argv, cwd=cwd, env=link_env)
    result = proc.run(argv, cwd=cwd, env=link_env)
    if result.status != 0 or not (directory / state.file_name).is_file():
        raise failed(what, argv, result, directory)
    if rules and (cwd / rules).is_file():
        names = {resolve(word, directory): name for word, name in originals.items()}
        output = os.path.relpath(output_path(state, directory), cwd)
        own = [str(directory), *map(str, objects)]
        outputs.adapt_rules(cwd / rules, directory / state.file_name, output, names, own)
    return result


def failed(what: str, argv: Sequence[str], result: proc.Result, directory: Path) -> LinkError:
    """Return the error that a command of the project's link has ended so, and repeat what it
    said."""
    shown = directory / "link.failed"
    write_atomic(shown, os.fsencode(shlex.join(argv) + "\n"))
    repeat(result)
    return LinkError(what, result.status, str(shown))


def repeat(result: proc.Result) -> None:
    """Repeat the linker's stdout and stderr on the build's."""
    for text, stream in ((result.stdout, sys.stdout), (result.stderr, sys.stderr)):
        stream.flush()
        stream.buffer.write(text.encode("utf-8", "replace"))
        stream.buffer.flush()


def output_path(state: LinkState, directory: Path) -> Path:
    return Path(os.path.normpath(directory / state.output))


def installed_path(state: LinkState, directory: Path) -> Path | None:
    """Return where the install dir has the library, or None if there is no install dir."""
    return Path(os.path.normpath(directory / state.installed)) / state.file_name if state.installed else None


def is_delivered(state: LinkState, directory: Path) -> bool:
    """Return whether the linked library is already in all its places, unchanged."""
    output, installed = output_path(state, directory), installed_path(state, directory)
    is_built = is_copy(output, directory / state.file_name) if output.parent.is_dir() else installed is not None
    return is_built and is_installed(state, directory)


def is_installed(state: LinkState, directory: Path) -> bool:
    """Return whether the install dir, if there is one, has the linked library and a bundle."""
    installed = installed_path(state, directory)
    if installed is None:
        return True
    has_bundle = (installed.parent / "lazyck" / state.library).is_dir()
    return is_copy(installed, directory / state.file_name) and (has_bundle or not state.runtime)


def is_copy(copy: Path, linked: Path) -> bool:
    if not copy.is_file() or copy.stat().st_size != linked.stat().st_size:
        return False
    # `copy2` keeps the time, so a copy of an older link has an older time.
    return copy.stat().st_mtime_ns >= linked.stat().st_mtime_ns


def deliver(state: LinkState, directory: Path) -> list[Path]:
    """Copy the linked library to where it belongs: the build's output path and the install dir.

    If the output path is in a tree that setuptools packs into a wheel, the bundle is copied there
    too, so that the wheel has it. Raises as `check_places`.
    """
    delivered = []
    check_places(state, directory)
    output, bundle = output_path(state, directory), directory / "bundle" / state.library
    if output.parent.is_dir():
        packed = bundle.is_dir() and (state.beside or any(_WHEEL_TREE.fullmatch(p) for p in output.parts))
        if packed:
            deploy(bundle, output.parent / "lazyck" / state.library)
        _replace(directory / state.file_name, output)
        if (more := directory / f"{state.file_name}.exe").is_file():  # by `--force-exe-suffix`
            _replace(more, output.with_name(more.name))
        carry_bundle(state, directory)
        delivered.append(output)
    return delivered + install(state, directory)


def install(state: LinkState, directory: Path) -> list[Path]:
    """Copy the linked library, with bundle and links, to the install dir, if any. Return where.

    The copy looks for its bundle beside itself, because the baked path of the build's bundle is
    taken out of it. If the user gave it a root, the copy keeps that. Raises as `check_places`.
    """
    check_places(state, directory)
    installed = installed_path(state, directory)
    if installed is None:
        return []
    installed.parent.mkdir(parents=True, exist_ok=True)
    bundle = directory / "bundle" / state.library
    if bundle.is_dir():
        deploy(bundle, installed.parent / "lazyck" / state.library)
    _replace(directory / state.file_name, installed, forget_root=not state.keeps_root)
    install_links(state, directory)
    return [installed]


def install_links(state: LinkState, directory: Path) -> None:
    """Give the installed library, if there is one, the symbolic links that the build has beside it
    (`libx.so` to `libx.so.3.1`: builds make theirs only after the link), and that of its soname."""
    output, installed = output_path(state, directory), installed_path(state, directory)
    if installed is None:
        return
    links = {}
    soname = elf.read_shared(directory / state.file_name).soname
    if soname and soname != state.file_name:
        links[soname] = state.file_name
    for path in output.parent.iterdir() if output.is_file() else ():
        if path.is_symlink() and path.name != state.file_name and os.path.realpath(path) == os.path.realpath(output):
            target = os.readlink(path)
            links[path.name] = state.file_name if "/" in target else target
    for name, target in links.items():
        place = installed.parent / name
        if place.is_dir() or (place.is_symlink() and os.readlink(place) == target):
            continue
        temporary = place.with_name(f".{name}.lazyck")
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(target)
        temporary.replace(place)


def check_places(state: LinkState, directory: Path) -> None:
    """Raise `BuildError` if `deliver` could not do its work: there is no place to deliver to, or
    the install dir has another library of that name, as for equal module names in two packages."""
    output, installed = output_path(state, directory), installed_path(state, directory)
    if installed is None and not output.parent.is_dir():
        raise BuildError(
            f"{output.parent}: this directory, into which the build linked {state.file_name}, does not exist",
            "give --install-dir DIR, or move the tmp dir together with the build directory",
        )
    for other in library_dirs(directory.parent.parent) if installed else []:
        try:
            known = load(other)
        except FormatError:
            continue  # of another lazyck's build
        if other == directory or known.library != state.library or installed_path(known, other) != installed:
            continue
        another = output_path(known, other)
        if another.exists() or not output.exists():  # else an earlier build's
            raise BuildError(
                f"{installed}: two libraries of this build would be installed there, {another} and {output}",
                "build without --install-dir; each library can be shipped from where the build put it, with a copy of "
                f"{directory / 'bundle' / state.library} as lazyck/{state.library} beside it",
            )


def _replace(source: Path, target: Path, *, forget_root: bool = False) -> None:
    # A running process may have the old file mapped: put a new one in its place.
    temporary = target.with_name(f".{target.name}.lazyck")
    shutil.copy2(source, temporary)
    if forget_root:
        at = elf.section_offset(temporary, abi.MANIFEST_SECTION)
        if at is not None:
            times = temporary.stat()
            with temporary.open("r+b") as f:
                f.seek(at + manifest.ROOT_AT)
                f.write(bytes(4))
            os.utime(temporary, ns=(times.st_atime_ns, times.st_mtime_ns))
    temporary.replace(target)


# `cmake --install`, `ninja install` and CPack all run the build tree's `cmake_install.cmake`. A
# line at its end includes this script, which looks at what was installed.
_SCRIPT = """\
# Made by lazyck: takes the bundle of {library} to where {file} has been installed.
set(lazyck_library [==[{library}]==])
foreach(lazyck_file IN LISTS CMAKE_INSTALL_MANIFEST_FILES)
  get_filename_component(lazyck_name "${{lazyck_file}}" NAME)
  if(NOT lazyck_name STREQUAL [==[{file}]==] OR IS_SYMLINK "$ENV{{DESTDIR}}${{lazyck_file}}")
    continue()
  endif()
  # one that was built since, without lazyck or in another tmp dir, has not this digest of a manifest
  file(STRINGS "$ENV{{DESTDIR}}${{lazyck_file}}" lazyck_found LIMIT_COUNT 1 REGEX "{digest}")
  if(lazyck_found)
    get_filename_component(lazyck_place "${{lazyck_file}}" DIRECTORY)
    file(REMOVE_RECURSE "$ENV{{DESTDIR}}${{lazyck_place}}/lazyck/${{lazyck_library}}")
    file(INSTALL [==[{bundle}]==] DESTINATION "${{lazyck_place}}/lazyck")
  endif()
endforeach()
"""


def carry_bundle(state: LinkState, directory: Path) -> None:
    """Have the install step of the CMake build tree around the library, if any, take the bundle
    along, unless --root says where it will be, or the project's own CMake code installs it. Each
    build makes sure of this, since CMake may rewrite the file whenever it configures."""
    files = ("CMakeCache.txt", "cmake_install.cmake")
    above = output_path(state, directory).parents
    tree = next((d for d in above if all((d / file).is_file() for file in files)), None)
    bundle = directory / "bundle" / state.library
    if tree is None or state.keeps_root or state.beside or not state.runtime:
        return
    deployed = directory / "deployed" / state.library
    if not deployed.is_dir():
        deploy(bundle, deployed)
    digest = read_manifest(bundle / "manifest").digest
    text = _SCRIPT.format(library=state.library, file=state.file_name, digest=digest, bundle=deployed)
    script = directory / "install.cmake"
    write_if_different(script, encode(text))
    line = encode(f"include([==[{script}]==] OPTIONAL) # lazyck: the bundle of {state.library}\n")
    installs = tree / "cmake_install.cmake"
    if line not in installs.read_bytes():
        with installs.open("ab") as f:
            f.write(line)
