#!/usr/bin/env python3
"""Generate the sources and a build.ninja that compiles them into libattention.so.

The compiler is looked up when ninja runs, not when this script does: it is $ROCM_PATH/bin/hipcc, or
with --backend cuda $CUDA_HOME/bin/nvcc (nvcc from PATH if CUDA_HOME is not set).
"""

import argparse
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from generate import add_selection_options, select_or_exit, write_if_different, write_sources

HERE = Path(__file__).resolve().parent
LIBRARY = "libattention.so"


@dataclass(frozen=True)
class Backend:
    """Describes how one GPU compiler is called. The shell that runs ninja's commands expands the
    variables."""

    compiler: str
    compile_flags: tuple[str, ...]
    link_flags: tuple[str, ...]
    default_archs: str

    def arch_flags(self, archs: list[str]) -> list[str]:
        raise NotImplementedError


class Hip(Backend):
    def arch_flags(self, archs: list[str]) -> list[str]:
        return [f"--offload-arch={arch}" for arch in archs]


class Cuda(Backend):
    def arch_flags(self, archs: list[str]) -> list[str]:
        flags = []
        for arch in archs:
            flags += ["-gencode", f"arch=compute_{arch.removeprefix('sm_')},code=sm_{arch.removeprefix('sm_')}"]
        return flags


BACKENDS = {
    "hip": Hip(
        compiler='"${ROCM_PATH:-/opt/rocm}/bin/hipcc"',
        compile_flags=("-x", "hip", "-fPIC", "-Wall", "-Wextra"),
        link_flags=("-shared", f"-Wl,-soname,{LIBRARY}"),
        default_archs="gfx90a,gfx942",
    ),
    "cuda": Cuda(
        compiler='"${CUDA_HOME:+$CUDA_HOME/bin/}nvcc"',
        compile_flags=("-x", "cu", "-Xcompiler", "-fPIC,-Wall,-Wextra"),
        link_flags=("-shared", "-Xlinker", f"-soname={LIBRARY}"),
        default_archs="sm_80",
    ),
}


def ninja_value(text: str) -> str:
    """Return the text as the value of a ninja variable."""
    return text.replace("$", "$$")


def ninja_path(path: Path | str) -> str:
    """Return the path as it stands in a ninja build statement."""
    return str(path).replace("$", "$$").replace(" ", "$ ").replace(":", "$:")


def render_ninja(backend: Backend, sources: list[Path], archs: list[str], optimize: str) -> str:
    arch_flags = backend.arch_flags(archs)
    flags = ["-std=c++17", f"-O{optimize}", *backend.compile_flags, *arch_flags, "-I", str(HERE / "include")]
    lines = [
        "# Written by configure.py.",
        "ninja_required_version = 1.5",
        f"compiler = {ninja_value(backend.compiler)}",
        f"flags = {ninja_value(shlex.join(flags))}",
        f"link_flags = {ninja_value(shlex.join([*backend.link_flags, *arch_flags]))}",
        "",
        "rule compile",
        "  command = $compiler $flags -MD -MF $out.d -c $in -o $out",
        "  description = COMPILE $out",
        "  depfile = $out.d",
        "  deps = gcc",
        "",
        "rule link",
        "  command = $compiler $link_flags -o $out $in",
        "  description = LINK $out",
        "",
    ]
    objects = []
    for source in sources:
        objects.append(f"obj/{source.stem}.o")
        lines.append(f"build {ninja_path(objects[-1])}: compile {ninja_path(source)}")
    lines += ["", f"build {LIBRARY}: link {' '.join(ninja_path(name) for name in objects)}", f"default {LIBRARY}", ""]
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build-dir", type=Path, default=HERE / "build", help="default: build, beside this script")
    parser.add_argument("--backend", choices=sorted(BACKENDS), default="hip")
    parser.add_argument("--gpu-archs", metavar="ARCH,...", help="default: gfx90a,gfx942 for hip, sm_80 for cuda")
    parser.add_argument("--optimize", metavar="LEVEL", choices=list("0123"), default="2", help="0 to 3; default: 2")
    add_selection_options(parser)
    options = parser.parse_args(argv)
    variants = select_or_exit(parser, options)

    backend = BACKENDS[options.backend]
    archs = [arch for arch in (options.gpu_archs or backend.default_archs).split(",") if arch]
    # Paths are absolute, as CMake writes them: they mean the same in any directory and in any tool
    # that reads the commands.
    build_dir = options.build_dir.resolve()
    sources = write_sources(build_dir, variants)
    sources.append(HERE / "src" / "attention.cpp")
    write_if_different(build_dir / "build.ninja", render_ninja(backend, sources, archs, options.optimize))
    print(f"{len(variants)} variants; now run: ninja -C {shlex.quote(str(options.build_dir))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
