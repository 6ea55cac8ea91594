"""Runs `lazyck build quick`: links again what was kept, with a new runtime. Delivers libraries that
a build found up to date, since none of their links ran."""

import filecmp
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from lazyck import abi
from lazyck.errors import FormatError
from lazyck.postbuild import state, summary
from lazyck.postbuild.build_options import BuildOptions
from lazyck.postbuild.link import relink
from lazyck.postbuild.objects import elf
from lazyck.runtime.builder import source_digest
from lazyck.settings.environment import runtime_source


def quick(
    tmp: Path, install_dir: str, env: Mapping[str, str], say: Callable[[str], None]
) -> list[tuple[str, list[Path]]]:
    """Bring every library of `tmp` up to date with the runtime's sources. `say` gets each link
    command. Return where each was delivered to, if it was not up to date. Raises `LazyckError`."""
    libraries = state.library_dirs(tmp)
    if not libraries:
        raise FormatError(f"{tmp}: holds no lazy library", "give the --tmp-dir of a `lazyck build full` that made one")
    return [(state.load(directory).library, one(directory, install_dir, env, say)) for directory in libraries]


def one(directory: Path, install_dir: str, env: Mapping[str, str], say: Callable[[str], None]) -> list[Path]:
    """Bring one library up to date. Return where it was delivered to."""
    st = state.load(directory)
    if install_dir:
        st = replace(st, installed=state.relative(install_dir, directory))
    if not st.runtime:  # every blob was eager: there is no runtime in it
        return []
    source = runtime_source()
    moved, digest = relink.is_moved(st, directory), source_digest(source)
    if moved:
        relink.bake_root(st, directory)
    if moved or st.runtime != digest or not (directory / st.file_name).is_file():
        objects = relink.runtime_objects(directory, st.runtime_compiler, source, env)
        st = replace(st, runtime=digest)
        say(shlex.join(relink.command(st, directory, objects)))
        relink.relink(st, directory, objects, env)
        state.save(st, directory)
    elif relink.is_delivered(st, directory):
        return []
    state.save(st, directory)
    return relink.deliver(st, directory)


@dataclass(frozen=True)
class Unchanged:
    """Holds the libraries of earlier builds that are still in their places."""

    libraries: tuple[summary.LinkSummary, ...] = ()
    replaced: tuple[Path, ...] = ()  # those that were replaced by something built without lazyck


def deliver_unchanged(options: BuildOptions, env: Mapping[str, str]) -> Unchanged:
    """Deliver the libraries of the tmp dir that the build which has just ended did not link. Those
    that are still lazy are put into the install dir, as their links would have done. If the tree
    was moved, they are linked again with the bundle's new place. For libraries that the build did
    link, the symbolic links that it has made since are installed too. Raises `LazyckError`."""
    kept: list[summary.LinkSummary] = []
    replaced: list[Path] = []
    for directory in state.library_dirs(options.tmp):
        try:
            known = state.load(directory)
        except FormatError:
            continue  # of another lazyck's build
        output = relink.output_path(known, directory)
        if (directory / summary.NAME).exists():
            relink.carry_bundle(known, directory)
            relink.install_links(known, directory)
            continue
        try:
            said = summary.load(directory / summary.EARLIER)
        except FormatError:
            continue
        if not output.is_file():
            continue  # cleaned away
        if not is_as_linked(output, directory / known.file_name):
            if known.runtime and not is_lazy(output):  # else one of another tmp dir, or an eager one that was stripped
                replaced.append(output)
            continue
        if relink.is_moved(known, directory):
            one(directory, "", env, lambda _: None)
            known = state.load(directory)
        relink.carry_bundle(known, directory)
        installed = ""
        if options.install_dir:
            known = replace(known, installed=state.relative(options.install_dir, directory))
            installed = str(relink.installed_path(known, directory))
            if not relink.is_installed(known, directory):
                relink.install(known, directory)
            relink.install_links(known, directory)
            state.save(known, directory)
        kept.append(replace(said, output=str(output), installed=installed))
    return Unchanged(tuple(kept), tuple(replaced))


def is_lazy(output: Path) -> bool:
    return _manifest_in(output) is not None


def is_as_linked(output: Path, linked: Path) -> bool:
    """Return whether `output`, in the build, is what lazyck linked. The build may have stripped it
    since, or changed its rpath, so the manifest decides. Without one, it must be the very file."""
    if not linked.is_file():
        return False
    manifest = _manifest_in(linked)
    return filecmp.cmp(output, linked, shallow=False) if manifest is None else _manifest_in(output) == manifest


def _manifest_in(file: Path) -> bytes | None:
    return elf.read_section(file, abi.MANIFEST_SECTION) if elf.kind(file) in ("shared", "executable") else None
