"""The compilers of recipes, as they are found on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from _lazyck import abi
from _lazyck.errors import ToolchainError
from _lazyck.manifest import Recipe
from _lazyck.toolchains import by_name


@dataclass(frozen=True)
class LocalCompiler:
    """What a recipe's compiler is started by on this machine: its words, the toolchain's home (an
    empty string if it has none), and the environment."""

    toolchain: str
    words: tuple[str, ...]
    home: str
    env: Mapping[str, str]

    def identity(self) -> str:
        """Return the compiler's identity, as keys have it. Raises `ToolchainError`."""
        return by_name(self.toolchain).identity(self.words, self.home, self.env)


def local_compiler(recipe: Recipe, env: Mapping[str, str]) -> LocalCompiler:
    """Return the compiler that a recipe runs here. Raises `ToolchainError` if its toolchain's home
    is not there."""
    home = recipe.home
    if home and not Path(home).is_dir():
        homes = (env.get(name, "") for name in recipe.home_env)
        home = next((h for h in homes if h and Path(h).is_dir()), "")
        if not home:
            raise ToolchainError(f"no {recipe.toolchain} toolchain: {recipe.home} is not there")
    words = recipe.compiler_words
    words = words[: words.index(abi.PH_ARCHS)] if abi.PH_ARCHS in words[1:] else words[:1]
    own = {k: v for k, v in env.items() if k not in recipe.drop_env}
    # The compiler does not need the bundle to say what it is.
    own |= {k: v.replace(abi.PH_TOOLCHAIN, home) for k, v in recipe.env if abi.PH_ROOT not in v}
    return LocalCompiler(recipe.toolchain, tuple(w.replace(abi.PH_TOOLCHAIN, home) for w in words), home, own)
