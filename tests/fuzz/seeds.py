"""Writes the first inputs of each target into tests/fuzz/corpus/, and the shim's configuration that `shim_words` needs:

python tests/fuzz/seeds.py corpus DIRECTORY
python tests/fuzz/seeds.py conf FILE
"""

from __future__ import annotations

import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from lazyck.interceptor.conf import SharedConf, ShimConf, render
from lazyck.manifest import BlobRecord, Manifest, Recipe, encode
from lazyck.toolchains import by_name

MANIFEST = Manifest(
    "demo", "libdemo.so", "cache", "", ("gfx942",),
    (Recipe("host", "g++", "/h", ("HOME_X",), ("c++", "-c", "\x01S"), ("c++", "\x01I"), ("--arch=\x01a",),
            (("A", "b"),)),),
    (BlobRecord("add", "src/add.cpp", 0, "0123456789abcdef", ("_Z3addii", "value")),),
    (("eager", "why"),), "seed", "d", "x86_64",
)  # fmt: skip

INCLUDES = {
    "plain": b'#include <a.h>\n#include "b\\\nc.h"\n%: include_next <x>\n',
    "hidden": b'/* #include "no.h" */ R"x(#include "no.h")x" // \\\n#include "no.h"\n#import "yes.h"\n',
    "open": b'#include "a\n#include <b\nR"( \' 1\'000 "\\\n',
}
WORDS = {
    "compile": b"0-c blob/k.cpp -o 'k.o' -MD -MT \"a b\" -MQ '\\ $#' -I inc -isystem=x -include h.h",
    "link": b"1-shared a.o b.o -o lib.so -Wl,-soname,x,@y -L. -lx -l:y -Xlinker z",
    "nvcc": b'1-x cu -gencode arch=compute_90,code=sm_90 -optf a,b \\"x\\" -ccbin=g++ -rdc=true -dc',
    "hip": b"0--offload-arch=gfx942:xnack- -fgpu-rdc -target x --cuda-gpu-arch=a @none -Wp,-MD,x.d,-MT,y",
}


def small_library(hash_style: str) -> bytes:
    with tempfile.TemporaryDirectory() as work:
        source, out = Path(work, "a.cpp"), Path(work, "a.so")
        source.write_text('int add(int a, int b) { return a + b; }\nextern "C" int value() { return 1; }\n')
        subprocess.run(
            ["g++", "-O1", "-shared", "-fPIC", "-nostdlib", "-s", "-Wl,--build-id=none", "-Wl,-z,noseparate-code",
             "-fno-asynchronous-unwind-tables", f"-Wl,--hash-style={hash_style}", source, "-o", out], check=True,
        )  # fmt: skip
        return out.read_bytes()


def corpus(directory: Path) -> None:
    gnu, sysv = small_library("gnu"), small_library("sysv")
    kept = b"LZHDRS1\0" + struct.pack("<Q", 3) + b"key" + struct.pack("<Q6Q", 1, *range(6)) + b"/dev/null\0"
    rows = struct.pack("<4Q", 4096, 0, 8192, 1)
    seeds = {
        "manifest": {"demo": encode(MANIFEST), "empty": encode(Manifest("d", "", "", "", (), (), ()))},
        "elf": {"gnu": gnu, "sysv": sysv},
        "entry": {
            "gnu": b"T" + gnu,
            "sysv": b"T" + sysv,
            "note": b"N" + rows,
            "odd-note": b"n" + rows,
            "raw": b"R" + gnu,
        },
        "shim_words": WORDS,
        "shim_includes": INCLUDES,
        "shim_headers": {"one": kept},
    }
    for target, files in seeds.items():
        (directory / target).mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            (directory / target / name).write_bytes(data)


def conf(file: Path) -> None:
    shim = ShimConf("nvcc", by_name("cuda"), ("/bin/false",), ("/bin/false",), "x86_64-linux-gnu")
    paths = {k: f"/nonexistent/{k}" for k in ("log", "compiles", "headers", "links", "python")}
    shared = SharedConf(
        blobs=("*/blob/*",), bootstrap="", path_map=(("/nonexistent/shim", "/bin"),), env_names=(), restore=(),
        shim_dirs=(), **paths,
    )  # fmt: skip
    file.write_bytes(render(shim, shared))


if __name__ == "__main__":
    {"corpus": corpus, "conf": conf}[sys.argv[1]](Path(sys.argv[2]))
