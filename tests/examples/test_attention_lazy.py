"""Tests the attention example under lazyck, with its own unmodified build.

On the embedded ROCm it computes. With a real HIP compiler and a stand-in runtime, it launches the
right kernel. tests/gpu tests it with nvcc.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import FAKE_ROCM, REPOSITORY, Lazyck

pytestmark = pytest.mark.xdist_group("attention-lazy")  # one worker, so that the library is built once
EXAMPLE = REPOSITORY / "examples" / "attention"
CK_EXAMPLE = REPOSITORY / "examples" / "ck_fmha"
PREAMBLE = f"import sys; sys.path.insert(0, {str(EXAMPLE)!r}); import attention, reference, numpy as np\n"
_COMPARE = """
rng = np.random.default_rng(3)
lib = attention.load(sys.argv[1])
for dim, mask in CASES:
    q, k, v, dout = (rng.standard_normal((1, 40, 2, dim)).astype(np.float32) for _ in range(4))
    out, lse = lib.forward(q, k, v, mask=mask)
    dq, dk, dv = lib.backward(q, k, v, out, lse, dout, mask=mask)
    rule = reference.Rule(dim ** -0.5, right=0 if mask == "causal" else None)
    wide = [a[0].astype(np.float64) for a in (q, k, v)]
    assert np.abs(out[0] - reference.forward(*wide, rule)[0]).max() < 1e-5
    for got, wanted in zip((dq, dk, dv), reference.backward(*wide, dout[0].astype(np.float64), rule)):
        assert np.abs(got[0] - wanted).max() < 1e-4
print("agrees")
"""
COMPARE = f"CASES = ((32, 'causal'), (64, 'none'))\n{_COMPARE}"
COMPARE_ONE = f"CASES = ((32, 'causal'),)\n{_COMPARE}"  # calls two of the variants instead of four


def python(code: str, library: Path, **env: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", PREAMBLE + code, str(library)]
    return subprocess.run(argv, env={**os.environ, **env}, capture_output=True, text=True, timeout=300)


def build(lazyck: Lazyck, where: Path, home: Path | None, configure: list[str], *options: str) -> Path:
    """Configure the example in `where`, build it lazily, and return the installed library."""
    argv = [sys.executable, str(EXAMPLE / "configure.py"), "--build-dir", str(where / "build dir"), *configure]
    subprocess.run(argv, check=True, capture_output=True)
    words = ["build", "full", *options, "--tmp-dir", where / "tmp", "--install-dir", where / "install"]
    env = {"ROCM_PATH": str(home)} if home else {}
    done = lazyck(*words, "--", sys.executable, "-m", "ninja", "-C", where / "build dir", "--quiet", env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return where / "install" / "libattention.so"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lazy attention")


@pytest.fixture
def library(lazyck: Lazyck, place: Path) -> Path:
    """Return the library of all 360 variants for two archs, linked lazily once for this module."""
    made = place / "install" / "libattention.so"
    if not made.exists():
        build(lazyck, place, FAKE_ROCM, ["--gpu-archs", "gfx942,gfx90a"], "--gpu-archs", "gfx942;gfx90a")
    return made


def entries(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "lazyck-cache").rglob("*.so"))


def test_all_variants_are_lazy_and_agree_with_the_reference(library: Path, lazyck: Lazyck, tmp_path: Path) -> None:
    shown = lazyck("inspect", library).stdout
    assert "360 lazy with 720 symbols, 0 eager" in shown
    done = python(COMPARE, library)
    assert done.stdout == "agrees\n", done.stderr
    assert len(entries(tmp_path)) == 5, "of the first variant its host code and its kernel"
    again = python(COMPARE, library, PATH="/nonexistent")
    assert (again.stdout, again.stderr) == ("agrees\n", "")


def test_only_the_arch_of_the_gpu_present_is_compiled(library: Path, tmp_path: Path) -> None:
    code = "q = np.ones((1, 4, 1, 32), np.float32); print(attention.load(sys.argv[1]).forward(q, q, q)[0].max())"
    for arch in ("gfx90a", "gfx942"):
        done = python(code, library, FAKE_ROCM_ARCH=arch)
        assert done.stdout == "1.0\n", done.stderr
        assert f"for {arch}" in done.stderr
    seen = {}
    for entry in entries(tmp_path):
        dump = subprocess.run(["readelf", "-p", ".fake_rocm.archs", entry], capture_output=True, text=True, check=True)
        seen[entry.parent.name.partition("-")[0]] = [a for a in ("gfx90a", "gfx942") if a in dump.stdout]
    assert seen == {"gfx90a": ["gfx90a"], "gfx942": ["gfx942"]}


def test_a_prebuilt_library_runs_frozen_without_a_compiler(library: Path, lazyck: Lazyck) -> None:
    names = ["attn_fwd_d32_fp32_batch_causal_nobias", "attn_bwd_d32_fp32_batch_causal_nobias"]
    done = lazyck("prebuild", "build", "--manifest", library, "--gpu-archs", "gfx942", *names)
    assert done.returncode == 0, done.stdout + done.stderr
    frozen = python(COMPARE_ONE, library, LAZYCK_JIT="off", PATH="/nonexistent")
    assert frozen.stdout == "agrees\n", frozen.stderr
    missing = python(
        "lib = attention.load(sys.argv[1]); q = np.ones((1, 4, 1, 128), np.float32); lib.forward(q, q, q)",
        library,
        LAZYCK_JIT="off",
    )
    assert "lazyck prebuild build" in missing.stderr
    assert "attn_fwd_d128_fp32_batch_nomask_nobias" in missing.stderr


def test_quick_relinks_the_installed_library(library: Path, lazyck: Lazyck, place: Path) -> None:
    done = lazyck("build", "quick", "--tmp-dir", place / "tmp")
    assert "nothing to do" in done.stdout, done.stderr


@pytest.mark.hip
def test_a_real_hip_compiler_builds_the_blob_and_the_stand_in_sees_its_kernel(
    lazyck: Lazyck, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(CK_EXAMPLE))
    import rocm_home

    if rocm_home.missing_packages():
        pytest.skip(f"needs a real HIP compiler: {rocm_home.missing_packages()}")
    home = rocm_home.make(tmp_path / "rocm", "gfx942")
    options = ["--gpu-archs", "gfx942", "--filter", "attn_fwd_d64_fp16_batch_causal_nobias"]
    library = build(lazyck, tmp_path, home, options, "--gpu-archs", "gfx942", "--toolchain", "rocm")
    fake = subprocess.run([FAKE_ROCM / "bin" / "fake-rocm-build"], capture_output=True, text=True, check=True)
    code = "q = np.ones((1, 64, 2, 64), np.float16); attention.load(sys.argv[1]).forward(q, q, q, mask='causal')"
    log = tmp_path / "launches"
    done = python(
        code, library, LD_LIBRARY_PATH=fake.stdout.strip(), FAKE_ROCM_ARCH="gfx942", FAKE_ROCM_LAUNCH_LOG=str(log)
    )
    assert done.returncode == 0, done.stderr
    assert "compiled attn_fwd_d64_fp16_batch_causal_nobias.attn_fwd_kernel-" in done.stderr
    launches = log.read_text().splitlines()
    assert launches
    assert all("role=standin" in line and "Li64E" in line for line in launches)
    kernel, host = sorted(entries(tmp_path))
    assert b"amdgcn-amd-amdhsa--gfx942" in kernel.read_bytes()
    assert b"amdgcn-amd-amdhsa--gfx942" not in host.read_bytes()


def test_the_packed_library_computes_on_a_machine_without_a_compiler(
    library: Path, lazyck: Lazyck, tmp_path: Path
) -> None:
    profile = tmp_path / "profile"
    assert python(COMPARE_ONE, library, LAZYCK_RECORD=str(profile)).stdout == "agrees\n"
    words = ["pack", "--manifest", library, "--gpu-archs", "gfx942", "--blob-list", profile]
    done = lazyck(*words, "--tar", tmp_path / "kernels.tar.xz")
    assert done.returncode == 0, done.stdout + done.stderr
    there = tmp_path / "deployed"
    shutil.copytree(library.parent, there)
    subprocess.run(["tar", "-xJf", tmp_path / "kernels.tar.xz", "-C", there], check=True)
    own = {"LAZYCK_CACHE_DIR": str(tmp_path / "empty"), "PATH": "/nonexistent", "FAKE_ROCM_ARCH": "gfx942"}
    done = python(COMPARE_ONE, there / library.name, **own, LAZYCK_JIT="off")
    assert (done.stdout, done.stderr) == ("agrees\n", "")
    assert not (tmp_path / "empty").exists()
    missing = "q = np.ones((1, 4, 1, 128), np.float32); attention.load(sys.argv[1]).forward(q, q, q)"
    done = python(missing, there / library.name, **own, LAZYCK_JIT="off")
    assert done.returncode != 0
    assert "LAZYCK_JIT=off forbids compiling it" in done.stderr
    assert "lazyck prebuild build --manifest" in done.stderr


def test_three_runs_cold_recorded_replayed(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE.parent))
    import three_runs

    argv = (sys.executable, "-c", PREAMBLE + COMPARE_ONE, str(library))
    cold, recorded, replayed = three_runs.run_three(three_runs.Program("attention", argv, {}), tmp_path)
    # The first variant is compiled as host code and kernel. From their costs it is known that the
    # other variant costs less as a whole.
    assert (cold.compiles, recorded.compiles, replayed.compiles) == (3, 3, 0)
    assert (replayed.loads, cold.unused) == (3, 0)
    assert "| attention | replayed |" in three_runs.render([cold, recorded, replayed])


CALLED = ("attn_fwd_d32_fp32_batch_nomask_nobias", "attn_bwd_d32_fp32_batch_nomask_nobias")
WARM_UP = REPOSITORY / "examples" / "warm_up"


@pytest.fixture(params=["c", "python"])
def warm_up(request: pytest.FixtureRequest, tmp_path: Path, lazyck: Lazyck) -> tuple[str, ...]:
    """Return the command of the warm-up example, in each of its languages."""
    if request.param == "python":
        return (sys.executable, str(WARM_UP / "warm_up.py"))
    include = lazyck("--include-dir").stdout.strip()
    argv: list[str | Path] = [
        "cc",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-I",
        include,
        WARM_UP / "warm_up.c",
        "-o",
        tmp_path / "warm_up",
        "-ldl",
    ]
    subprocess.run(argv, check=True)
    return (str(tmp_path / "warm_up"),)


def example(*words: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    full = {**os.environ, "PYTHONPATH": str(REPOSITORY), "FAKE_ROCM_ARCH": "gfx942", **env}
    return subprocess.run([*map(str, words)], env=full, capture_output=True, text=True, timeout=300)


def test_the_examples_of_warming_up_prefetch_and_replay(
    library: Path, tmp_path: Path, warm_up: tuple[str, ...]
) -> None:
    first, second = CALLED
    done = example(*warm_up, library, "prefetch", first)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(rf"{first} took \d+\.\d s, \d+ KiB\n1 of 1 blobs ready\n", done.stdout), done
    profile = tmp_path / "profile"
    profile.write_text("".join(f"{name}\n" for name in CALLED))
    done = example(*warm_up, library, "replay", profile)
    assert re.fullmatch(rf"{second} took .*\n2 of 2 blobs ready\n", done.stdout), done
    again = example(*warm_up, library, "replay", profile, PATH="/nonexistent", LAZYCK_JIT="off")
    assert (again.returncode, again.stdout) == (0, "2 of 2 blobs ready\n"), again
    failed = example(*warm_up, library, "replay", "/nonexistent")
    assert failed.returncode == 1
    assert "cannot read the profile '/nonexistent'" in failed.stderr
    assert "Traceback" not in failed.stderr


def test_the_example_in_python_lists_records_and_then_forbids_compiling(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAZYCK_BY_KERNEL", "0")  # each variant is one entry
    warm_up = (sys.executable, WARM_UP / "warm_up.py", library)
    script = tmp_path / "call.py"
    call = "print(attention.load(sys.argv[1]).forward(q, q, q)[0].max())"
    script.write_text(f"{PREAMBLE}q = np.ones((1, 4, 1, int(sys.argv[2])), np.float32); {call}")
    profile = tmp_path / "profile"
    done = example(*warm_up, "run", profile, script, library, "32")
    assert done.stdout == "1.0\n1 of 360 blobs loaded, 0 from the cache; 1 compiles\n", done.stderr
    assert f"\n{CALLED[0]}\tlibattention\t" in profile.read_text()
    shown = example(*warm_up, "list", "attn_*_d32_fp32_batch_nomask_nobias").stdout
    assert sorted(shown.splitlines()) == [f"{CALLED[1]}\t-", f"{CALLED[0]}\tcached"]
    again = example(*warm_up, "run", profile, script, library, "32", PATH="/nonexistent")
    assert again.stdout == "1.0\n1 of 360 blobs loaded, 1 from the cache; 0 compiles\n", again.stderr
    other = example(*warm_up, "run", profile, script, library, "64")
    assert other.returncode != 0
    assert "attn_fwd_d64_fp32_batch_nomask_nobias" in other.stderr
    assert len(entries(tmp_path)) == 1
