"""Compiles HIP in passes: makes the steps that `-###` shows, as the real hipcc has them, and runs
each.

Compiled at once, kernels are functions of the host's object. In passes they are in an image: a
shared library in an offload bundle, which the host's object holds and registers, and which the
runtime loads.
"""

import os
import struct
import tempfile
from pathlib import Path

from fake_rocm.home import HOME, FakeRocmError
from fake_rocm.options import Invocation, Mode, Role

DRIVER = f"{HOME}/bin/hipcc"
_BUNDLE = "-fake-rocm-bundle"
_DEVICE, _IMAGE = "-fcuda-is-device", "-fcuda-include-gpubinary"
# clang's front end also gets these options, which do not matter here.
_IGNORED = {"-sys-header-deps", "-disable-llvm-passes", "-emit-llvm-uselists"}
_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
_EXPORTS = "{ global: *.kd; *.var; local: *; };\n"


def can_be_shown(invocation: Invocation) -> bool:
    """Return whether the command compiles one HIP source to an object."""
    return invocation.mode is Mode.OBJECT and [p.is_hip for p in invocation.inputs] == [True]


def steps(arguments: list[str], invocation: Invocation, archs: list[str]) -> list[list[str]]:
    """Return the commands that together do what `arguments` ask for."""
    (source,) = (p.argv[0] for p in invocation.inputs)
    own = {"-###", "-c", source}
    words = [w for w in _without_output(arguments) if w not in own]
    end = ["-x", "hip", source]
    base = f"{tempfile.gettempdir()}/fake_rocm-{os.getpid()}"
    device, image = f"{base}.o", f"{base}.hipfb"
    output = invocation.output or Path(source).stem + ".o"
    depends = {w for p in invocation.parts if p.role is Role.DEPENDENCY for w in p.argv}
    device_words = [w for w in words if w not in depends]
    return [
        [DRIVER, "-cc1", _DEVICE, "-emit-obj", *device_words, "-o", device, *end],
        [DRIVER, _BUNDLE, ",".join(archs), device, "-o", image],
        [DRIVER, "-cc1", "-emit-obj", _IMAGE, image, *words, "-o", output, *end],
    ]


def _without_output(arguments: list[str]) -> list[str]:
    kept: list[str] = []
    words = iter(arguments)
    for word in words:
        if word in ("-o", "-x"):
            next(words, None)
        elif not word.startswith(("-o", "-x")):
            kept.append(word)
    return kept


class Pass:
    """Holds one step: `arguments` for the driver. Some of the words that it is made from say what
    the step is."""

    def __init__(self, arguments: list[str]) -> None:
        self.is_device = False
        self.image = ""
        self.rule = ""  # the dependency file of a pass that only lists what is read
        self.arguments: list[str] = []
        words = iter(arguments)
        for word in words:
            if word == _DEVICE:
                self.is_device = True
            elif word == _IMAGE:
                self.image = next(words, "")
            elif word == "-dependency-file":
                self.rule = next(words, "")
            elif word == "-emit-obj":
                self.arguments.append("-c")
            elif word == "-Eonly":
                self.arguments.append("-M")
            elif word not in _IGNORED:
                self.arguments.append(word)
        if self.rule:
            self.arguments += ["-MF", self.rule]
        if not self.is_device and not self.image:
            raise FakeRocmError("-cc1: neither a device's pass nor the host's")


def bundle(arguments: list[str], link: list[str]) -> int:
    """Make the image of a device's object with `link`, words that link a shared library."""
    archs, source, _, target = arguments
    with tempfile.TemporaryDirectory(prefix="fake_hipcc.") as scratch:
        exports, code = Path(scratch, "exports"), Path(scratch, "code.so")
        exports.write_text(_EXPORTS)
        options = ["-shared", "-Wl,--gc-sections", f"-Wl,--version-script={exports}", "-Wl,--build-id=none"]
        status = os.spawnvp(os.P_WAIT, link[0], [link[0], *options, source, "-o", str(code), *link[1:]])
        if status == 0:
            Path(target).write_bytes(_bundled(code.read_bytes(), archs.split(",")))
    return status


def _bundled(code: bytes, archs: list[str]) -> bytes:
    names = [b"host-x86_64-unknown-linux", *(f"hipv4-amdgcn-amd-amdhsa--{a}".encode() for a in archs)]
    begin = 4096
    rows = [(begin, 0 if name.startswith(b"host") else len(code), name) for name in names]
    head = _MAGIC + struct.pack("<Q", len(rows))
    head += b"".join(struct.pack("<QQQ", offset, size, len(name)) + name for offset, size, name in rows)
    return head.ljust(begin, b"\0") + code
