"""Build aiter's fused attention lazily with aiter's own build; call it, sample it, tabulate it.

    python examples/aiter/aiter_mha.py --work DIR [--only fwd|bwd] [--samples N] [--row FILE]

aiter's `jit/core.py` drives the build of the forward and backward library, from the `amd-aiter`
source archive of PyPI or from `--aiter-dir`. This needs the packages that
`rocm_home.missing_packages` names, and what aiter's build imports (`pip install packaging pandas
psutil setuptools`). It needs no GPU: a stand-in for the HIP runtime answers for the device and
records the launches.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "ck_fmha"), str(HERE.parent.parent)]

import attention_build  # noqa: E402
import calls  # noqa: E402
import rocm_home  # noqa: E402
import sampling  # noqa: E402
import sources  # noqa: E402

SOURCE = sources.Source(
    "amd-aiter==0.1.7.post2.dev18",
    "amd_aiter-0.1.7.post2.dev18.tar.gz",
    "561b9b2baa4e75ea02890f2e54d1c2ce9e5c128bd1012b4f4780d47e1a5a41a1",
)
ARCH = "gfx942"
APIS = ("fwd", "bwd")
DISPATCHERS = {
    "fwd": ("fmha_fwd_api", "fmha_fwd_splitkv_api", "fmha_batch_prefill_api", "mha_fwd", f"asm_fmha_fwd_v3_{ARCH}"),
    "bwd": ("fmha_bwd_api", "mha_bwd", f"asm_fmha_bwd_v3_{ARCH}"),
}
KERNELS = {
    "fwd": "FmhaFwdKernel",
    "bwd": "FmhaBwdConvertQGradKernel, FmhaBwdDQDKDVKernel, FmhaBwdOGradDotOKernel",
}
BIT_CAST = "    return __builtin_bit_cast(Y, x);\n"
MENDED = """\
    if constexpr(__is_trivially_copyable(X) && __is_trivially_copyable(Y))
    {
        return __builtin_bit_cast(Y, x);
    }
    else
    {
        Y y;
        __builtin_memcpy(&y, &x, sizeof(Y));
        return y;
    }
"""


@dataclass(frozen=True)
class Built:
    """Holds one library of a lazy build: the `seconds` until it was linked, and lazyck's own
    summary."""

    api: str
    library: Path
    objects: Path
    seconds: float
    summary: dict[str, Any]


def say(text: str) -> None:
    print(f"aiter_mha: {text}", flush=True)


# -- sources ---------------------------------------------------------------------------------------


def copy_sources(given: Path | None, work: Path) -> Path:
    """Make a copy of aiter that its build may write into; patch the one header that Debian's HIP
    cannot compile."""
    original = given or sources.fetch(SOURCE, work)
    copy = work / "aiter"
    shutil.rmtree(copy, ignore_errors=True)
    say(f"copying {original} to {copy}")
    shutil.copytree(original, copy, symlinks=True, ignore=shutil.ignore_patterns(".git", "__pycache__", "*.so"))
    shutil.rmtree(copy / "aiter" / "jit" / "build", ignore_errors=True)
    header = composable_kernel(copy) / "include" / "ck_tile" / "core" / "utility" / "bit_cast.hpp"
    text = header.read_text()
    # In Debian's HIP 5.2 headers uint2 and similar types are not trivially copyable, but
    # __builtin_bit_cast requires that.
    if BIT_CAST not in text:
        sys.exit(f"{header}: not the text that this script knows how to mend")
    header.write_text(text.replace(BIT_CAST, MENDED))
    say(f"repaired in the copy, for Debian's HIP headers: {header.relative_to(copy)}")
    return copy


def meta(root: Path) -> Path:
    """Return the directory of `csrc` and `3rdparty`: the top of a checkout, or `aiter_meta` in the
    source archive."""
    return root if (root / "csrc").is_dir() else root / "aiter_meta"


def composable_kernel(root: Path) -> Path:
    return meta(root) / "3rdparty" / "composable_kernel"


# -- building --------------------------------------------------------------------------------------


def environment(home: Path) -> dict[str, str]:
    """Return the environment of aiter's build: it asks the `hipcc` on PATH for its options, and
    compiles with ROCM_PATH's."""
    path = os.pathsep.join([str(home / "bin"), os.environ["PATH"]])
    return {**os.environ, "ROCM_PATH": str(home), "PATH": path}


def build_lazily(root: Path, work: Path, home: Path, apis: list[str]) -> dict[str, Built]:
    """Build the libraries of `apis` by attention_build.py under `lazyck build full`."""
    tmp, install = work / "lazyck", work / "install"
    for old in (tmp, install, work / "cache"):
        shutil.rmtree(old, ignore_errors=True)
    words: list[str | Path] = ["build", "full", "--gpu-archs", ARCH, "--tmp-dir", tmp, "--install-dir", install]
    env = environment(home)
    words += ["--blobs", attention_build.BLOBS, "--", sys.executable, HERE / "attention_build.py", root, *apis]
    begun = time.time()
    sources.lazyck(*words, cwd=work, env=env)
    sources.check(tmp, 4, cwd=work, env=env)
    summaries = sources.summaries(tmp)
    built = {}
    for api in apis:
        objects = root / "aiter" / "jit" / "build" / f"libmha_{api}" / "build"
        linked = objects / f"libmha_{api}.so"
        seconds = linked.stat().st_mtime - begun
        built[api] = Built(api, install / linked.name, objects, seconds, dict(summaries[f"libmha_{api}"]))
    return built


# -- checks ----------------------------------------------------------------------------------------


def check(built: Built) -> None:
    """Check that every function that a dispatcher leaves undefined has its stub, and that none is
    undefined after the link. Exit if not."""
    objects = [str(built.objects / f"{name}.cuda.o") for name in DISPATCHERS[built.api]]
    undefined = {s for s in symbols("-u", *objects) if "fmha_" in s} - symbols("--defined-only", *objects)
    argv = [sys.executable, "-m", "lazyck", "inspect", str(built.library), "--json"]
    shown = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=sources.REPOSITORY).stdout
    stubs = {s for blob in json.loads(shown)["blobs"] for s in blob["symbols"]}
    left = subprocess.run(["ldd", "-r", str(built.library)], capture_output=True, text=True)
    missing = [line for line in (left.stdout + left.stderr).splitlines() if "undefined symbol" in line]
    say(
        f"{built.library.name}: the dispatchers leave {len(undefined)} fmha symbols undefined, "
        f"{len(undefined & stubs)} of them have a stub; {len(missing)} undefined after the link"
    )
    if undefined - stubs or missing:
        sys.exit(f"{built.library}: without a stub: {sorted(undefined - stubs)[:3]}; undefined: {missing[:3]}")
    # Later versions of aiter read these names from a library before they import it.
    archs = set(re.findall(rb"amdhsa--(gfx[0-9a-z]+)", built.library.read_bytes()))
    if archs - {ARCH.encode()}:
        sys.exit(f"{built.library}: aiter would take it for one of {archs}")


def symbols(*words: str) -> set[str]:
    """Return the names that `nm` lists."""
    out = subprocess.run(["nm", *words], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1] for line in out.splitlines() if line.strip() and not line.endswith(":")}


def compile_driver(root: Path, work: Path, home: Path, built: Built) -> Path:
    """Compile the small program that calls aiter's C++ interface."""
    ck, exe = composable_kernel(root), work / f"driver_{built.api}"
    includes = (
        HERE.parent / "ck_fmha", meta(root) / "csrc" / "include", meta(root) / "3rdparty" / "ck_helper",
        ck / "include", ck / "library" / "include", ck / "example" / "ck_tile" / "01_fmha",
    )  # fmt: skip
    flags = ["-O1", "-std=c++20", "-w", "-DUSE_ROCM=1", "-DCK_TILE_FMHA_FWD_SPLITKV_API=1", "--cuda-host-only"]
    hipcc = str(home / "bin" / "hipcc")
    source = str(HERE / f"driver_{built.api}.cpp")
    subprocess.run([hipcc, *flags, *(f"-I{i}" for i in includes), "-c", source, "-o", f"{exe}.o"], check=True)
    words = [f"{exe}.o", "-o", str(exe), f"-L{built.library.parent}", f"-lmha_{built.api}"]
    subprocess.run([hipcc, *words, f"-Wl,-rpath,{built.library.parent}"], check=True)
    return exe


def call_twice(built: Built, exe: Path, work: Path, home: Path, hdim: str) -> list[calls.Call]:
    """Call one variant in two processes: the first compiles it, the second must find it."""
    done = []
    for which in ("first", "second"):
        name = f"{built.api} d{hdim}, {which} process"
        made = calls.call(work, home, [str(exe), hdim], name, ARCH)
        say(f"{name}: {made.seconds:.2f} s, {made.compilers} compiler calls, {made.launches} launches: {made.kernels}")
        if made.status or made.kernels != KERNELS[built.api]:
            sys.exit(f"{name}: status {made.status}, launched {made.kernels}, expected {KERNELS[built.api]}")
        done.append(made)
    if not done[0].compilers or done[1].compilers:
        sys.exit(
            f"{built.api}: {done[0].compilers} compiler calls in the first process, {done[1].compilers} in the second"
        )
    return done


def sample_ahead_of_time(built: Built, work: Path, home: Path, count: int) -> tuple[sampling.Sample, int]:
    """Compile `count` blobs with the commands in aiter's ninja file; return the sample, and how
    many could not be compiled."""
    failed: list[Path] = []
    argv = [sys.executable, "-m", "ninja", "-C", str(built.objects), "-t", "commands"]
    listed = subprocess.run(argv, capture_output=True, text=True)
    commands: dict[Path, list[str]] = {}
    for line in listed.stdout.splitlines():
        if " -c " in line:
            words = shlex.split(line)
            source = Path(words[words.index("-c") + 1])
            if re.search(r"_d[0-9]", source.name):
                commands[source] = words

    def compile_one(blob: Path) -> sampling.Compiled:
        words = [str(home / "bin" / "hipcc"), *commands[blob][1:]]
        words[words.index("-o") + 1] = str(work / "sample.o")
        cpu = sources.cpu_of_children()
        status = subprocess.run(words, stderr=subprocess.DEVNULL).returncode
        cpu = sources.cpu_of_children() - cpu
        if status:
            failed.append(blob)
        said = "" if status == 0 else ", and then the compiler refuses it: aiter's own compiler is ROCm's, not this one"
        say(f"ahead of time: {blob.name[:80]}: {cpu:.1f} s CPU{said}")
        return sampling.Compiled(cpu, 0 if status else sampling.loaded_size(work / "sample.o"))

    return sampling.take(sorted(commands), count, compile_one), len(failed)


# -- the row ---------------------------------------------------------------------------------------


def row(built: Built, called: list[calls.Call], sample: sampling.Sample, failed: int) -> dict[str, object]:
    """Return the library's row of docs/projects.md."""
    s = built.summary
    own = sum(float(s[f"{step}_seconds"]) for step in ("probe", "bundle", "link"))
    ahead = "not sampled"
    if sample.count:
        hours = sampling.extrapolate(sample) / 3600
        ahead = f"{hours:.0f} core-hours ({sample.count} of {sum(sample.classes.values())} blobs sampled"
        ahead += f"; clang 19 refuses {failed} of them)" if failed else ")"
    return {
        "project": f"aiter 0.1.7.post2.dev18, `libmha_{built.api}.so`",
        "build": "aiter's `jit/core.py` (ninja)",
        "toolchain": "rocm: clang 19, gfx942",
        "files": s["deferred"],
        "symbols": s["symbols"],
        "lazy": s["lazy"],
        "eager": len(s["eager"]),
        "lazy_seconds": f"{built.seconds:.0f}, {own:.0f} of them lazyck's own",
        "ahead": ahead,
        "first_call": f"{called[0].seconds:.1f} s",
        "hit": f"{called[1].seconds * 1000:.0f} ms",
        "command": f"`python examples/aiter/aiter_mha.py --work DIR --only {built.api}`",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("aiter-work"), help="where everything goes (some 1.5 GB)")
    parser.add_argument("--aiter-dir", type=Path, help="a checkout or unpacked source archive, instead of PyPI's")
    parser.add_argument("--only", choices=APIS, help="one of the two libraries")
    parser.add_argument("--samples", type=int, default=8, help="blobs per library to compile ahead of time")
    parser.add_argument("--hdim", default="128", help="head dim of the variants that are called")
    parser.add_argument("--row", type=Path, help="write the rows of docs/projects.md: FILE.json as FILE-fwd.json, ...")
    args = parser.parse_args()
    if rocm_home.missing_packages():
        sys.exit(f"a real HIP compiler is missing; as root: {rocm_home.missing_packages()}")
    work = args.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    home = rocm_home.make(work / "rocm", ARCH)
    root = copy_sources(args.aiter_dir.resolve() if args.aiter_dir else None, work)
    apis = [args.only] if args.only else list(APIS)
    built = build_lazily(root, work, home, apis)
    rows = []
    for api in apis:
        check(built[api])
        exe = compile_driver(root, work, home, built[api])
        called = call_twice(built[api], exe, work, home, args.hdim)
        sample, failed = sample_ahead_of_time(built[api], work, home, args.samples)
        rows.append(row(built[api], called, sample, failed))
    print(json.dumps(rows, indent=1))
    if args.row:
        for api, made in zip(apis, rows, strict=True):
            args.row.with_name(f"{args.row.stem}-{api}.json").write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
