"""Tests kernels that are compiled elsewhere: by a compile service and on a farm, for a machine that
compiles none."""

import json
import sys
from pathlib import Path

import pytest
from support import REPOSITORY, Lazyck, Once, cuda_units, hip_units, running
from support.buildgrid_server import BuildGrid
from support.built_units import Built, used
from support.cuda_machine import needs_nvcc
from support.farm_cluster import Cluster
from support.rocm_layouts import need_real_hip, rocm6

pytestmark = pytest.mark.xdist_group("reapi")

FILES = {
    "blob.hip": """
#include "bare_hip.h"
template <int N> __global__ void scale(float* x) { x[threadIdx.x] *= N; }
int launch_it(int n, float* x) {
    if (n == 0) scale<2><<<1, 32>>>(x);
    if (n == 1) scale<3><<<1, 32>>>(x);
    return hipGetLastError();
}
""",
    "main.hip": """
#include "bare_hip.h"
static __global__ void own(float* x) { x[0] = 1; }
int launch_it(int, float*);
#define API extern "C" __attribute__((visibility("default"))) int
API launch(int n, float* x) { return launch_it(n, x); }
API unit(int, float* x) { own<<<1, 1>>>(x); return hipGetLastError(); }
""",
}


def make_hip(lazyck: Lazyck, where: Path) -> Built:
    grades = ("--kernels", "*/main.hip", "--blobs", "*/blob.hip")
    return hip_units.build(lazyck, where / "lazy", FILES, rocm6(where / "rocm"), grades=grades)


def make_cuda(lazyck: Lazyck, where: Path) -> Built:
    files = {
        name.replace(".hip", ".cu"): text.replace('#include "bare_hip.h"\n', "").replace("hipGet", "cudaGet")
        for name, text in FILES.items()
    }
    return cuda_units.build(lazyck, where / "lazy", files, blobs="*/blob.cu")


HIP = pytest.param("hip", marks=pytest.mark.hip)
CUDA = pytest.param("cuda", marks=[pytest.mark.cuda, needs_nvcc])


@pytest.fixture(scope="module", params=[HIP, CUDA])
def built(request: pytest.FixtureRequest, once: Once, lazyck_shared: Lazyck) -> Built:
    if request.param == "hip":
        need_real_hip()
    make = {"hip": make_hip, "cuda": make_cuda}[request.param]
    return once(f"{request.param}_units_elsewhere", lambda where: make(lazyck_shared, where))


@pytest.fixture
def lazy(built: Built, tmp_path: Path) -> Built:
    return built.fresh(tmp_path / "cache")


@pytest.fixture
def listener(lazy: Built, spy: Path, hip_spy: Path) -> Path:
    """Return the library that hears what the GPU runtime is told."""
    return spy if lazy.spy == "CUDA_SPY" else hip_spy


def test_a_call_gets_host_code_and_kernels_from_a_service(lazy: Built, listener: Path, buildgrid: BuildGrid) -> None:
    helper = lazy.cache.parent / "lazyck-remote"
    helper.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(REPOSITORY)!r})\n"
        "from lazyck.commands.remote_program import main\nmain()\n"
    )
    helper.chmod(0o755)
    env = {"LAZYCK_REMOTE_COMPILE": buildgrid.url, "LAZYCK_REMOTE_HELPER": str(helper)}
    before = buildgrid.begun
    for function in ("launch", "unit"):
        _, seen = lazy.run(listener, function, 1, **env)
        assert len(used(seen)) == 1
    assert [name.partition("-")[0] for name in lazy.entries] == ["blob.host", "blob.scale", "main.own"]
    assert buildgrid.begun - before == len(lazy.entries), "it compiled something itself"
    _, seen = lazy.run(listener, "launch", 1, LAZYCK_JIT="off")
    assert len(used(seen)) == 1


def executed(lazyck: Lazyck, lazy: Built, executor: str, **env: str) -> None:
    words = ("--manifest", lazy.where / "libx.so", "--all", "--gpu-archs", lazy.arch, "--json")
    own = {"LAZYCK_CACHE_DIR": str(lazy.cache), **env}
    done = lazyck("prebuild", "build", *words, "--executor", executor, env=own)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["failed"] == []
    assert lazy.entries == ["blob", "main"]  # a blob, and the device code of a source that is lazy by kernel


# What an executor is given differs between HIP and CUDA, not what it does, so each has one of them.
@pytest.mark.parametrize("built", [HIP], indirect=True)
def test_a_service_prebuilds_kernels(lazyck: Lazyck, lazy: Built, buildgrid: BuildGrid) -> None:
    executed(lazyck, lazy, buildgrid.url)


@pytest.mark.parametrize("built", [CUDA], indirect=True)
def test_a_farm_prebuilds_kernels(lazyck: Lazyck, lazy: Built, tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="needs lazyck[farm]")
    (tmp_path / "remote").mkdir(mode=0o700)
    with running(Cluster(tmp_path, f"{tmp_path}/remote|trusted"), "one") as cluster:
        executed(lazyck, lazy, cluster.url, LAZYCK_REMOTE=cluster.remote)
