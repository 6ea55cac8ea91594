"""Makes the words of the final link: the project's own command without its deferred objects, with
stubs and runtime. Every input that `quick` will need again is kept as a copy."""

import hashlib
import os
import shutil
from collections.abc import Sequence

from _lazyck.abi import Role
from _lazyck.command import LinkCommand
from _lazyck.files import encode
from _lazyck.postbuild import state
from _lazyck.postbuild.job import LinkJob
from _lazyck.postbuild.link.reach import Demands
from _lazyck.postbuild.link.relink import RUNTIME
from _lazyck.postbuild.objects import elf
from _lazyck.postbuild.objects.inputs import LinkInputs
from _lazyck.postbuild.objects.reveal import reveal
from _lazyck.postbuild.private_names import private_name
from _lazyck.toolchains import lookup
from _lazyck.toolchains.options import Item


def link_words(
    job: LinkJob, eager_objects: Sequence[str], soname: str, demands: Demands | None, wrapped: Sequence[str] = ()
) -> tuple[list[str], dict[str, str]]:
    """Return the command that links the library into the job's directory, with stubs, and with the
    runtime and what lazy blobs demand if there are any. Return also the project's names of the
    inputs of which the command names kept copies. Calls of `wrapped` go through wrappers.

    `eager_objects` are file names in `eager` of that directory. Copies the objects and archives
    into `objects`.
    """
    link, inputs, directory = job.link, job.inputs, job.directory
    shutil.rmtree(directory / "objects", ignore_errors=True)
    keeper = Keeper(job, demands, soname)
    output = f"{state.HERE}/{os.path.basename(link.output)}"
    mine = [f"{state.HERE}/stubs.o", *([RUNTIME] if demands else [])]
    mine += [f"{state.HERE}/deferred.o"] if inputs.stays else []
    mine += [keeper.copy(str(directory / "eager" / name)) for name in eager_objects]
    words = [job.places.real(w) for w in link.call.argv[: link.call.prefix]]
    for i, item in enumerate(inputs.items):
        if i == inputs.first:  # also before an archive, since eager blobs may need other members of it
            words += mine
        if i in inputs.deferred or item.role is Role.OUTPUT:
            continue
        words += [keeper.copy(item.words[0])] if i in inputs.kept else keeper.item(item)
    words += ["-o", output]
    if demands is not None:
        words += _tail(link, inputs, soname) + _for_blobs(inputs, keeper, demands)
    for name in wrapped:
        words += ["-Xlinker", f"--wrap={name}"]
    return words, keeper.originals


def _for_blobs(inputs: LinkInputs, keeper: "Keeper", demands: Demands) -> list[str]:
    """Return words for archives' members and shared libraries that only blobs need."""
    words: list[str] = []
    for symbol in sorted(demands.pulled):
        words += ["-Xlinker", "-u", "-Xlinker", symbol]
    kept: list[str] = []
    for index in demands.kept:
        item = inputs.items[index]
        if item.role is Role.LINKER:
            paths = [path for i, path in inputs.libraries if i == index]
            kept += [word for path in paths for word in ("-Xlinker", keeper.library(path))]
        else:
            kept += keeper.item(item)
    if any(item.role is Role.LIBRARY and item.value == "m" for item in inputs.items):
        kept.append("-lm")  # every machine has it, and blobs in C get it only from here
    if kept:
        linker = ["-Xlinker", "--push-state", "-Xlinker", "--no-as-needed"]
        words += [*linker, *kept, "-Xlinker", "--pop-state"]
    return words


def _tail(link: LinkCommand, inputs: LinkInputs, soname: str) -> list[str]:
    # `-Xlinker` is the one spelling that all drivers know.
    words = []
    if inputs.shared and not inputs.soname:
        words += ["-Xlinker", "-soname", "-Xlinker", soname]
    if not inputs.shared:
        words += ["-Xlinker", "--export-dynamic"]
    if lookup.is_c_driver(link.call.tool):
        words.append("-lstdc++")
    return [*words, "-ldl", "-lpthread"]


class Keeper:
    """Makes words independent of the build: inputs become copies, other paths absolute, shim homes
    real ones.

    Copies for a lazy library of that `soname` export what its blobs demand. `demands` is None if it
    is not lazy.
    """

    def __init__(self, job: LinkJob, demands: Demands | None = None, soname: str = "") -> None:
        self._link, self._places = job.link, job.places
        self._revealed = demands.revealed if demands and demands.has_blobs else None
        self._aliases = {s: private_name(s, soname) for s in demands.renamed} if demands else {}
        self.originals: dict[str, str] = {}  # the word of a copy → the name that the project's command has for it
        self._objects = job.directory / "objects"
        self._objects.mkdir(parents=True, exist_ok=True)

    def copy(self, name: str) -> str:
        """Return the word that names a kept copy of the file `name`."""
        path = self._link.call.path(name)
        tag = hashlib.sha256(encode(path)).hexdigest()[:8]
        target = self._objects / f"{tag}-{os.path.basename(path)}"
        if not target.exists() and elf.is_thin(path):
            elf.write_archive(target, elf.members(path))
        elif not target.exists():
            shutil.copy2(path, target)
        shown = target.with_name(f"shown-{target.name}")
        is_shown = self._revealed is not None and reveal(target, shown, self._revealed, self._aliases)
        word = f"{state.HERE}/objects/{(shown if is_shown else target).name}"
        self.originals[word] = name
        return word

    def item(self, item: Item) -> list[str]:
        """Return the words of an option, or of an input that is neither object nor archive."""
        if not item.name:
            return [self._library_or_script(item.words[0])]
        if item.value is None:
            return list(item.words)
        if item.role is Role.LINKER:
            value = ",".join(self.linker_part(part) for part in item.value.split(","))
        elif item.role is Role.LIBRARY_DIR:
            value = self._places.real(self._link.call.path(item.value))
        elif item.name in ("-T", "--script"):
            value = self.linker_part(item.value)
        else:
            value = self._places.real(item.value) if item.value.startswith("/") else item.value
        if len(item.words) == 2:
            return [item.words[0], value]
        return [item.words[0][: len(item.words[0]) - len(item.value)] + value]

    def library(self, path: str) -> str:
        """Return the word that names the shared library at `path`."""
        return self._places.real(path)

    def _library_or_script(self, word: str) -> str:
        path = self._link.call.path(word)
        return self._places.real(path) if os.path.exists(path) else word

    def linker_part(self, part: str) -> str:
        """Return one of the parts of a word for the linker, independent of the build."""
        lead, equals, value = part.partition("=")
        if not equals:
            lead, value = "", part
        path = self._link.call.path(value) if value else ""
        if value and not value.startswith("-") and os.path.isfile(path):
            is_library = ".so" in os.path.basename(path)
            return f"{lead}{equals}{self._places.real(path) if is_library else self.copy(value)}"
        return f"{lead}{equals}{self._places.real(value) if value.startswith('/') else value}"
