"""Make stand-ins for libc10_cuda and libtorch_cuda, which a torch without CUDA lacks and a CUDA
extension links.

Their names show that they are not the real ones (`libc10_cuda-stand-in.so`), and every function in
them throws an exception that says what it is. One does more: `c10_cuda_check_implementation`, which
torch's macros call with the result of every CUDA call, throws for a CUDA error, as the real one
does, and says which and where.
"""

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

LIBRARIES = ("c10_cuda", "torch_cuda")
CHECK = "_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_jb"
_HEAD = """\
#include <cstdint>
#include <stdexcept>
#include <string>

extern "C" const char* cudaGetErrorName(int);
extern "C" const char* cudaGetErrorString(int);

static void refuse(const char* name) {
    throw std::runtime_error(std::string("stand-in for libc10_cuda: this torch has no CUDA, and so no ") + name);
}

namespace c10::cuda {
void c10_cuda_check_implementation(std::int32_t error, const char* file, const char* function, std::uint32_t line,
                                   bool) {
    if (error == 0) return;
    throw std::runtime_error("CUDA error " + std::to_string(error) + " (" + cudaGetErrorName(error) + ": " +
                             cudaGetErrorString(error) + ") at " + file + ":" + std::to_string(line) + " in " +
                             function);
}
}  // namespace c10::cuda
"""


def make(directory: Path, symbols: Sequence[str] = ()) -> None:
    """Write both libraries: one defines `symbols`, the other is empty."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in LIBRARIES:
        text = render(symbols) if name == "c10_cuda" else ""
        source = directory / f"{name}.cpp"
        source.write_text(text)
        library = directory / f"lib{name}-stand-in.so"
        # A linker finds the library by a link, to a file whose name nobody takes for the real
        # library's.
        link = directory / f"lib{name}.so"
        link.unlink(missing_ok=True)
        link.symlink_to(library.name)
        argv = ["g++", "-std=c++17", "-shared", "-fPIC", "-w", str(source), "-o", str(library)]
        subprocess.run([*argv, f"-Wl,-soname,{library.name}"], check=True)


def render(symbols: Sequence[str]) -> str:
    """Return C++ that defines `symbols` (mangled names) and always the check of results."""
    lines = [_HEAD]
    readable = demangle(symbols)
    for i, symbol in enumerate(symbols):
        if symbol == CHECK:
            continue
        if "(" in readable[i]:
            lines.append(f'extern "C" void f{i}() __asm__("{symbol}");\nvoid f{i}() {{ refuse("{readable[i]}"); }}')
        else:  # a variable
            lines.append(f'extern "C" char d{i}[256] __asm__("{symbol}");\nchar d{i}[256] = {{}};')
    return "\n".join(lines) + "\n"


def demangle(symbols: Sequence[str]) -> list[str]:
    """Return the readable forms of mangled C++ names."""
    done = subprocess.run(["c++filt"], input="\n".join(symbols), capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def undefined(library: Path, environment: dict[str, str]) -> list[str]:
    """Return what neither `library` nor its dependencies define, without the symbols of the Python
    that loads it."""
    done = subprocess.run(["ldd", "-r", str(library)], env=environment, capture_output=True, text=True)
    found = re.findall(r"undefined symbol: (\S+)", done.stdout + done.stderr)
    return sorted({s for s in found if not re.match(r"_?Py", s)})
