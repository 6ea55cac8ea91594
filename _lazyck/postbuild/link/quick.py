"""Runs `lazyck build quick`: links again what was kept, with a new runtime."""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from _lazyck.config import runtime_source
from _lazyck.errors import FormatError
from _lazyck.postbuild import state
from _lazyck.postbuild.link import relink
from _lazyck.runtime.objects import source_digest


@dataclass(frozen=True)
class Relinked:
    """Describes one library after `quick`: where it was delivered to, and whether anything had to
    be done."""

    library: str
    delivered: tuple[Path, ...]
    linked: bool


def quick(tmp: Path, install_dir: str, env: Mapping[str, str], say: Callable[[str], None]) -> list[Relinked]:
    """Bring every library of `tmp` up to date with the runtime's sources. `say` is told each link
    command.

    Raises `LazyckError`.
    """
    source = runtime_source()
    digest = source_digest(source)
    libraries = state.library_dirs(tmp)
    if not libraries:
        raise FormatError(f"{tmp}: holds no lazy library", "give the --tmp-dir of a `lazyck build full` that made one")
    return [one(directory, install_dir, source, digest, env, say) for directory in libraries]


def one(
    directory: Path, install_dir: str, source: Path, digest: str, env: Mapping[str, str], say: Callable[[str], None]
) -> Relinked:
    """Bring one library up to date."""
    st = state.load(directory)
    if install_dir:
        st = replace(st, installed=state.relative(install_dir, directory))
    if not st.runtime:  # every blob was eager: there is no runtime in it
        return Relinked(st.library, (), False)
    moved = relink.is_moved(st, directory)
    if moved:
        relink.bake_root(st, directory)
    if moved or st.runtime != digest or not (directory / st.file_name).is_file():
        objects = relink.runtime_objects(directory, st.runtime_compiler, source, env)
        st = replace(st, runtime=digest)
        say(shlex.join(relink.command(st, directory, objects)))
        relink.relink(st, directory, objects, directory, env)
        state.save(st, directory)
    elif relink.is_delivered(st, directory):
        return Relinked(st.library, (), False)
    state.save(st, directory)
    return Relinked(st.library, tuple(relink.deliver(st, directory)), True)
