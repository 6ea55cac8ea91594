"""Describes what a lazy library will hold: its manifest, and its bundle's files. Writes nothing."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from lazyck import __version__, abi, proc
from lazyck.files import digest, encode, physical
from lazyck.formats.manifest import BlobRecord, Manifest, Recipe, UnitRecipes
from lazyck.postbuild import bundle, bundle_paths
from lazyck.postbuild.build_options import BuildOptions
from lazyck.postbuild.bundle_paths import BundlePaths, common_prefix, header_directories, inside, with_parents
from lazyck.postbuild.cxx import mangled
from lazyck.postbuild.eager import EagerObject, HostUnit, Program, can_be
from lazyck.postbuild.facts import Settled
from lazyck.postbuild.link_context import LinkContext
from lazyck.postbuild.link_rules import repeated
from lazyck.postbuild.mentions import Mentions
from lazyck.postbuild.objects.reveal import private_name
from lazyck.postbuild.objects.stand_in import StandIn
from lazyck.postbuild.ownership import Ownership
from lazyck.postbuild.probe.group import Probed
from lazyck.postbuild.reasons import Downgrade, Reason, ReasonKind, path_from, to_pair
from lazyck.runtime.cpu import Cpu, this_cpu
from lazyck.runtime.tool import tool
from lazyck.settings.environment import environment
from lazyck.toolchains import by_name, native
from lazyck.toolchains.command import CompileCommand
from lazyck.toolchains.identity import compiler_identity


@dataclass(frozen=True)
class Description:
    manifest: Manifest
    files: Mapping[str, str | bytes]  # place → source, or what is written there
    paths: Mapping[str, BundlePaths]  # where files go, per toolchain
    rows: tuple[tuple[Probed, BlobRecord], ...]  # of the manifest that stand for whole sources, known as they are
    unfit: Mapping[str, Reason]  # sources whose recipes name a place of this machine


class PrivateNames:
    """Knows the private names of a library, for keys. `offered` are those of what its real objects
    hide. If it hides inline functions, too, a lead without digits stands for theirs; `shown` are
    those that it exports in spite of that. It is None otherwise."""

    def __init__(
        self,
        lazy: Sequence[Probed],
        owned: Ownership,
        offered: Mapping[str, str],
        tag: str,
        mentions: Mentions,
        *,
        shown: frozenset[str] | None = None,
    ) -> None:
        hides = shown is not None
        kept = (private_name(s, abi.PLAIN_TAG + tag) for s in sorted(shown or ()))
        self.names, self.tag = (*offered.values(), *([abi.PRIVATE_LEAD] if hides else []), *kept), tag
        self._own = {p.blob: p.private.intersection(owned.lazy[p.blob]) for p in lazy}
        every = frozenset(offered).union(shown or (), *self._own.values())
        self._exist, self._hides = hides or bool(every), hides
        self._named = mentions.digests(every, self._own)

    def key(self, blob: CompileCommand) -> tuple[str, ...]:
        """Return what stands in a key for the private names that the object of `blob` may have."""
        own = (abi.PRIVATE_LEAD, *sorted(self._own[blob])) if self._hides else sorted(self._own[blob])
        return (self.tag, *own, self._named[blob]) if self._exist else ()


def describe(
    context: LinkContext,
    settled: Settled,
    units: Mapping[HostUnit, Probed],
    program: Program | None,
    private: PrivateNames,
    bridge: Path | None,
    contents: bundle.FileDigests,
    stand_ins: Mapping[StandIn, Path] = MappingProxyType({}),
) -> Description:
    """Return the manifest of the library and what its bundle holds. `contents` knows files that
    were read before. `program` compiles the kernels of host `units`, each given with what its
    source reads. By the object `bridge` blobs reach a built-in GPU runtime, or wrappers of one.
    Blobs are linked against `stand_ins`."""
    lazy, owned, options, machine = settled.lazy, settled.owned, context.options, context.inputs.machine
    every = [*lazy, *units.values()]
    paths = paths_by_toolchain(every, context.name, options)
    files: dict[str, str | bytes] = {}
    runtime = f"{context.name}/tree/.lazyck/{bridge.name}" if bridge else ""
    if bridge:
        files[runtime] = str(bridge)
    place = ""
    # Kernels are compiled on the first use of a handle, which only the bridge reports.
    by_kernel = frozenset(p.blob for p in lazy if program and bridge and can_be(p.blob))
    if program and (units or by_kernel):
        place = f"{context.name}/tree/.lazyck/{program.path.name}"
        files[place] = str(program.path)
    headers: dict[str, str] = {}
    for toolchain, where in paths.items():
        read = frozenset().union(*{p.headers for p in every if p.blob.call.toolchain == toolchain})
        text = contents.foreign_list(read, where)
        headers[toolchain] = hashlib.sha256(text).hexdigest()
        files[f"{context.name}/tree/.lazyck/{toolchain}{abi.BUNDLE_HEADERS}"] = text
    against = {f"{context.name}/tree/.lazyck/{path.name}": str(path) for path in stand_ins.values()}
    files |= against
    words = repeated(context.inputs)
    if against:
        words += ("-Xlinker", "--no-as-needed", *(f"{abi.PH_ROOT}/{place}" for place in against))
    recipes = Recipes(context, paths, headers, runtime, place, words)
    prefix = next(iter(paths.values())).prefix if paths else "/"
    chains = {p.blob: recipes.chain(p.blob) for p in every}
    names = unique_names([(blob, chain[0]) for blob, chain in chains.items()], prefix)
    rows: list[tuple[Probed, BlobRecord]] = []

    def key_of(p: Probed, recipe: Recipe, *library: str) -> str:
        read = contents.of_headers(p.headers, paths[p.blob.call.toolchain])
        return bundle.blob_digest(recipe, context.name, library, contents.of_file(p.blob.source), read)

    linked = [s.key for s in stand_ins]
    sources = [paths[p.blob.call.toolchain].in_bundle(p.blob.source) for p in every]
    files.update(zip(sources, (p.blob.source for p in every), strict=True))
    for p, name, source in zip(lazy, names, sources, strict=False):
        chain = chains[p.blob]
        key = key_of(p, chain[0], machine, *private.key(p.blob), *linked, *recipes.steps[chain[0]])
        symbols = tuple(s + abi.PRIVATE_MARK if s in p.private else s for s in owned.lazy[p.blob])
        apart = recipes.units_of(chain, program.digest) if program and p.blob in by_kernel else None
        rows.append((p, BlobRecord(name, source, recipes.index(chain), key, symbols, units=apart)))
    parts: list[BlobRecord] = []
    made_by = program.digest if program else ""
    for (unit, p), name, source in zip(units.items(), names[len(lazy) :], sources[len(lazy) :], strict=True):
        chain = recipes.of_device(chains[p.blob])
        recipe, number = chain[0], recipes.index(chain)
        symbols = tuple(line.partition("\t")[0] for line in unit.kernels)
        key = key_of(p, recipe, machine, made_by, unit.whole)
        whole = f"{unit.name}\t{unit.whole}"
        rows.append((p, BlobRecord(name, source, number, key, symbols or (abi.IMAGE_SYMBOL,), whole)))
        for symbol, line in zip(symbols, unit.kernels, strict=True):
            key = key_of(p, recipe, machine, made_by, line)
            row = f"{name}.{kernel_name(symbol)}"
            parts.append(BlobRecord(row, source, number, key, (symbol,), f"{unit.name}\t{line}"))
    for read, toolchain in {(p.headers, p.blob.call.toolchain) for p in every}:
        where = paths[toolchain]
        files.update((where.in_bundle(h), h) for h in read if not where.is_foreign(h))
    blobs = (*(record for _, record in rows), *parts)
    made = Manifest(
        library=context.name,
        file_name=os.path.basename(context.link.output) if context.inputs.shared else "",
        cache_name=options.name,
        root=options.root or ("" if options.beside else str(context.final / "bundle")),
        archs=options.archs,
        recipes=recipes.all(),
        blobs=blobs,
        eager=tuple(to_pair(downgrade(e, options)) for e in settled.objects if e.error is None and e.unit is None),
        creator=f"lazyck {__version__}",
        digest=digest_of_keys(blobs, recipes.all()),
        machine=machine,
        private_names=private.names,
        private_tag=private.tag,
    )
    outside = {r: bundle_paths.path_outside(r, by_name(r.toolchain)) for r in {chain[0] for chain in chains.values()}}
    named = ((blob.source, outside[chain[0]]) for blob, chain in chains.items())
    unfit = {source: Reason(ReasonKind.OPTION_ONLY_HERE, path) for source, path in named if path}
    for blob, chain in chains.items():
        if compiler := recipes.unlike.get(chain[0]):
            unfit[blob.source] = Reason(ReasonKind.ENVIRONMENT, compiler)
    return Description(made, files, paths, tuple(rows), unfit)


def downgrade(made: EagerObject, options: BuildOptions) -> Downgrade:
    return Downgrade(path_from(made.blob.source, options.project_dir), made.reasons)


def digest_of_keys(blobs: Sequence[BlobRecord], recipes: Sequence[Recipe]) -> str:
    """Return a digest of all that the build decides of the keys of its entries. Two builds with
    equal digests can use the same entries."""
    rows = ((b.name, b.digest, recipes[b.recipe].toolchain_id, b.units.digest if b.units else "") for b in blobs)
    return digest(*(encode(word) for row in rows for word in row))


def kernel_name(symbol: str) -> str:
    """Return a short name for a kernel: its function's, and a digest of the whole symbol."""
    name = mangled.last_name(symbol)[:60]
    return f"{name}-{hashlib.sha256(encode(symbol)).hexdigest()[:8]}"


def paths_by_toolchain(lazy: Sequence[Probed], name: str, options: BuildOptions) -> dict[str, BundlePaths]:
    """Return, per toolchain, where files go. The bundle's tree starts at the deepest directory that
    holds all of them. If commands look for headers in a directory above that, it starts there,
    since sources include headers by their paths from there."""
    shims = options.origins
    toolchains = {p.blob.call.toolchain for p in lazy}
    first = {t: BundlePaths(options.home(t), shims, name) for t in toolchains}
    reached = {p.blob.source for p in lazy}
    for headers, toolchain in {(p.headers, p.blob.call.toolchain) for p in lazy}:
        reached |= {h for h in headers if not first[toolchain].is_foreign(h)}
    reached = set(map(physical, reached))
    prefix = common_prefix(reached)
    for directory in sorted(_searched(lazy), key=len):
        place = os.path.realpath(directory)
        if inside(prefix, place) and not any(p.is_foreign(directory) for p in first.values()):
            prefix = place
            break
    held = with_parents(reached, prefix)
    return {t: BundlePaths(p.home, shims, name, prefix, held) for t, p in first.items()}


def _searched(lazy: Sequence[Probed]) -> set[str]:
    found: set[str] = set()
    one_of_each_group = {id(p.headers): p.blob for p in lazy}  # all of a group were probed with the same options
    for blob in one_of_each_group.values():
        toolchain = by_name(blob.call.toolchain)
        words, variables = toolchain.base_words(blob)[1:], toolchain.base_env(blob)
        found |= header_directories(words, blob.call.cwd, toolchain, variables)
    return found


class Recipes:
    """Holds the recipes of a library, each made once per distinct command line. Behind each that is
    for this CPU come those for CPUs that lack something of it (a chain)."""

    def __init__(
        self,
        context: LinkContext,
        paths: Mapping[str, BundlePaths],
        headers: Mapping[str, str],
        runtime: str,
        program: str,
        linked: tuple[str, ...],
    ) -> None:
        self._context, self._paths, self._runtime = context, paths, runtime
        self._headers, self._program, self._linked = headers, program, linked
        self._made: dict[tuple[object, ...], tuple[Recipe, ...]] = {}
        self._index: dict[tuple[Recipe, ...], int] = {}
        self._all: list[Recipe] = []
        self.steps: dict[Recipe, tuple[str, ...]] = {}  # of each chain's first, see `Toolchain.steps`
        self.unlike: dict[Recipe, str] = {}  # those whose compiler, the value, does other things at a first call

    def chain(self, blob: CompileCommand) -> tuple[Recipe, ...]:
        """Return how `blob` is compiled for the CPUs that have what its options ask for, then for
        those that lack something."""
        toolchain = by_name(blob.call.toolchain)
        base, needs_cpu = toolchain.base_words(blob), native.needs_cpu(toolchain.all_words(blob))
        archs = archs_of(blob, self._context.options, environment())
        key = (base, archs, needs_cpu, blob.call.cwd, blob.call.env, toolchain.name)
        chain = self._made.get(key)
        if chain is None:
            where = self._paths[toolchain.name]
            called_in = toolchain.tool_env(blob, environment())
            programs = toolchain.programs(blob, called_in)
            name = compiler_identity(blob.call.argv[: blob.call.prefix], called_in, programs)
            identity = bundle.Identity(name, programs, self._headers[toolchain.name])

            def made(words: Sequence[str], cpu: str) -> Recipe:
                of_link = (self._context.link, where, self._runtime, self._linked)
                return replace(bundle.make_recipe(blob, words, toolchain, identity, *of_link), cpu=cpu, archs=archs)

            levels = self._lesser(blob) if needs_cpu else {}
            chain = (made(base, self._cpu.features if needs_cpu else ""), *(made(*level) for level in levels.items()))
            self._made[key] = chain
            searched = {name: v for name, v in toolchain.base_env(blob) if name in toolchain.header_env}
            path = {"PATH": self._context.options.path or called_in.get("PATH", os.defpath)}
            closed = {**path, "HOME": "/", **dict(chain[0].env), **searched}
            steps = toolchain.steps(blob, called_in)
            self.steps[chain[0]] = steps or ()
            is_known = steps is not None and steps == toolchain.steps(blob, closed)
            if not is_known or toolchain.starts_otherwise(blob, called_in, closed):
                self.unlike[chain[0]] = blob.call.argv[blob.call.prefix - 1]
            found = ((p, proc.find_program(p, called_in)) for p in programs if "/" not in p)
            if other := next((where for p, where in found if where != proc.find_program(p, path)), ""):
                self.unlike[chain[0]] = other
        return chain

    def _lesser(self, blob: CompileCommand) -> dict[tuple[str, ...], str]:
        """Return the words of `blob` for each lower level of CPU that its compiler knows, each with
        the features that it needs. The last needs none."""
        toolchain = by_name(blob.call.toolchain)
        words = {toolchain.base_words(blob, option): cpu for option, cpu in (*self._cpu.levels, ("", ""))}
        return {each: cpu for each, cpu in words.items() if not native.names_native(each)}

    @property
    def _cpu(self) -> Cpu:
        return this_cpu(tool(self._context.env, self._context.options.tmp / "runtime"))

    def of_device(self, chain: Sequence[Recipe]) -> tuple[Recipe, ...]:
        """Return how the device code, that of a kernel or all of it, of a blob is compiled which
        `chain` compiles whole."""
        return tuple(bundle.device_recipe(r, by_name(r.toolchain), self._program) for r in chain)

    def units_of(self, chain: Sequence[Recipe], made_by: str) -> UnitRecipes:
        """Return how the parts of such a blob are compiled, by the program of digest `made_by`."""
        host = tuple(bundle.entry_recipe(r, by_name(r.toolchain), self._program) for r in chain)
        device = self.of_device(chain)
        key = bundle.blob_digest(host[0], self._context.name, (made_by,), "", "")
        key = bundle.blob_digest(device[0], self._context.name, (key,), "", "")
        return UnitRecipes(key, self.index(host), self.index(device))

    def index(self, chain: tuple[Recipe, ...]) -> int:
        """Return the number of the first recipe of `chain`. The others follow it."""
        if chain not in self._index:
            self._index[chain] = len(self._all)
            self._all += chain
        return self._index[chain]

    def all(self) -> tuple[Recipe, ...]:
        return tuple(self._all)


def archs_of(blob: CompileCommand, options: BuildOptions, env: Mapping[str, str]) -> tuple[str, ...]:
    """Return what the fat binary of `blob` has: the archs that its command asks for, else those
    that the build was asked for, else those of its environment, else the compiler's defaults."""
    toolchain = by_name(blob.call.toolchain)
    if toolchain.archs_of(blob, env):
        return toolchain.images_of(blob, env)
    return options.archs or dict(options.env_archs).get(toolchain.name, ()) or toolchain.images_of(blob, env)


def unique_names(blobs: Sequence[tuple[CompileCommand, Recipe]], prefix: str) -> list[str]:
    """Return a name for each blob: its stem, with a short digest if several blobs have that stem.

    The digest is of the source's place and, if one source is compiled in several ways, the options
    in which these differ. So a name is the same in each build and on each machine.
    """
    by_stem: dict[str, dict[str, list[Recipe]]] = {}
    for blob, recipe in blobs:
        by_stem.setdefault(blob.stem, {}).setdefault(blob.source, []).append(recipe)
    taken: dict[str, int] = {}

    def one(blob: CompileCommand, recipe: Recipe) -> str:
        paths = by_stem[blob.stem]
        variants = paths[blob.source]
        if len(paths) == len(variants) == 1:
            return blob.stem
        common = set(variants[0].compile).intersection(*(variant.compile for variant in variants))
        own = [word for word in recipe.compile if word not in common]
        own += recipe.archs if len({variant.archs for variant in variants}) > 1 else ()
        parts = "\0".join([os.path.relpath(blob.source, prefix), *own])
        name = f"{blob.stem}-{hashlib.sha256(encode(parts)).hexdigest()[:8]}"
        taken[name] = taken.get(name, 0) + 1
        return name if taken[name] == 1 else f"{name}-{taken[name]}"

    return [one(*b) for b in blobs]
