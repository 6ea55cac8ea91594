"""The contents of a lazy library: a summary, blobs in full, reasons why sources are eager."""

import os
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lazyck import abi
from lazyck.formats.manifest import BlobRecord, Manifest, Recipe
from lazyck.postbuild.cxx import demangle
from lazyck.postbuild.objects.reveal import plain_name
from lazyck.postbuild.reasons import Downgrade, by_kinds, heading, of_pair
from lazyck.postbuild.reasons import to_json as reasons_to_json
from lazyck.prebuild.blob_names import select
from lazyck.quantities import counted, show_size
from lazyck.visible import visible

_SHOWN = {
    abi.PH_SOURCE: "{source}",
    abi.PH_OUTPUT: "{output}",
    abi.PH_INPUT: "{object}",
    abi.PH_ROOT: "{root}",
    abi.PH_TOOLCHAIN: "{toolchain}",
    abi.PH_KERNEL: "{kernel}",
    abi.PH_NAME: "{name}",
    abi.PH_ARCHS: "{archs}",
    abi.PH_ARCH: "{arch}",
    abi.PH_VIRTUAL: "{virtual}",
}


@dataclass(frozen=True)
class Files:
    """The file that was inspected and the library's part of its bundle, with their sizes in bytes.
    `bundle` is an empty string if none was found."""

    path: str
    size: int
    bundle: str = ""
    bundle_size: int = 0


def files_of(path: Path, manifest: Manifest) -> Files:
    """Return the files at `path`, a lazy library or its manifest, and beside. Raises `OSError`."""
    beside = path.absolute().parent
    places = [beside] if path.name == "manifest" else [beside / "lazyck" / manifest.library]
    places += [beside / manifest.root / manifest.library] if manifest.root else []
    bundle = next((p for p in places if (p / "manifest").is_file()), None)
    if bundle is None:
        return Files(str(path), path.stat().st_size)
    size = sum(file.stat().st_size for file in bundle.rglob("*") if file.is_file())
    return Files(str(path), path.stat().st_size, str(bundle), size)


def eager_of(manifest: Manifest) -> list[Downgrade]:
    """Return the sources that are compiled together with the library, with the reasons."""
    return [of_pair(*pair) for pair in manifest.eager]


def blobs_named(manifest: Manifest, names: Sequence[str], *, every: bool) -> list[BlobRecord]:
    """Return the blobs that `names` select, themselves or by their parts. Raises `UnknownBlobs`."""
    own = {blob.name: blob for blob in manifest.blobs}
    rows = select(manifest, names, every).blobs
    return list(dict.fromkeys(row if row.name in own else own[row.unit] for row in rows))


def render_summary(m: Manifest, files: Files) -> str:
    lazy = [b for b in m.blobs if not b.kernel]
    eager = eager_of(m)
    sources, kernels = sum(b.is_whole for b in m.blobs), sum(b.is_kernel for b in m.blobs)
    rows = [
        ("library", f"{m.library}, {files.path}, {show_size(files.size)}"),
        ("machine", m.machine or "-"),
        ("archs", " ".join(m.archs or dict.fromkeys(a for r in m.recipes for a in r.archs)) or "-"),
        ("blobs", f"{len(lazy)} lazy with {counted(len(m.functions), 'symbol')}, {len(eager)} eager"),
    ]
    if sources:
        rows.append(("kernels", f"{kernels} of {counted(sources, 'source')}, each compiled when it is first used"))
    rows += [("eager", heading(kinds, len(members))) for kinds, members in by_kinds(eager)]
    for (toolchain, identity, home), n in _toolchains(m).items():
        rows.append(("toolchain", f"{toolchain} {identity}, home {home or '-'}: {counted(n, 'source')}"))
    bundle = f"{files.bundle}, {show_size(files.bundle_size)}" if files.bundle else ""
    rows += [
        ("bundle", bundle or f"{m.root or 'beside the library, lazyck/'} (not found)"),
        ("cache", f"{m.cache_name}/{abi.CACHE_VERSION}/{m.shelf}"),
        ("made by", m.creator),
    ]
    lines = [f"{name:<11} {text}" for name, text in rows]
    library = shlex.quote(files.path)
    lines.append(f"one blob    lazyck inspect --blob NAME {library}" + ("; every one: --all" if m.blobs else ""))
    if eager:
        lines.append(f"to change   lazyck inspect --explain-eager {library}")
    return "\n".join(map(visible, lines))


def render_blobs(m: Manifest, chosen: Sequence[BlobRecord]) -> str:
    kernels = _kernels(m)
    own = {blob: kernels.get(blob.unit, []) if blob.is_whole else [(s, "") for s in blob.symbols] for blob in chosen}
    readable = _readable([symbol for symbols in own.values() for symbol, _ in symbols])
    lines = []
    for blob in chosen:
        what = "by kernel" if blob.is_whole else "kernel" if blob.is_kernel else "blob"
        lines += [f"{what} {blob.name}", f"  source    {blob.source}", f"  key       {blob.digest}"]
        lines += _recipe_lines("compile", m.recipes_from(blob.recipe))
        if blob.units:
            lines += [f"  parts     {blob.units.digest}"]
            lines += _recipe_lines("host", m.recipes_from(blob.units.host))
            lines += _recipe_lines("device", m.recipes_from(blob.units.device))
        lines.append(f"  {'kernels' if blob.kernel else 'symbols':<9} {len(own[blob])}")
        for symbol, name in own[blob]:
            lines += [f"    {readable[symbol]}", f"      {plain_name(symbol)}", *([f"      {name}"] if name else [])]
    return "\n".join(map(visible, lines))


def render_eager(m: Manifest) -> str:
    return "\n".join(f"eager {visible(str(one))}" for one in eager_of(m))


def _kernels(m: Manifest) -> Mapping[str, list[tuple[str, str]]]:
    """Return each host unit's kernels: their symbols, and the names by which users select them."""
    found: dict[str, list[tuple[str, str]]] = {}
    for blob in m.blobs:
        if blob.is_kernel:
            found.setdefault(blob.unit, []).extend((symbol, blob.name) for symbol in blob.symbols)
    return found


def _recipe_lines(step: str, chain: Sequence[Recipe]) -> list[str]:
    r, *lesser = chain
    lines = [f"  {step:<9} {shown(r.compile)}"]
    lines += [f"    link    {shown(r.link)}"] if r.link else []
    lines += [f"    archs   {shown(r.arch_flags)}"] if r.arch_flags else []
    lines += [f"    by      {r.toolchain} {r.toolchain_id}, home {' '.join([r.home or '-', *r.home_env])}"]
    lines += [f"    runs    {shown(r.programs)}"] if r.programs else []
    lines += [f"    env     {name}={value}" for name, value in r.env]
    if lesser:
        words = [shown([w for w in other.compile if w not in r.compile]) for other in lesser]
        lines.append(f"    cpu     like the build's; on lesser ones {', '.join(w or 'the default' for w in words)}")
    return lines


def _toolchains(m: Manifest) -> Counter[tuple[str, str, str]]:
    used = (m.recipes[b.recipe] for b in m.blobs if not b.is_kernel)
    return Counter((r.toolchain, r.toolchain_id, r.home) for r in used)


def _readable(symbols: Sequence[str]) -> Mapping[str, str]:
    plain = {symbol: plain_name(symbol) for symbol in symbols}
    names = demangle.all_readable(list(plain.values()))
    return {symbol: names[name] for symbol, name in plain.items()}


def shown(words: Sequence[str]) -> str:
    return _plain(shlex.join(words))


def _plain(word: str) -> str:
    for placeholder, name in _SHOWN.items():
        word = word.replace(placeholder, name)
    return word


def to_json(m: Manifest, chosen: Sequence[BlobRecord], files: Files) -> dict[str, Any]:
    """Return the manifest, with only the blobs `chosen`, and what the text shows in addition."""
    raw = asdict(m)
    readable = _readable([symbol for blob in chosen for symbol in blob.symbols])
    raw["blobs"] = [_blob_to_json(blob, readable) for blob in chosen]
    for recipe in raw["recipes"]:
        for key in ("compile", "link", "arch_flags", "programs"):
            recipe[key] = [_plain(word) for word in recipe[key]]
        recipe["env"] = dict(recipe["env"])
    eager = eager_of(m)
    raw["eager"] = [reasons_to_json(one) for one in eager]
    raw["summary"] = {
        "file": asdict(files),
        "cache": os.path.join(m.cache_name, abi.CACHE_VERSION, m.shelf),
        "lazy": sum(not b.kernel for b in m.blobs),
        "symbols": len(m.functions),
        "sources_by_kernel": sum(b.is_whole for b in m.blobs),
        "kernels": sum(b.is_kernel for b in m.blobs),
        "eager": len(eager),
        "reasons": Counter(r.kind.name for one in eager for r in one.reasons),
        "toolchains": [
            {"toolchain": toolchain, "toolchain_id": identity, "home": home, "sources": n}
            for (toolchain, identity, home), n in _toolchains(m).items()
        ],
    }
    return raw


def _blob_to_json(blob: BlobRecord, readable: Mapping[str, str]) -> dict[str, Any]:
    """Return a blob. `symbols` are plain names, and `recorded` those in the manifest."""
    return {
        **asdict(blob),
        "symbols": [plain_name(symbol) for symbol in blob.symbols],
        "demangled": [readable[symbol] for symbol in blob.symbols],
        "recorded": blob.symbols,
        "is_source_by_kernel": blob.is_whole,
        "is_kernel": blob.is_kernel,
        "unit": blob.unit,
    }
