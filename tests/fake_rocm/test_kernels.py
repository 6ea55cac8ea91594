"""Tests that kernels compiled by the fake hipcc compute right results, and only on devices they
were compiled for."""

from pathlib import Path

import pytest
from support.launches import PROGRAMS, Run, read_launches

KERNEL = """
#include <hip/hip_runtime.h>
#include <cstdio>
namespace work {
template <class T> __global__ void twice(T* data) { data[threadIdx.x] *= 2; }
}
static __global__ void hidden(float* data) { data[0] += 1; }
int main() {
    float* data = nullptr;
    if (hipMalloc(&data, 256) != hipSuccess || hipMemset(data, 0, 256) != hipSuccess) return 2;
    hipLaunchKernelGGL(work::twice<float>, dim3(1, 1, 1), dim3(64), 0, 0, data);
    hipLaunchKernelGGL(hidden, dim3(2, 3), dim3(4, 5), 16, 0, data);
    const hipError_t status = hipGetLastError();
    puts(hipGetErrorName(status));
    return status == hipSuccess ? 0 : 1;
}
"""


@pytest.fixture
def program(tmp_path: Path, hipcc: Run) -> Path:
    (tmp_path / "program.hip").write_text(KERNEL)
    hipcc("--offload-arch=gfx942,gfx90a", "program.hip", "-o", "program")
    return tmp_path / "program"


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_kernels_with_barriers_shuffles_and_atomics_compute(arch: str, run: Run, hipcc: Run) -> None:
    hipcc(f"--offload-arch={arch}", "-O1", PROGRAMS / "kernels.hip", "-o", "program")
    assert run(["./program"], env={"FAKE_ROCM_ARCH": arch}).stdout == "ok\n"


def test_launch_brackets_and_dynamic_shared_arrays_compile_and_compute(run: Run, hipcc: Run) -> None:
    hipcc("-O1", PROGRAMS / "syntax.hip", "-o", "program")
    assert run(["./program"]).stdout.endswith("ok\n")


def test_narrow_floats_round_to_nearest_even(run: Run, hipcc: Run) -> None:
    hipcc("-O1", PROGRAMS / "narrow_floats.hip", "-o", "program")
    assert run(["./program"]).stdout == "ok\n"


def test_runtime_calls_answer_and_refuse_bad_arguments(run: Run, hipcc: Run) -> None:
    hipcc("--offload-arch=gfx942", PROGRAMS / "runtime.cpp", "-o", "program")
    done = run(["./program"], env={"FAKE_ROCM_ARCH": "gfx942,gfx1100"})
    assert done.stdout == "ok\n"
    assert "launched through its typed pointer" in done.stderr


def test_device_without_code_in_the_object_refuses_the_launch(program: Path, run: Run, tmp_path: Path) -> None:
    log = tmp_path / "launches"
    done = run([program], env={"FAKE_ROCM_ARCH": "gfx1100", "FAKE_ROCM_LAUNCH_LOG": str(log)}, fails=True)
    assert done.stdout == "hipErrorNoBinaryForGpu\n"
    assert read_launches(log) == []


def test_every_arch_asked_for_can_launch(program: Path, run: Run) -> None:
    for arch in ("gfx942", "gfx90a", "gfx942:sramecc+:xnack-"):
        assert run([program], env={"FAKE_ROCM_ARCH": arch}).stdout == "hipSuccess\n"


def test_code_for_another_xnack_mode_is_refused(run: Run, hipcc: Run, tmp_path: Path) -> None:
    (tmp_path / "program.hip").write_text(KERNEL)
    hipcc("--offload-arch=gfx90a:xnack+", "program.hip", "-o", "program")
    assert run(["./program"], env={"FAKE_ROCM_ARCH": "gfx90a:xnack+"}).stdout == "hipSuccess\n"
    assert run(["./program"], env={"FAKE_ROCM_ARCH": "gfx90a:xnack-"}, fails=True).stdout == "hipErrorNoBinaryForGpu\n"


def test_generic_code_runs_on_its_family(run: Run, hipcc: Run, tmp_path: Path) -> None:
    (tmp_path / "program.hip").write_text(KERNEL)
    hipcc("--offload-arch=gfx9-4-generic", "program.hip", "-o", "program")
    assert run(["./program"], env={"FAKE_ROCM_ARCH": "gfx942"}).stdout == "hipSuccess\n"
    assert run(["./program"], env={"FAKE_ROCM_ARCH": "gfx90a"}, fails=True).stdout == "hipErrorNoBinaryForGpu\n"


def test_machine_without_gpu_and_unknown_gpu_report_no_device(program: Path, run: Run) -> None:
    assert run([program], env={"FAKE_ROCM_ARCH": "none"}, fails=True).returncode == 2
    done = run([program], env={"FAKE_ROCM_ARCH": "gfx000"}, fails=True)
    assert done.returncode == 2
    assert "gfx000" in done.stderr


def test_launch_log_names_each_kernel_hidden_ones_too(program: Path, run: Run, tmp_path: Path) -> None:
    log = tmp_path / "launches"
    run([program], env={"FAKE_ROCM_LAUNCH_LOG": str(log)})
    twice, hidden = read_launches(log)
    assert (twice.kernel, twice.grid, twice.block, twice.shared) == ("_ZN4work5twiceIfEEvPT_", "1,1,1", "64,1,1", 0)
    assert (hidden.kernel, hidden.grid, hidden.block, hidden.shared) == ("_ZL6hiddenPf", "2,3,1", "4,5,1", 16)
    assert (twice.role, twice.arch) == ("cpu", "gfx942")


def test_launch_log_falls_back_to_the_launch_as_written(run: Run, hipcc: Run, tmp_path: Path) -> None:
    (tmp_path / "program.hip").write_text(KERNEL)
    hipcc("-s", "program.hip", "-o", "program")
    log = tmp_path / "launches"
    run(["./program"], env={"FAKE_ROCM_LAUNCH_LOG": str(log)})
    assert [launch.kernel for launch in read_launches(log)] == ["work::twice<float>", "hidden"]


def test_kernels_of_threads_and_processes_take_turns(run: Run, hipcc: Run, tmp_path: Path) -> None:
    (tmp_path / "program.hip").write_text(
        """
        #include <hip/hip_runtime.h>
        #include <thread>
        #include <unistd.h>
        #include <sys/wait.h>
        __global__ void meet(int* out) {
            __shared__ int sum;
            if (threadIdx.x == 0) sum = 0;
            __syncthreads();
            atomicAdd(&sum, 1);
            __syncthreads();
            if (sum != 64) atomicAdd(out, 1);
        }
        int work() {
            int wrong[4] = {};
            std::thread threads[4];
            for (int t = 0; t < 4; ++t) threads[t] = std::thread([&, t] {
                for (int i = 0; i < 50; ++i) hipLaunchKernelGGL(meet, 4, 64, 0, 0, &wrong[t]);
            });
            for (auto& thread : threads) thread.join();
            return wrong[0] + wrong[1] + wrong[2] + wrong[3];
        }
        int main() {
            int wrong = work();
            const pid_t child = fork();
            if (child == 0) _exit(work());
            int status = 0;
            waitpid(child, &status, 0);
            return wrong + status;
        }
        """
    )
    hipcc("program.hip", "-o", "program", "-pthread")
    log = tmp_path / "launches"
    run(["./program"], env={"FAKE_ROCM_LAUNCH_LOG": str(log)})
    launches = read_launches(log)
    assert len(launches) == 400
    assert len({launch.pid for launch in launches}) == 2
