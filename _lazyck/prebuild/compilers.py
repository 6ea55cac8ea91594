"""The compilers of recipes, as they are found on this machine."""

from collections.abc import Mapping
from pathlib import Path

from _lazyck import abi
from _lazyck.errors import ToolchainError
from _lazyck.manifest import Recipe
from _lazyck.toolchains.base import compiler_identity


def local_compiler(recipe: Recipe, env: Mapping[str, str]) -> tuple[str, str]:
    """Return the compiler that a recipe runs here, and its identity, as keys have it. Raises
    `ToolchainError`, for example if its toolchain's home is not there."""
    home = recipe.home
    if home and not Path(home).is_dir():
        homes = (env.get(name, "") for name in recipe.home_env)
        home = next((h for h in homes if h and Path(h).is_dir()), "")
        if not home:
            raise ToolchainError(f"no {recipe.toolchain} toolchain: {recipe.home} is not there")
    words = recipe.compiler_words
    words = words[: words.index(abi.PH_ARCHS)] if abi.PH_ARCHS in words[1:] else words[:1]
    words = tuple(w.replace(abi.PH_TOOLCHAIN, home) for w in words)
    own = {k: v for k, v in env.items() if k not in recipe.drop_env}
    # The compiler does not need the bundle to say what it is.
    own |= {k: v.replace(abi.PH_TOOLCHAIN, home) for k, v in recipe.env if abi.PH_ROOT not in v}
    return words[0], compiler_identity(words, own)
