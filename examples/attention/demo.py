"""Build the attention library lazily on the embedded ROCm, call a few variants, call them again.

    python demo.py [--work DIR]

This needs no GPU: `scripts/fake_rocm_home` compiles HIP with the host's C++ compiler and runs
kernels on the CPU.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
FAKE_ROCM = REPOSITORY / "scripts" / "fake_rocm_home"


def show(text: str) -> None:
    print(f"\n== {text}", flush=True)


def run(argv: list[str | Path], env: dict[str, str]) -> float:
    """Show and run a command, and say now and then that it still runs; return its seconds. End the
    demo when it fails."""
    print("$ " + " ".join(Path(w).name if isinstance(w, Path) else w for w in argv), flush=True)
    begun = time.monotonic()
    with subprocess.Popen([str(w) for w in argv], env=env) as process:
        while process.returncode is None:
            try:
                process.wait(timeout=4)
            except subprocess.TimeoutExpired:
                wipe = "\r\x1b[K" if sys.stdout.isatty() else ""  # lazyck may have begun this line
                print(f"{wipe}  ({time.monotonic() - begun:.0f} s so far)", flush=True)
    if process.returncode:
        sys.exit(f"demo: the command above ended with status {process.returncode}")
    return time.monotonic() - begun


def call_variants(library: str) -> None:
    """Call three variants forward and one of them backward; compare the results with NumPy's."""
    sys.path.insert(0, str(HERE))
    import attention
    import numpy as np
    import reference

    lib = attention.load(library)
    rng = np.random.default_rng(7)
    for dim, mask in ((64, "causal"), (64, "none"), (128, "causal")):
        q, k, v, dout = (rng.standard_normal((1, 48, 2, dim)).astype(np.float32) for _ in range(4))
        begun = time.monotonic()
        out, lse = lib.forward(q, k, v, mask=mask)
        seconds = time.monotonic() - begun
        rule = reference.Rule(scale=dim**-0.5, right=0 if mask == "causal" else None)
        q64, k64, v64 = (a.astype(np.float64)[0] for a in (q, k, v))
        error = np.abs(out[0] - reference.forward(q64, k64, v64, rule)[0]).max()
        print(f"forward  d{dim} fp32 {mask:6}: {seconds:6.2f} s, max error {error:.1e}", flush=True)
        if dim == 64 and mask == "causal":
            begun = time.monotonic()
            grads = lib.backward(q, k, v, out, lse, dout, mask=mask)
            seconds = time.monotonic() - begun
            expected = reference.backward(q64, k64, v64, dout.astype(np.float64)[0], rule)
            error = max(np.abs(g[0] - e).max() for g, e in zip(grads, expected, strict=True))
            print(f"backward d{dim} fp32 {mask:6}: {seconds:6.2f} s, max error {error:.1e}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("lazyck-demo"), help="where it is built (made anew)")
    parser.add_argument("--call", metavar="LIBRARY", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.call:
        call_variants(args.call)
        return
    work = args.work.resolve()
    for old in ("build", "tmp", "install", "cache"):
        shutil.rmtree(work / old, ignore_errors=True)
    work.mkdir(parents=True, exist_ok=True)
    env = {
        **os.environ,
        "ROCM_PATH": str(FAKE_ROCM),
        "FAKE_ROCM_ARCH": "gfx942",
        "LAZYCK_CACHE_DIR": str(work / "cache"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    show("configure: the project's own generator, one file per variant")
    run([sys.executable, HERE / "configure.py", "--build-dir", work / "build", "--gpu-archs", "gfx942"], env)
    blobs = len(list((work / "build" / "blob").glob("*.cpp")))
    print(f"{blobs} generated files in {work / 'build' / 'blob'}")
    show("build: the project's own ninja, under lazyck")
    lazyck: list[str | Path] = [sys.executable, "-m", "lazyck"]
    options: list[str | Path] = ["--gpu-archs", "gfx942", "--tmp-dir", work / "tmp", "--install-dir", work / "install"]
    built = run([*lazyck, "build", "full", *options, "--", "ninja", "-C", work / "build", "--quiet"], env)
    print(f"the whole lazy build took {built:.1f} s")
    library = work / "install" / "libattention.so"
    script: list[str | Path] = [sys.executable, Path(__file__), "--call", library]
    show("first process: each variant is compiled when it is called")
    first = run(script, env)
    show("second process: everything comes from the cache")
    second = run(script, env)
    show("what was compiled, and when")
    for entry in sorted((work / "cache").rglob("*.so"), key=lambda p: p.stat().st_mtime):
        when = time.strftime("%H:%M:%S", time.localtime(entry.stat().st_mtime))
        print(f"  {when}  {entry.relative_to(work / 'cache')}")
    compiled = len(list((work / "cache").rglob("*.so")))
    print(f"\nfirst process {first:.1f} s, second {second:.1f} s; {compiled} of {blobs} blobs compiled")


if __name__ == "__main__":
    main()
