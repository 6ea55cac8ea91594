"""Reading a lazy library (or a manifest file) and showing what is in it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from lazyck import abi
from lazyck.manifest import Manifest, Recipe
from lazyck.postbuild import demangle
from lazyck.postbuild.private_names import plain_name
from lazyck.visible import visible

_SHOWN = {
    abi.PH_SOURCE: "{source}",
    abi.PH_OUTPUT: "{output}",
    abi.PH_INPUT: "{object}",
    abi.PH_ROOT: "{root}",
    abi.PH_LIBRARY: "{library}",
    abi.PH_TOOLCHAIN: "{toolchain}",
    abi.PH_KERNEL: "{kernel}",
    abi.PH_ARCHS: "{archs}",
    abi.PH_ARCH: "{arch}",
}


def shown(words: Sequence[str]) -> str:
    """Words of a recipe as a user can read them."""
    text = shlex.join(words)
    for placeholder, name in _SHOWN.items():
        text = text.replace(placeholder, name)
    return text


def render_text(m: Manifest) -> str:
    """The manifest for people."""
    blobs = [b for b in m.blobs if not b.kernel]
    kernels = [b for b in m.blobs if b.kernel]
    lines = [
        f"library     {m.library} (soname {m.soname or '-'})",
        f"cache       {m.cache_name}/{abi.CACHE_VERSION}/{m.shelf}",
        f"bundle      {m.root or 'beside the library, lazyck/'}",
        f"machine     {m.machine or '-'}",
        f"archs       {' '.join(m.archs) or '-'}",
        f"made by     {m.creator}",
        f"blobs       {len(blobs)} lazy with {len(m.functions)} symbols, {len(m.eager)} eager",
    ]
    if kernels:
        sources = sum(b.is_whole for b in kernels)
        lines.append(f"kernels     {len(kernels) - sources} of {sources} sources, each compiled when it is first used")
    for i, recipe in enumerate(m.recipes):
        lines += _render_recipe(i, recipe)
    for blob in blobs:
        lines.append(f"blob {blob.name}  recipe {blob.recipe}  key {blob.digest[:16]}  {blob.source}")
        lines += [f"  {plain_name(symbol)}" for symbol in blob.symbols]
    for kernel in kernels:
        what = "kernels of" if kernel.is_whole else "kernel"
        lines.append(f"{what} {kernel.name}  recipe {kernel.recipe}  key {kernel.digest[:16]}  {kernel.source}")
        lines += [] if kernel.is_whole else [f"  {demangle.readable(kernel.symbols[0])}"]
    lines += [f"eager {name}: {reason}" for name, reason in m.eager]
    return "\n".join(map(visible, lines))


def _render_recipe(index: int, r: Recipe) -> list[str]:
    lines = [f"recipe {index}  {r.toolchain} {r.toolchain_id}  home {r.home or '-'}"]
    lines += [f"  compile {shown(r.compile)}", *([f"  link    {shown(r.link)}"] if r.link else [])]
    if r.arch_flags:
        lines.append(f"  archs   {shown(r.arch_flags)}")
    lines += [f"  env     {name}={value}" for name, value in r.env]
    return lines


def to_json(m: Manifest) -> dict[str, Any]:
    """The manifest for programs."""
    raw = asdict(m)
    for blob in raw["blobs"]:
        blob["symbols"] = [plain_name(symbol) for symbol in blob["symbols"]]
    for recipe in raw["recipes"]:
        for key in ("compile", "link", "arch_flags"):
            recipe[key] = [_plain(w) for w in recipe[key]]
        recipe["env"] = dict(recipe["env"])
    raw["eager"] = [{"name": n, "reason": r} for n, r in m.eager]
    return raw


def _plain(word: str) -> str:
    for placeholder, name in _SHOWN.items():
        word = word.replace(placeholder, name)
    return word
