"""Delivers libraries that a build found up to date, since none of their links ran."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from _lazyck import abi
from _lazyck.config import runtime_source
from _lazyck.errors import FormatError
from _lazyck.files import digest
from _lazyck.postbuild import state, summary
from _lazyck.postbuild.link import quick, relink
from _lazyck.postbuild.link.cmake_install import carry_bundle
from _lazyck.postbuild.objects import elf
from _lazyck.runtime.objects import source_digest
from _lazyck.settings import BuildSettings


@dataclass(frozen=True)
class Unchanged:
    """Holds the libraries of earlier builds that are still in their places. `replaced` are the
    paths of those that were replaced by something built without lazyck."""

    libraries: tuple[summary.LinkSummary, ...] = ()
    replaced: tuple[Path, ...] = ()


def deliver_unchanged(settings: BuildSettings, env: Mapping[str, str]) -> Unchanged:
    """Deliver the libraries of the tmp dir that the build which has just ended did not link. Those
    that are still lazy are put into the install dir, as their links would have done. If the tree
    was moved, they are linked again with the bundle's new place. For libraries that the build did
    link, the symbolic links that it has made since are installed too. Raises `LazyckError`."""
    kept: list[summary.LinkSummary] = []
    replaced: list[Path] = []
    for directory in state.library_dirs(settings.tmp):
        try:
            known = state.load(directory)
        except FormatError:
            continue  # of another lazyck's build
        output = relink.output_path(known, directory)
        if (directory / summary.NAME).exists():
            carry_bundle(known, directory, output)
            if (installed := relink.installed_path(known, directory)) is not None:
                relink.install_links(known, directory, installed)
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
            source = runtime_source()
            quick.one(directory, "", source, source_digest(source), env, lambda _: None)
            known = state.load(directory)
        carry_bundle(known, directory, output)
        installed = None
        if settings.install_dir:
            known = replace(known, installed=state.relative(settings.install_dir, directory))
            installed = relink.installed_path(known, directory)
        if installed is not None:
            if not relink.is_installed(known, directory):
                relink.install(known, directory, installed)
            relink.install_links(known, directory, installed)
            state.save(known, directory)
        kept.append(replace(said, output=str(output), installed=str(installed or "")))
    return Unchanged(tuple(kept), tuple(replaced))


def is_lazy(output: Path) -> bool:
    """Return whether `output` is a lazy library or program."""
    return elf.kind(output) in ("shared", "executable") and elf.read_section(output, abi.MANIFEST_SECTION) is not None


def is_as_linked(output: Path, linked: Path) -> bool:
    """Return whether `output`, in the build, is what lazyck linked. The build may have stripped it
    since, or changed its rpath, so the manifest decides. A library whose blobs are all eager has no
    manifest, and must be the very file."""
    if not linked.is_file() or elf.kind(output) not in ("shared", "executable"):
        return False
    manifest = elf.read_section(linked, abi.MANIFEST_SECTION)
    if manifest is not None:
        return elf.read_section(output, abi.MANIFEST_SECTION) == manifest
    return digest(output.read_bytes()) == digest(linked.read_bytes())
