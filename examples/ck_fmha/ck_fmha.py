"""Fetch, generate, build lazily, call, measure and tabulate Composable Kernel's fused attention.

    python examples/ck_fmha/ck_fmha.py --work DIR [--samples N] [--all-dims] [--table FILE]
        [--json FILE] [--row FILE]

This needs the packages that `rocm_home.missing_packages` names. It needs no GPU: a stand-in for the
HIP runtime answers for the device and records the launches.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import calls
import rocm_home
import sampling

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
sys.path[:0] = [str(HERE.parent), str(REPOSITORY)]

from sources import FLASH_ATTN, check, cpu_of_children, fetch  # noqa: E402

from lazyck.interceptor.log import read_log  # noqa: E402

CK = "csrc/composable_kernel"  # in flash-attn
ARCH = "gfx942"
OPTDIM = "32,64,128,256"
BLOBS = "*/blob/*_d[0-9]*.cpp"  # the four dispatchers, generated beside the blobs, are *_api.cpp
DIRECTIONS = {"fwd": ("fwd", "fwd_splitkv", "fwd_appendkv"), "bwd": ("bwd",)}
KERNELS = {
    "fwd": "FmhaFwdKernel",
    "bwd": "FmhaBwdConvertQGradKernel, FmhaBwdDQDKDVKernel, FmhaBwdOGradDotOKernel",
}
FLAGS = [
    "-O3", "-std=c++17", "-fPIC", "-fgpu-flush-denormals-to-zero", "-fno-offload-uniform-block",
    "-DCK_TILE_FMHA_FWD_FAST_EXP2=1", "-DCK_TILE_FMHA_FWD_SPLITKV_API=1", "-DCK_TILE_FMHA_FWD_APPENDKV_API=1",
    "-DCK_ENABLE_BF16", "-DCK_ENABLE_FP16", "-DCK_ENABLE_FP32", "-DCK_USE_XDL", "-DUSE_PROF_API=1",
    "-DCK_TILE_FLOAT_TO_BFLOAT16_DEFAULT=3", "-Wno-invalid-constexpr", "-w",
]  # fmt: skip


def say(text: str) -> None:
    print(f"ck_fmha: {text}", flush=True)


# -- sources -------------------------------------------------------------------------------------


def generate(ck: Path, out: Path, directions: list[str], all_dims: bool) -> dict[str, list[Path]]:
    """Run CK's own generator as flash-attn does; return the files of each direction."""
    files = {}
    for direction in directions:
        target = out / "blob" / direction
        target.mkdir(parents=True, exist_ok=True)
        script = ck / "example" / "ck_tile" / "01_fmha" / "generate.py"
        argv = [sys.executable, str(script), "-d", direction, "--output_dir", str(target), "--receipt", "2"]
        subprocess.run(argv if all_dims else [*argv, "--optdim", OPTDIM], check=True, stdout=subprocess.DEVNULL)
        files[direction] = sorted(target.glob("*.cpp"))
    return files


def write_ninja(build: Path, ck: Path, files: dict[str, list[Path]], libraries: list[str]) -> None:
    """Write a ninja file with one compile per file and one link per library; nothing in it knows of
    lazyck."""
    includes = [ck / "include", ck / "library" / "include", ck / "example" / "ck_tile" / "01_fmha"]
    flags = " ".join([*FLAGS, f"--offload-arch={ARCH}", *(f"-I{i}" for i in includes)])
    lines = [
        "rule cc", f"  command = $$ROCM_PATH/bin/hipcc {flags} -c $in -o $out", "  description = CC $out",
        "rule link", "  command = $$ROCM_PATH/bin/hipcc -shared -o $out @$out.rsp", "  description = LINK $out",
        "  rspfile = $out.rsp", "  rspfile_content = $in_newline", "",
    ]  # fmt: skip
    for library in libraries:
        sources = [f for d in DIRECTIONS[library] for f in files.get(d, [])]
        sources.sort(key=lambda f: not f.name.endswith("_api.cpp"))  # compiles the long ones first
        objects = []
        for source in sources:
            objects.append(f"obj/{source.parent.name}/{source.stem}.o")
            lines.append(f"build {objects[-1]}: cc {source}")
        lines.append(f"build libfmha_{library}.so: link {' '.join(objects)}")
    (build / "build.ninja").write_text("\n".join(lines) + "\n")


# -- building, calling, measuring ------------------------------------------------------------------


@dataclass(frozen=True)
class Sizes:
    """Holds bytes of code and data, without debug symbols. The `shipped` sizes are those in a
    wheel: deflated."""

    lazy: float = 0.0
    lazy_shipped: float = 0.0
    ahead: float = 0.0
    ahead_shipped: float = 0.0
    dispatchers: float = 0.0  # the dispatchers are in both
    dispatchers_shipped: float = 0.0


@dataclass
class Measured:
    """Holds what the table shows."""

    files: dict[str, int] = field(default_factory=dict)
    wall: float = 0.0
    cpu: float = 0.0
    intercept: float = 0.0
    dispatchers: dict[str, float] = field(default_factory=dict)
    libraries: dict[str, dict[str, Any]] = field(default_factory=dict)
    called: list[calls.Call] = field(default_factory=list)
    sample: sampling.Sample = field(default_factory=sampling.Sample)
    sizes: Sizes = field(default_factory=lambda: Sizes())


def build_lazily(build: Path, home: Path, m: Measured, checked: int) -> None:
    """Run `lazyck build full` around ninja, and compare `checked` blobs of each library with those
    of an ahead-of-time build."""
    env = {**os.environ, "ROCM_PATH": str(home)}
    argv = [sys.executable, "-m", "lazyck", "build", "full", "--gpu-archs", ARCH, "--toolchain", "rocm"]
    argv += ["--blobs", BLOBS, "--tmp-dir", str(build / "lazyck"), "--install-dir", str(build / "install")]
    argv += ["--", sys.executable, "-m", "ninja", "-C", str(build), "--quiet"]
    cpu, begun = cpu_of_children(), time.monotonic()
    done = subprocess.run(argv, env=env, cwd=REPOSITORY)
    if done.returncode != 0:
        sys.exit(f"the lazy build failed with status {done.returncode}")
    m.wall, m.cpu = time.monotonic() - begun, cpu_of_children() - cpu
    check(build / "lazyck", checked, cwd=REPOSITORY, env=env)
    for line in (build / ".ninja_log").read_text().splitlines()[1:]:
        start, end, _, output, _ = line.split("\t")
        if output.endswith("_api.o"):
            m.dispatchers[Path(output).stem] = (int(end) - int(start)) / 1000
    calls = read_log(build / "lazyck" / "intercept.log")
    m.intercept = sum(c.microseconds for c in calls if c.action == "defer") / 1e6
    for path in sorted((build / "lazyck" / "libs").glob("*/summary.json")):
        summary = json.loads(path.read_text())
        m.libraries[summary["library"]] = summary


def check_symbols(build: Path, library: str, m: Measured) -> None:
    """Check that every symbol of a blob that a dispatcher leaves undefined has its stub, and that
    none is undefined after the link. Exit if not."""
    dispatchers = [str(p) for p in build.glob("obj/*/*_api.o") if library == ("bwd" if "bwd" in p.name else "fwd")]
    undefined = set(nm(["-u", *dispatchers]))
    linked = str(build / f"libfmha_{library}.so")
    stubs = {s for b in inspect(linked)["blobs"] for s in b["symbols"]}
    left = subprocess.run(["ldd", "-r", linked], capture_output=True, text=True)
    missing = [line for line in (left.stdout + left.stderr).splitlines() if "undefined symbol" in line]
    own = {s for s in undefined if "fmha_" in s}
    summary = m.libraries[f"libfmha_{library}"]
    summary["undefined"], summary["stubbed"] = len(own), len(own & stubs)
    summary["missing_after_link"] = len(missing)
    if own - stubs or missing:
        sys.exit(
            f"{linked}: {len(own - stubs)} symbols without a stub, {len(missing)} undefined after the link: "
            f"{missing[:3]}"
        )


def nm(words: list[str]) -> list[str]:
    out = subprocess.run(["nm", *words], capture_output=True, text=True, check=True).stdout
    return [line.split()[-1] for line in out.splitlines() if " U " in f" {line}"]


def inspect(library: str) -> Any:
    argv = [sys.executable, "-m", "lazyck", "inspect", library, "--json"]
    return json.loads(subprocess.run(argv, capture_output=True, text=True, check=True, cwd=REPOSITORY).stdout)


def compile_driver(build: Path, ck: Path, home: Path, library: str) -> Path:
    """Compile the small program that calls one of CK's dispatchers."""
    exe = build / f"driver_{library}"
    includes = [f"-I{ck / 'include'}", f"-I{ck / 'library' / 'include'}", f"-I{ck / 'example' / 'ck_tile' / '01_fmha'}"]
    hipcc = str(home / "bin" / "hipcc")
    flags = [f for f in FLAGS if f != "-O3"]
    source = str(HERE / f"driver_{library}.cpp")
    subprocess.run([hipcc, *flags, "-O1", "--cuda-host-only", *includes, "-c", source, "-o", f"{exe}.o"], check=True)
    rpath = f"-Wl,-rpath,{build / 'install'}"
    subprocess.run(
        [hipcc, f"{exe}.o", "-o", str(exe), f"-L{build / 'install'}", f"-lfmha_{library}", rpath], check=True
    )
    return exe


def call(build: Path, home: Path, exe: Path, words: list[str], name: str, m: Measured) -> calls.Call:
    """Call one variant in a process of its own and record what it did."""
    done = calls.call(build, home, [str(exe), *words], name, ARCH)
    m.called.append(done)
    say(f"{name}: status {done.status}, {done.compilers} compiler calls, {done.launches} launches of {done.kernels}")
    return done


def prebuild_one(build: Path, home: Path, library: str) -> None:
    """Compile one blob ahead of time, into the cache that the runtime reads."""
    linked = str(build / "install" / f"libfmha_{library}.so")
    name = str(inspect(linked)["blobs"][0]["name"])
    env = {**os.environ, "ROCM_PATH": str(home), "LAZYCK_CACHE_DIR": str(build / "cache")}
    words = ["--manifest", linked, "--gpu-archs", ARCH, name]
    for verb in ("build", "list"):
        argv = [sys.executable, "-m", "lazyck", "prebuild", verb, *words]
        done = subprocess.run(argv, env=env, cwd=REPOSITORY, capture_output=True, text=True)
        if done.returncode or (verb == "list" and done.stdout != f"{name}\t{ARCH}\n"):
            sys.exit(f"prebuild {verb} of {name}: {done.stdout}{done.stderr}")
    say(f"prebuilt {name}")


def sample_ahead_of_time(build: Path, ck: Path, home: Path, blobs: list[Path], count: int) -> sampling.Sample:
    """Compile `count` blobs as an ordinary build would."""
    includes = [f"-I{ck / 'include'}", f"-I{ck / 'library' / 'include'}", f"-I{ck / 'example' / 'ck_tile' / '01_fmha'}"]
    hipcc = [str(home / "bin" / "hipcc"), *FLAGS, f"--offload-arch={ARCH}", *includes]

    def compile_one(blob: Path) -> sampling.Compiled:
        cpu = cpu_of_children()
        made = build / f"sample{len(list(build.glob('sample*.o')))}.o"
        subprocess.run([*hipcc, "-c", str(blob), "-o", str(made)], check=True)
        cpu = cpu_of_children() - cpu
        size = sampling.loaded_size(made)
        say(f"ahead of time: {blob.name[:70]}: {cpu:.1f} s CPU, {size / 1024:.0f} KB")
        return sampling.Compiled(cpu, size)

    return sampling.take(blobs, count, compile_one)


def measure_sizes(build: Path, home: Path, m: Measured) -> Sizes:
    """Measure the lazy libraries with their bundle, and extrapolate the ahead-of-time sizes from
    the sample."""

    def stripped(library: Path) -> Path:
        out = build / f"{library.stem}.stripped"
        subprocess.run(["strip", "-o", str(out), str(library)], check=True)
        return out

    def link(name: str, objects: Iterable[Path]) -> Path:
        out = build / name
        subprocess.run([str(home / "bin" / "hipcc"), "-shared", "-o", str(out), *map(str, sorted(objects))], check=True)
        return out

    objects = sorted(build.glob("sample*.o"))
    linked = link("sample.so", objects)
    repeated = sampling.shared_size([sampling.loaded_size(o) for o in objects], sampling.loaded_size(linked))
    # This includes the names of what the dispatchers call and of their own templates, which are in
    # both libraries.
    dispatchers = stripped(link("dispatchers.so", build.glob("obj/*/*_api.o")))
    blobs = sampling.extrapolate(m.sample, lambda c: c.size) - repeated * sum(m.sample.classes.values())
    share = sampling.deflated_size([stripped(linked)]) / stripped(linked).stat().st_size
    libraries = [stripped(p) for p in sorted((build / "install").glob("*.so"))]
    bundle = [p for p in (build / "install" / "lazyck").rglob("*") if p.is_file()]
    return Sizes(
        lazy=sum(p.stat().st_size for p in [*libraries, *bundle]),
        lazy_shipped=sampling.deflated_size([*libraries, *bundle]),
        ahead=blobs + dispatchers.stat().st_size,
        ahead_shipped=blobs * share + sampling.deflated_size([dispatchers]),
        dispatchers=dispatchers.stat().st_size,
        dispatchers_shipped=sampling.deflated_size([dispatchers]),
    )


# -- the table -----------------------------------------------------------------------------------


def table(m: Measured) -> str:
    """Return a table of all figures."""
    names = sorted(m.libraries, reverse=True)
    libraries = [m.libraries[n] for n in names]

    def row(title: str, *cells: object) -> str:
        return f"| {title} | " + " | ".join(str(c) for c in cells) + " |"

    def each(fmt: str, key: str, scale: float = 1.0) -> list[str]:
        return [fmt.format(float(lib[key]) * scale) for lib in libraries]

    def dispatcher(name: str) -> str:
        mine = [s for d, s in m.dispatchers.items() if ("bwd" in d) == ("bwd" in name)]
        return " + ".join(f"{s:.0f}" for s in sorted(mine, reverse=True))

    lines = [
        row("", *(f"`{n}.so`" for n in names)),
        "|---|" + "---|" * len(names),
        row("blobs deferred", *each("{:.0f}", "deferred")),
        row("lazy / eager", *(f"{lib['lazy']} / {len(lib['eager'])}" for lib in libraries)),
        row(
            "symbols the dispatchers leave undefined / with a stub",
            *(f"{lib['undefined']} / {lib['stubbed']}" for lib in libraries),
        ),
        row("undefined after the link", *each("{:.0f}", "missing_after_link")),
        row("dispatchers, s (the project's own compiles)", *(dispatcher(n) for n in names)),
        row(
            "probe / bundle / link, s",
            *(
                f"{lib['probe_seconds']:.1f} / {lib['bundle_seconds']:.1f} / {lib['link_seconds']:.1f}"
                for lib in libraries
            ),
        ),
        row("lazyck's own CPU, s", *each("{:.1f}", "cpu_seconds")),
        row("lazyck's own peak memory, MB", *each("{:.0f}", "peak_rss_kib", 1 / 1024)),
        row(
            "library / bundle, MB",
            *(f"{lib['library_bytes'] / 1e6:.1f} / {lib['bundle_bytes'] / 1e6:.1f}" for lib in libraries),
        ),
    ]
    lines += [
        "",
        f"Whole lazy build of {sum(m.files.values())} files: {m.wall:.0f} s wall on {os.cpu_count()} cores, "
        f"{m.cpu:.0f} s CPU; deferring {sum(m.files.values()) - len(m.dispatchers)} of them took "
        f"{m.intercept:.1f} s in all.",
    ]
    if m.sample.count:
        ahead = sampling.extrapolate(m.sample)
        lines.append(
            f"Ahead of time, extrapolated from {m.sample.count} sampled blobs: {ahead / 3600:.1f} core-hours, "
            f"{ahead / m.cpu:.0f} times the CPU of the lazy build."
        )
    lines += ["", "| call | s | status | compiler calls | launches | kernels |", "|---|---|---|---|---|---|"]
    lines += [row(c.name, f"{c.seconds:.3f}", c.status, c.compilers, c.launches, c.kernels) for c in m.called]
    return "\n".join(lines)


def project_row(m: Measured, count: int, all_dims: bool) -> dict[str, object]:
    """Return the row of docs/projects.md."""
    libraries = list(m.libraries.values())
    first, hit = (max((c.seconds for c in m.called if word in c.name), default=0.0) for word in ("first", "second"))
    hours = sampling.extrapolate(m.sample) / 3600 if m.sample.count else 0.0
    return {
        "project": "Composable Kernel's fused attention" + (", all head dims" if all_dims else ""),
        "build": "ninja",
        "toolchain": "rocm (clang 19)",
        "files": count,
        "symbols": sum(lib["symbols"] for lib in libraries),
        "lazy": sum(lib["lazy"] for lib in libraries),
        "eager": sum(len(lib["eager"]) for lib in libraries),
        "lazy_seconds": f"{m.wall:.0f} ({m.cpu:.0f} CPU)",
        "ahead": f"{hours:.1f} core-hours ({m.sample.count} of {count} blobs sampled)",
        "first_call": f"{first:.1f} s",
        "hit": f"{hit * 1000:.0f} ms",
        "command": "`python examples/ck_fmha/ck_fmha.py --work DIR" + (" --all-dims`" if all_dims else "`"),
    }


def figures(m: Measured) -> dict[str, float]:
    """Return the figures that `benchmarks/ck.py` reports, in seconds and bytes."""
    libraries = list(m.libraries.values())
    return {
        "files": sum(m.files.values()),
        "symbols": sum(lib["symbols"] for lib in libraries),
        "own_cpu": sum(lib["cpu_seconds"] for lib in libraries) + m.intercept,
        "cpu": m.cpu,
        "wall": m.wall,
        "ahead_cpu": sampling.extrapolate(m.sample) if m.sample.count else 0,
        **asdict(m.sizes),
        "sampled": m.sample.count,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("ck-fmha-work"), help="where everything goes (some 300 MB)")
    parser.add_argument("--libraries", default="fwd,bwd", help="which of fwd,bwd to build")
    parser.add_argument("--only", default="", help="one generator direction, such as fwd_appendkv: a short run")
    parser.add_argument(
        "--all-dims", action="store_true", help="without --optdim: 3,351 files, 72 of which do not compile"
    )
    parser.add_argument("--samples", type=int, default=16, help="blobs to compile ahead of time for the extrapolation")
    parser.add_argument("--hdim", default="128", help="head dim of the variants that are called")
    parser.add_argument("--table", type=Path, help="write the table here too")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--row", type=Path, help="write the row of docs/projects.md here, as JSON")
    args = parser.parse_args()
    if rocm_home.missing_packages():
        sys.exit(f"a real HIP compiler is missing; as root: {rocm_home.missing_packages()}")
    work = args.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    ck = fetch(FLASH_ATTN, work, CK) / CK
    build = work / (("all-dims" if args.all_dims else "optdim") + (f"-{args.only}" if args.only else ""))
    build.mkdir(exist_ok=True)
    home = rocm_home.make(work / "rocm", ARCH)
    m = Measured()
    libraries = args.libraries.split(",")
    directions = [d for lib in libraries for d in DIRECTIONS[lib] if args.only in ("", d)]
    files = generate(ck, build, directions, args.all_dims)
    m.files = {d: len(files[d]) for d in directions}
    say("generated " + ", ".join(f"{d}: {n}" for d, n in m.files.items()))
    for old in ("obj", "install", "lazyck", "cache"):
        shutil.rmtree(build / old, ignore_errors=True)
    for sample in build.glob("sample*.o"):
        sample.unlink()
    (build / ".ninja_log").unlink(missing_ok=True)
    write_ninja(build, ck, files, libraries)
    build_lazily(build, home, m, checked=1 if args.only else 4)
    for library in libraries:
        check_symbols(build, library, m)
        if args.only:  # the drivers call dispatchers that were not built
            prebuild_one(build, home, library)
            continue
        exe = compile_driver(build, ck, home, library)
        first = call(build, home, exe, [args.hdim], f"{library} d{args.hdim}, first process", m)
        again = call(build, home, exe, [args.hdim], f"{library} d{args.hdim}, second process", m)
        if first.status or again.status or again.compilers:
            sys.exit(f"{library}: the call failed, or the second process was no pure cache hit")
        if again.kernels != KERNELS[library]:
            sys.exit(f"{library}: launched {again.kernels}, expected {KERNELS[library]}")
    if args.all_dims and "fwd" in libraries:
        bad = call(build, home, build / "driver_fwd", ["160", "splitkv"], "split-kv d160, which cannot compile", m)
        if bad.status != 4 or "error:" not in bad.errors:
            sys.exit(f"split-kv d160: expected a CompileError with the compiler's message, got {bad.status}")
    blobs = [f for d in directions for f in files[d] if not f.name.endswith("_api.cpp")]
    if args.samples:
        m.sample = sample_ahead_of_time(build, ck, home, blobs, args.samples)
        m.sizes = measure_sizes(build, home, m)
    text = table(m)
    print(text)
    if args.table:
        args.table.write_text(text + "\n")
    if args.json:
        args.json.write_text(json.dumps(figures(m), indent=1) + "\n")
    if args.row:
        args.row.write_text(json.dumps(project_row(m, len(blobs), args.all_dims), indent=1) + "\n")


if __name__ == "__main__":
    main()
