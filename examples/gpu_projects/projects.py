"""Describe the projects of gpu_projects.py: their archives, their builds, and a call that reaches a
kernel."""

import sys
from dataclasses import dataclass, field
from pathlib import Path

from sources import GSPLAT, Source

HERE = Path(__file__).resolve().parent
TORCH_CUDA = HERE.parent / "torch_cuda"


@dataclass(frozen=True)
class Project:
    """Describes a project: its archive, the files that are blobs, how its build starts, a call, and
    the kernel that this call launches (a part of its mangled name). `build` and `call` are shell
    commands, run in the archive's directory."""

    source: Source
    blobs: tuple[str, ...]
    build: str
    call: str
    kernel: str
    variables: dict[str, str] = field(default_factory=dict)
    needs_torch: bool = True


_TORCH = """import ctypes, torch
ctypes.CDLL("libc10_cuda.so", mode=ctypes.RTLD_GLOBAL)
cuda = torch.ops.pretended.cuda
"""
_SETUP = f"{sys.executable} {TORCH_CUDA}/as_cuda_torch.py setup.py -q build_ext"


def _imported(name: str, pattern: str) -> str:
    """Return Python code that imports the extension `name` from the file that matches `pattern`, as
    `made`."""
    return (
        "import importlib.util, glob\n"
        f"spec = importlib.util.spec_from_file_location({name!r}, *glob.glob({pattern!r}))\n"
        "made = importlib.util.module_from_spec(spec); spec.loader.exec_module(made)\n"
    )


PROJECTS = {
    "torch_scatter": Project(
        Source(
            "torch-scatter==2.1.2",
            "torch_scatter-2.1.2.tar.gz",
            "69b3aa435f2424ac6a1bfb6ff702da6eb73b33ca0db38fb26989c74159258e47",
        ),
        ("*/csrc/*.cu", "*/csrc/*.cpp"),
        f"{_SETUP} --inplace",
        _TORCH
        + "import glob; torch.ops.load_library(*glob.glob('torch_scatter/_segment_csr_cuda*.so'))\n"
        + "source, rows = cuda(torch.rand(6, 4)), cuda(torch.tensor([0, 2, 6]))\n"
        + "print(torch.ops.torch_scatter.segment_sum_csr(source, rows, None).shape)\n",
        "segment_csr_",
        {"FORCE_ONLY_CUDA": "1", "TORCH_CUDA_ARCH_LIST": "9.0"},
    ),
    "gsplat": Project(
        GSPLAT,
        ("*/gsplat/cuda/*.cu", "*/gsplat/cuda/*.cpp"),
        f"{_SETUP} --inplace",
        _TORCH
        + _imported("csrc", "gsplat/csrc.so")
        + "turns, sizes = cuda(torch.rand(5, 4)), cuda(torch.rand(5, 3))\n"
        + "print(made.quat_scale_to_covar_preci_fwd(turns, sizes, True, True, False)[0].shape)\n",
        "quat_scale_to_covar_preci_fwd_kernel",
        {"TORCH_CUDA_ARCH_LIST": "9.0"},
    ),
    "causal_conv1d": Project(
        Source(
            "causal-conv1d==1.7.0",
            "causal_conv1d-1.7.0.tar.gz",
            "3202758494eaa7b597ce1c282dfa188889506bfcb92cad3c407d26736bfcd32b",
        ),
        ("*/csrc/*.cu", "*/csrc/*.cpp"),
        f"{_SETUP} --inplace",
        _TORCH
        + _imported("causal_conv1d_cuda", "causal_conv1d_cuda*.so")
        + "x, weight, out = cuda(torch.rand(2, 8, 16)), cuda(torch.rand(8, 4)), cuda(torch.rand(2, 8, 16))\n"
        + "made.causal_conv1d_fwd(x, weight, None, None, None, out, None, False)\n"
        + "print(out.shape)\n",
        "causal_conv1d_fwd_kernel",
        {"CAUSAL_CONV1D_FORCE_BUILD": "TRUE"},
    ),
    "exllamav2": Project(
        Source(
            "exllamav2==0.0.4",  # later versions have no source archive
            "exllamav2-0.0.4.tar.gz",
            "c9eeba99d817c79a6271c3efb0e54f1c5f046a4cab874210fd3745d46b465f56",
        ),
        ("*/exllamav2_ext/*.cu", "*/exllamav2_ext/*.cpp"),
        f"{_SETUP} --inplace",
        # cuBLAS, which a torch without CUDA does not bring along, is needed by functions that are
        # not called.
        "import sys; sys.setdlopenflags(1)\n"
        + _TORCH
        + _imported("exllamav2_ext", "exllamav2_ext*.so")
        + "x, weight, out = (cuda(torch.rand(*size).half()) for size in ((3, 64), (64,), (3, 64)))\n"
        + "made.rms_norm(x, weight, out, 1e-6)\n"
        + "print(out.shape)\n",
        "rms_norm_kernel",
        {"TORCH_CUDA_ARCH_LIST": "9.0"},
    ),
    "xformers": Project(
        Source(
            "xformers==0.0.35",
            "xformers-0.0.35.tar.gz",
            "f7fc183a58e4bf0e2ae339a18fb1b1d4a37854c0f2545b4f360fef001646ab76",
        ),
        ("*/xformers/csrc/*.cu", "*/xformers/csrc/*.cpp"),
        f"{_SETUP} --build-lib lib",
        _TORCH
        + "torch.ops.load_library('lib/xformers/_C.so')\n"
        + "print(torch.ops.xformers.sparse24_largest_mask_2d(cuda(torch.rand(64, 64).half())).shape)\n",
        "sparse24_largest_mask_2d_cu",
        {"TORCH_CUDA_ARCH_LIST": "9.0"},
    ),
    "natten": Project(
        Source(
            "natten==0.21.7",
            "natten-0.21.7.tar.gz",
            "8417236b74db079b2d23899ec8f77514fb2dc73d4bbd6b346a45b6967fc05ffb",
        ),
        ("*/csrc/*.cu", "*/csrc/*.cpp"),
        # NATTEN's own choice is a temporary directory, which is gone when the build ends.
        f'mkdir -p build && NATTEN_BUILD_DIR="$PWD/build" {_SETUP} --build-lib lib',
        _TORCH
        + _imported("libnatten", "lib/natten/libnatten*.so")
        + "q, k, v, out = (cuda(torch.rand(1, 16, 2, 32)) for _ in range(4)); total = cuda(torch.rand(1, 16, 2))\n"
        + "made.reference_na1d_forward(out, q, k, v, total, (3,), (1,), (1,), (False,), 1.0, (16,), 0)\n"
        + "print(out.shape)\n",
        "reference",
        # torch 2.13 needs C++20. CMake learns of it only by this variable.
        {
            "NATTEN_CUDA_ARCH": "9.0",
            "NATTEN_N_WORKERS": "2",
            "CMAKE_TOOLCHAIN_FILE": str(HERE / "cxx20.cmake"),
        },
    ),
    "xgboost": Project(
        Source(
            "xgboost==3.2.0",
            "xgboost-3.2.0.tar.gz",
            "99b0e9a2a64896cdaf509c5e46372d336c692406646d20f2af505003c0c5d70d",
        ),
        ("*/cpp_src/src/*.cu", "*/cpp_src/src/*.cc"),
        "cmake -S cpp_src -B build -G Ninja -DUSE_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=90 -DCMAKE_BUILD_TYPE=Release"
        # The project names the static runtime, before which nothing can stand.
        " -DCMAKE_CUDA_RUNTIME_LIBRARY=Shared -DCUDA_cudart_static_LIBRARY=$CUDA_HOME/lib64/libcudart.so"
        " && cmake --build build",
        (HERE / "train.py").read_text(),
        "SampleMean",
        needs_torch=False,
    ),
}
