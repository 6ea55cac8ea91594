"""Make torch.fx graphs into a lazy library of LLVM IR, in one command.

    python fx_llvm.py [--work DIR] [--keep] [--compiler NAME] [--graphs auto|torch|hand]
        [--row FILE]

This needs lazyck[llvm], NumPy, ninja and a C++ compiler; it uses torch and clang where they are
installed.
"""

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import generate
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection
from optimise import save_both

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
SHOWN = "add_4x64"
CALLED = ("mlp_4", "attention_16", "gate_1")
FOREIGN = {"aarch64": "EM_AARCH64", "riscv64": "EM_RISCV"}
TOLERANCE = 1e-5


def show(text: str) -> None:
    print(f"\n== {text}", flush=True)


@dataclass(frozen=True)
class Ran:
    """Holds the result of a finished command: its output, wall and CPU seconds."""

    output: str
    seconds: float
    cpu: float


def run(argv: list[str | Path], env: Mapping[str, str], cwd: Path, *, quiet: bool = False) -> Ran:
    """Show and run a command; end the demo when it fails. `quiet` hides its output."""
    words = [Path(w).name if isinstance(w, Path) else w for w in argv]
    print("$ " + " ".join(words if len(words) < 15 else [*words[:8], f"... ({len(words) - 8} more)"]), flush=True)
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        [str(w) for w in argv], env=env, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    seconds, after = time.monotonic() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.stdout and not (quiet and done.returncode == 0):
        print(done.stdout, end="", flush=True)
    if done.returncode:
        sys.exit(f"fx_llvm: the command above ended with status {done.returncode}")
    return Ran(done.stdout, seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def environment(work: Path) -> dict[str, str]:
    """Return the demo's environment: this checkout, the programs beside this Python, a cache of its
    own."""
    programs = Path(sys.executable).parent
    if shutil.which("lazyck-irc", path=f"{programs}:{os.environ.get('PATH', os.defpath)}") is None:
        programs = write_irc(work)  # not installed: use this checkout's
    env = {**os.environ, "PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(REPOSITORY), os.environ.get("PYTHONPATH", ""))))
    return {**env, "LAZYCK_CACHE_DIR": str(work / "cache")}


def write_irc(work: Path) -> Path:
    program = work / "bin" / "lazyck-irc"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(REPOSITORY)!r})\n"
        "from lazyck.toolchains.irc import main\nmain()\n"
    )
    program.chmod(0o755)
    return program.parent


def call_graphs(library: Path, env: Mapping[str, str]) -> tuple[list[dict[str, Any]], int]:
    """Run call.py in a new process; return its measurements, and how many blobs that process
    compiled. End the demo on errors."""
    done = run([sys.executable, HERE / "call.py", library, *CALLED], env, HERE)
    rows = [json.loads(line) for line in done.output.splitlines() if line.startswith("{")]
    for row in rows:
        worst = max(row["numpy_error"], row.get("torch_error", 0.0))
        if not (worst < TOLERANCE and row["same"]):
            sys.exit(f"fx_llvm: {row['graph']} does not agree with the reference: {row}")
    return rows, len(re.findall(r"^\[lazyck\] compiled ", done.output, re.M))


def foreign_objects(project: Path, env: Mapping[str, str], work: Path) -> None:
    """Compile the IR to objects of other machines and check these; end the demo if one is wrong."""
    sources = [*sorted((project / "blob").glob("*_4x*.ll")), project / "blob" / "mlp_4.ll"]
    for name, wanted in FOREIGN.items():
        directory = work / "objects" / name
        directory.mkdir(parents=True, exist_ok=True)
        argv: list[str | Path] = ["lazyck-irc", "-O2", "-fPIC", f"--target={name}-linux-gnu", "-c", *sources]
        run(argv, env, directory, quiet=True)
        for source in sources:
            check_object(directory / f"{source.stem}.o", source.stem, wanted)
        text = run(
            ["lazyck-irc", "-O2", f"--target={name}-linux-gnu", "-S", project / "blob" / f"{SHOWN}.ll", "-o", "-"],
            env, directory, quiet=True,
        ).output  # fmt: skip
        code = [line.replace("\t", " ") for line in text.splitlines() if line.startswith("\t") and line[1] != "."]
        print(f"{len(sources)} objects for {name} ({wanted}); {SHOWN} there begins with: {';'.join(code[:6])}")


def check_object(path: Path, symbol: str, machine: str) -> None:
    """End the demo unless `path` is an object for `machine` that defines the function `symbol`."""
    with path.open("rb") as f:
        elf = ELFFile(f)
        tables = [s for s in elf.iter_sections() if isinstance(s, SymbolTableSection)]
        defined = {s.name for t in tables for s in t.iter_symbols() if s["st_shndx"] != "SHN_UNDEF"}
        if elf["e_machine"] != machine or symbol not in defined:
            sys.exit(f"fx_llvm: {path} is {elf['e_machine']} and defines {sorted(defined)}")


def row_of(
    command: str, compiler: str, summary: Mapping[str, Any], lazy: Ran, ahead: Ran, rows: list[Any], hits: list[Any]
) -> dict[str, Any]:
    """Return the row of docs/projects.md."""
    compiled = len(call_functions(CALLED[0]))
    return {
        "project": "torch.fx graphs as LLVM IR (examples/fx_llvm)",
        "build": "ninja",
        "toolchain": f"llvm ({compiler})",
        "files": summary["deferred"],
        "symbols": summary["symbols"],
        "lazy": summary["lazy"],
        "eager": len(summary["eager"]),
        "lazy_seconds": f"{lazy.seconds:.1f}",
        "ahead": f"{ahead.cpu:.1f} s CPU ({summary['deferred']} of {summary['deferred']} blobs)",
        "first_call": f"{rows[0]['first']:.2f} s ({CALLED[0]}: {compiled} blobs)",
        "hit": f"{hits[0]['first'] * 1000:.1f} ms",
        "command": f"`{command}`",
    }


def call_functions(name: str) -> set[str]:
    """Return the functions that a call of one graph runs, the graph's own included."""
    import emit
    import graph

    g = next(g for g in graph.by_hand() if g.name == name)
    return {name, *(emit.function_name(n, g) for n in g.operations)}


def main() -> None:
    """Run the whole demo."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("fx-llvm-demo"), metavar="DIR")
    parser.add_argument("--keep", action="store_true", help="keep the cache of an earlier run")
    parser.add_argument("--compiler", default="", metavar="NAME", help="compiler of IR: clang's name, or lazyck-irc")
    parser.add_argument("--graphs", choices=("auto", "torch", "hand"), default="auto")
    parser.add_argument("--row", type=Path, metavar="FILE", help="write a row of docs/projects.md")
    options = parser.parse_args()
    work = options.work.absolute()
    project, library = work / "project", work / "project" / "libfx.so"
    if not options.keep:
        shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True, exist_ok=True)
    env = environment(work)
    compiler = options.compiler or generate.ir_compiler()
    ninja: list[str | Path] = [sys.executable, "-m", "ninja", "-C", project, "--quiet"]

    show("generate: one file of LLVM IR per function, and a dispatcher in C++")
    graphs, origin = generate.graphs(options.graphs)
    modules = generate.write_project(project, graphs, compiler)
    print(f"{len(graphs)} graphs (by {origin}), {len(modules)} functions, to be compiled by {compiler}")

    show(f"IR before and after optimisation, all in {work.name}/ir; {SHOWN}:")
    save_both(modules, work / "ir")
    for stage in ("before", "after"):
        print(f"--- {SHOWN}.{stage}.ll\n{(work / 'ir' / f'{SHOWN}.{stage}.ll').read_text().strip()}")

    show("build: the project's own ninja, under lazyck")
    shutil.rmtree(project / "obj", ignore_errors=True)
    lazy = run([sys.executable, "-m", "lazyck", "build", "full", "--tmp-dir", work / "tmp", "--", *ninja], env, work)
    summary = json.loads(next((work / "tmp" / "libs").glob("libfx-*/summary.json")).read_text())

    show("first process: a graph and the functions that it calls are compiled when it is called")
    rows, compiled = call_graphs(library, env)
    used = set().union(*(call_functions(name) for name in CALLED))
    if not options.keep and compiled != len(used):
        sys.exit(f"fx_llvm: {compiled} blobs were compiled, {len(used)} are used")

    show("second process: everything comes from the cache")
    hits, again = call_graphs(library, env)
    if again:
        sys.exit(f"fx_llvm: the second process compiled {again} blobs")
    print(f"{compiled} of {len(modules)} blobs compiled, {again} of them twice")

    show("the same IR as objects of other machines")
    foreign_objects(project, env, work)

    if options.row:
        show("ahead of time: the same build without lazyck")
        ahead_dir = work / "ahead"
        shutil.rmtree(ahead_dir, ignore_errors=True)
        shutil.copytree(project, ahead_dir, ignore=shutil.ignore_patterns("obj", "*.so", ".ninja*"))
        ahead = run([sys.executable, "-m", "ninja", "-C", ahead_dir, "--quiet"], env, work)
        command = "python examples/fx_llvm/fx_llvm.py --row ROW.json"
        row = row_of(command, compiler, summary, lazy, ahead, rows, hits)
        options.row.write_text(json.dumps(row, indent=1) + "\n")
        print(f"{options.row}: {row}")


if __name__ == "__main__":
    main()
