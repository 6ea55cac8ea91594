"""Read which commands nvcc runs, which `--dryrun` shows, and which programs these are."""

import os
import re
import shlex
from collections.abc import Mapping
from functools import lru_cache

from lazyck import proc
from lazyck.settings.environment import environment
from lazyck.toolchains import lookup
from lazyck.toolchains.gnu import driver_programs, own_inputs


def nvcc_steps(shown: str, env: Mapping[str, str] | None) -> list[list[str]]:
    """Return the commands that `nvcc --dryrun` shows, each with its program's path."""
    path = (environment() if env is None else env).get("PATH", os.defpath)
    values: dict[str, str] = {}
    steps = []
    for line in shown.splitlines():
        text = line[3:] if line.startswith("#$ ") else ""
        name, is_value, value = text.partition("=")
        if is_value and name.isidentifier():
            values[name] = value
            if name == "PATH":
                path = value  # Debian's nvcc finds its own host compilers there
        step = shlex.split(text)
        if step and "/" not in step[0] and "=" not in step[0]:
            step[0] = lookup.which(step[0], {"PATH": path}) or step[0]
        if step:
            steps.append([re.sub(r"\$(\w+)", lambda m: values.get(m[1], m[0]), word) for word in step])
    return steps


@lru_cache(maxsize=64)
def nvcc_programs(words: tuple[str, ...], env: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """Return what `driver_programs` does for a CUDA source, and the same of nvcc's host compiler.
    `words` are nvcc and the options that choose a host compiler."""
    how = dict(env)
    shown = proc.run([*words, "--dryrun", "-shared", "-x", "cu", "/dev/null", "-o", "x.so"], env=how)
    found = [words[0]]
    for first, *rest in nvcc_steps(shown.stderr, how):
        path, name = os.path.normpath(first), os.path.basename(first)
        if not os.path.isabs(first) or not proc.is_program(path) or name in ("rm", "nvlink"):
            continue
        found += own_inputs(rest)
        if "gcc" not in name and "g++" not in name and "clang" not in name and "c++" not in name:
            found.append(path)
            continue
        # If nvcc finds it along PATH, so does a compile on another machine.
        first = name if proc.find_program(name, how) == path else path
        found += [first, *driver_programs((path,), "c++", env)[1:]]
    return tuple(dict.fromkeys(found))
