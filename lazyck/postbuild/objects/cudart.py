"""Gives a lazy library and its blobs one CUDA runtime, where the library links the static one.

Two copies would be two runtimes: the last error of one is unknown to the other, and neither knows a
launch that the other has configured. All names of the archive are hidden. Exporting them would
offer them to everything else in the process, for example to a user of a shared runtime of another
release. So the library exports a single symbol with a name of its own: a table of the runtime's
functions. Every blob is linked with functions that have the runtime's names and jump through the
table.

The wrappers of a library with host units (see stubs.py) are shared in this way too, since blobs
also use the handles of its kernels. If the runtime is a shared one, the table has only these.
"""

import hashlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lazyck import abi, proc
from lazyck.errors import BuildError
from lazyck.files import write_atomic
from lazyck.machines import MACHINES
from lazyck.postbuild.objects import elf
from lazyck.postbuild.objects.assembly import symbol, text
from lazyck.postbuild.objects.inputs import LinkInputs
from lazyck.toolchains.command import LinkCommand
from lazyck.toolchains.gpu_runtimes import GPU_RUNTIMES, GpuRuntime

_WRAP = "__wrap_"
_SEARCHED = re.compile(r'"?-L"?([^"\s]+)"?')


@dataclass(frozen=True)
class CudaRuntime:
    """Holds the functions of a static runtime, or a library's wrappers of a shared one's, and the
    name of the table by which its blobs reach them."""

    functions: tuple[str, ...]
    table: str
    machine: str

    @property
    def wrapped(self) -> tuple[str, ...]:
        return tuple(f.removeprefix(_WRAP) for f in self.functions if f.startswith(_WRAP))


def find_archive(gpu: GpuRuntime, link: LinkCommand, inputs: LinkInputs, env: Mapping[str, str]) -> str:
    """Return the path of the static runtime that `link` takes, or an empty string."""
    archive = gpu.static_archive
    named = [path for path in inputs.archives if os.path.basename(path) == archive]
    driver = link.call.argv[: link.call.prefix]
    if link.call.tool == "nvcc":
        shown = proc.run([*driver, "--dryrun", "-shared", "x.o", "-o", "x.so"], cwd=link.call.cwd, env=env)
        named += [os.path.join(d, archive) for d in _SEARCHED.findall(shown.stdout + shown.stderr)]
    else:
        shown = proc.run([*driver, f"-print-file-name={archive}"], cwd=link.call.cwd, env=env)
        named.append(shown.stdout.strip())
    return next((path for path in named if os.path.isabs(path) and os.path.isfile(path)), "")


def read(archive: str, library: str, machine: str) -> CudaRuntime:
    """Return the runtime in `archive`, for `library` (a soname or name). Raises `FormatError`."""
    prefixes = (gpu.prefix for gpu in GPU_RUNTIMES if gpu.static_archive == os.path.basename(archive))
    named = re.compile(rf"(?:__)?(?:{'|'.join(prefixes)})[A-Z]\w*")
    found = {name for _, member in elf.read_archive(archive) for name in member.functions if named.fullmatch(name)}
    return _named(tuple(sorted(found)), library, machine)


def wrappers(functions: Iterable[str], library: str, machine: str) -> CudaRuntime:
    return _named(tuple(_WRAP + f for f in sorted(functions)), library, machine)


def _named(functions: tuple[str, ...], library: str, machine: str) -> CudaRuntime:
    tag = hashlib.sha256("\0".join((library, machine, *functions)).encode("utf-8", "surrogateescape")).hexdigest()
    return CudaRuntime(functions, f"{abi.PRIVATE_LEAD}cudart_{tag[:16]}", machine)


def render_table(runtime: CudaRuntime) -> str:
    return "\n".join(
        [
            ' .section .data.rel.ro.lazyck_cudart,"aw",@progbits',
            " .p2align 3",
            *symbol(runtime.table, "object", "protected"),
            *(f" .quad {name}" for name in runtime.functions),
            f" .size {runtime.table},{8 * len(runtime.functions)}",
            "",
        ]
    )


def render_jumps(runtime: CudaRuntime) -> str:
    """Return the text of the functions that jump through the table. Raises `BuildError`."""
    code = MACHINES.get(runtime.machine)
    if code is None:
        raise BuildError(f"lazyck has no CUDA runtime for machine {runtime.machine!r}", "link with -cudart shared")
    lines = [code.assembler_options, ' .section .text.lazyck_cudart,"ax",@progbits', " .p2align 4", " .cfi_startproc"]
    for i, function in enumerate(runtime.functions):
        name = function.removeprefix(_WRAP)
        jump = text(code.through_table, table=runtime.table, offset=8 * i)
        lines += [" .p2align 4", *symbol(name, "function"), code.landing, jump, f" .size {name},.-{name}"]
    return "\n".join([*lines, " .cfi_endproc", ' .section .note.GNU-stack,"",@progbits', ""])


def assemble(runtime: CudaRuntime, directory: Path, compiler: Sequence[str]) -> Path:
    """Make in `directory` the object that blobs are linked with."""
    write_atomic(directory / "cudart.S", render_jumps(runtime).encode())
    made = directory / f"{runtime.table}.o"
    argv = [*compiler, "-c", "-x", "assembler", "cudart.S", "-o", made.name]
    proc.check("assembling the way to the CUDA runtime", argv, cwd=directory)
    return made
