"""Stand in for aiter's jit/core.py: generate variants, write a ninja file, compile with the hipcc
on PATH (under its real path), link with `$CXX @rsp`, and copy the result. Nothing in this file
knows of lazyck."""

import importlib.util
import os
import shutil
import subprocess

JIT = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(JIT))
HIP_FLAGS = (
    "-fPIC -std=c++17 -O1 -mcmodel=large -ffunction-sections -fdata-sections -fvisibility=hidden "
    "-fvisibility-inlines-hidden"
)
LINK_FLAGS = "-shared -mcmodel=large -ffunction-sections -Wl,--gc-sections -Wl,--cref -L$home/lib -lamdhip64"
HEADER = """#pragma once
#include <hip/hip_runtime.h>
template <int Dim> struct traits {};
template <typename Traits> float scale(float x);
template <int Factor> __global__ void multiply(float* at) { *at *= Factor; }
template <int Factor> float launch(float x) {
    float* at = nullptr;
    if (hipMalloc(reinterpret_cast<void**>(&at), sizeof x) != hipSuccess) return -1;
    (void)hipMemcpy(at, &x, sizeof x, hipMemcpyHostToDevice);
    hipLaunchKernelGGL(multiply<Factor>, dim3(1), dim3(1), 0, 0, at);
    if (hipGetLastError() != hipSuccess) return -2;
    (void)hipMemcpy(&x, at, sizeof x, hipMemcpyDeviceToHost);
    (void)hipFree(at);
    return x;
}
"""
BLOB = """#include "{api}.hpp"
using traits_0 = traits<{dim}>;
template <> float scale<traits_0>(float x) {{ return launch<{dim}>(x); }}
"""
DISPATCH = """#include "{api}.hpp"
template <> float scale<traits<32>>(float);
template <> float scale<traits<64>>(float);
__attribute__((noinline)) static float unused(float x) {{ return scale<traits<64>>(x); }}
using function = float (*)(float);
function table[] = {{scale<traits<32>>, scale<traits<64>>}};
extern "C" __attribute__((visibility("default"))) float mha_{api}(int dim, float x) {{
    function volatile f = scale<traits<64>>;
    return dim == 32 ? scale<traits<32>>(x) : dim == 64 ? f(x) : dim == 0 ? table[0](x) : -1;
}}
"""


def executable_path(name: str) -> str:
    found = shutil.which(name)
    assert found, name
    return os.path.realpath(found)


def compile_ops(name: str, fc_name: str = ""):  # type: ignore[no-untyped-def]
    """Stand in for aiter's decorator: a call of the decorated function builds the module `name`."""

    def decorate(function):  # type: ignore[no-untyped-def]
        api = name.removeprefix("libmha_")
        assert function.__name__ == f"compile_mha_{api}"
        return lambda: build(name, api)

    return decorate


def build(name: str, api: str) -> None:
    assert importlib.util.find_spec("aiter"), "the package is not to be found"
    assert os.environ["GPU_ARCHS"] == "gfx942", os.environ.get("GPU_ARCHS")
    hipcc = executable_path("hipcc")
    assert os.system(f"{hipcc} -mcmodel=large -x hip -E -P /dev/null -o /dev/null") == 0
    directory = os.path.join(JIT, "build", name)
    blob = os.path.join(directory, "blob")
    os.makedirs(blob, exist_ok=True)
    sources = {f"fmha_{api}_d{dim}.cpp": BLOB.format(api=api, dim=dim) for dim in (32, 64)}
    sources |= {f"fmha_{api}_api.cpp": DISPATCH.format(api=api), f"{api}.hpp": HEADER}
    for file, text in sources.items():
        with open(os.path.join(blob, file), "w") as f:
            f.write(text)
    if os.environ.get("BREAK") == api:
        with open(os.path.join(blob, f"fmha_{api}_api.cpp"), "a") as f:
            f.write("#error broken on purpose\n")
    names = sorted(s.removesuffix(".cpp") for s in sources if s.endswith(".cpp"))
    lines = [
        f"cxx = {os.environ.get('CXX', 'c++')}",
        f"home = {os.path.dirname(os.path.dirname(hipcc))}",
        f"rule hip\n  command = {hipcc} -I{blob} {HIP_FLAGS} --offload-arch=gfx942 -c $in -o $out",
        f"rule link\n  command = $cxx @$out.rsp {LINK_FLAGS} -o $out\n  rspfile = $out.rsp\n  rspfile_content = $in",
        *(f"build {n}.cuda.o: hip {blob}/{n}.cpp" for n in names),
        f"build {name}.so: link {' '.join(n + '.cuda.o' for n in names)}\n",
    ]
    with open(os.path.join(directory, "build.ninja"), "w") as f:
        f.write("\n".join(lines))
    done = subprocess.run(["ninja", "-v"], cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise SystemExit(f"[aiter] build [{name}] failed !!!!!!\n{done.stdout}")
    shutil.copy(os.path.join(directory, f"{name}.so"), os.path.join(ROOT, "op_tests", "cpp", "mha"))
