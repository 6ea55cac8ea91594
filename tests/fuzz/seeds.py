"""Writes the first inputs of each target into tests/fuzz/corpus/, the shim's configuration for
`shim_words`, or the dictionary for `py_words`:

python tests/fuzz/seeds.py corpus DIRECTORY
python tests/fuzz/seeds.py conf FILE
python tests/fuzz/seeds.py options FILE
"""

import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from lazyck import abi
from lazyck.formats.manifest import BlobRecord, Manifest, Recipe, UnitRecipes, encode
from lazyck.interceptor.shims import SharedConf, ShimConf, render
from lazyck.remote import EntryName, entry_record, lease
from lazyck.toolchains import ALL, by_name

MANIFEST = Manifest(
    "demo", "libdemo.so", "cache", "", ("gfx942",),
    (Recipe("host", "g++", "/h", ("HOME_X",), ("c++", "-c", "\x01S"), ("c++", "\x01I"), ("--arch=\x01a",),
            (("A", "b"),)),),
    (BlobRecord("add", "src/add.cpp", 0, "0123456789abcdef", ("_Z3addii", "value"),
                units=UnitRecipes("ab" * 8, 0, 0)),),
    (("eager", "why"),), "seed", "d", "x86_64",
)  # fmt: skip
# The table of a host unit has the kernels that it registers, its device variables, and the line of
# the whole blob.
TABLE = (
    b"kernel\t_Z3addPf\tptx\tadd\t\n"
    b"kernel\t_ZN35_GLOBAL__N__LAZYCK_e6e2f491a66ebf4a3mulEPf\tptx\tmul\tvoid (*)(float *)\n"
    b"whole\t*\t\t\t\nvariable\t_ZL5scale\nfile\t/a.cuh\n"
)

RECORD = entry_record.EntryRecord(
    EntryName("0123456789abcdef" * 2, "libdemo/gfx942-hip-1/add-0123456789abcdef.so"), "ab" * 32, 12345, 20.5, 70000,
    (entry_record.Signature("A" * 43 + "=", "A" * 86 + "=="),),
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
COMMANDS = {
    "arguments": [{"directory": "/d", "file": "a.cpp", "arguments": ["c++", "-c", "a.cpp"], "output": "a.o"}],
    "command": [{"directory": "d", "file": "a.cpp", "command": "c++ -DX='a b' -c \"a.cpp\""}],
    "earlier": [{"directory": "/", "file": "dev/null", "arguments": ["c++"]}] * 2,
}
LOG = b"defer\tblob\thipcc\ta.o\ta.cpp\t1\t20\npass\tquery\tc++\t-\ta\\tb.c\t0\t2\n"


def archive(magic: bytes, *members: tuple[bytes, bytes]) -> bytes:
    out = magic
    for name, data in members:
        out += b"%-16s%-12d%-6d%-6d%-8s%-10d`\n" % (name, 0, 0, 0, b"644", len(data))
        out += data + b"\n" * (len(data) & 1)
    return out


def text(value: bytes) -> bytes:
    return struct.pack("<I", len(value)) + value


def record(kind: bytes) -> bytes:
    fields = b"".join(map(text, (b"c++", b"host", b"/cwd", b"a.cpp", b"a.o", b"9:00000000"))) + struct.pack("<II", 1, 2)
    fields += text(b"-c") + text(b"a.cpp") + struct.pack("<I", 1) + text(b"A") + text(b"b")
    return abi.RECORD_MAGIC + struct.pack("<II", abi.RECORD_VERSION, len(fields) + 16) + kind + fields


def small_library(hash_style: str) -> bytes:
    with tempfile.TemporaryDirectory() as work:
        source, out = Path(work, "a.cpp"), Path(work, "a.so")
        source.write_text('int add(int a, int b) { return a + b; }\nextern "C" int value() { return 1; }\n')
        subprocess.run(
            ["g++", "-O1", "-shared", "-fPIC", "-nostdlib", "-s", "-Wl,--build-id=none", "-Wl,-z,noseparate-code",
             "-fno-asynchronous-unwind-tables", f"-Wl,--hash-style={hash_style}", source, "-o", out], check=True,
        )  # fmt: skip
        return out.read_bytes()


def many_symbols(library: bytes) -> bytes:
    """Return `library` with a SysV hash table that claims as many symbols as it can."""
    at = struct.unpack_from("<Q", library, 40)[0]  # the table of sections, 64 bytes each
    sections = [struct.unpack_from("<IIQQQQ", library, row) for row in range(at, len(library) - 63, 64)]
    table = next(offset for _, kind, _, _, offset, _ in sections if kind == 5)
    return library[: table + 4] + b"\xff" * 4 + library[table + 8 :]


def small_object(kept: bytes) -> bytes:
    """Compile a relocatable object with relocations and a record section that holds `kept`."""
    numbers = ",".join(map(str, kept))
    with tempfile.TemporaryDirectory() as work:
        source, out = Path(work, "a.cpp"), Path(work, "a.o")
        source.write_text(
            f'[[gnu::used, gnu::section("{abi.RECORD_SECTION}")]] static const unsigned char kept[] = {{{numbers}}};\n'
            "int other(int); [[gnu::weak]] int add(int a) { return other(a) + 1; }\n"
        )
        flags = ("-O1", "-c", "-fno-asynchronous-unwind-tables", "-fno-ident")
        subprocess.run(["g++", *flags, source, "-o", out], check=True)
        return out.read_bytes()


def corpus(directory: Path) -> None:
    gnu, sysv = small_library("gnu"), small_library("sysv")
    records = record(b"COMP") + b"\0\0" + record(b"LINK")
    relocatable = small_object(records)
    row = struct.pack("<6Q", *range(6)) + b"/dev/null\0"
    kept = b"LZHDRS2\0" + struct.pack("<Q", 3) + b"key" + struct.pack("<Q", len(row)) + row
    rows = struct.pack("<4Q", 4096, 0, 8192, 1)
    seeds = {
        "manifest": {
            "demo": encode(MANIFEST),
            "table": encode(MANIFEST) + TABLE,
            "empty": encode(Manifest("d", "", "", "", (), (), ())),
        },
        "elf": {"gnu": gnu, "sysv": sysv},
        "entry": {
            "gnu": b"T" + gnu,
            "sysv": b"T" + sysv,
            "of-a-text": b"t" + gnu,
            "sysv-endless": b"T" + many_symbols(sysv),
            "note": b"N" + rows,
            "odd-note": b"n" + rows,
            "raw": b"R" + gnu,
        },
        "shim_words": WORDS,
        "shim_includes": INCLUDES,
        "shim_headers": {"one": kept},
        "py_record": {"two": records},
        "py_elf": {"object": relocatable},
        "py_archive": {
            "names": archive(
                b"!<arch>\n",
                (b"/", b""),
                (b"//", b"a_long_name.o/\n"),
                (b"/0", relocatable),
                (b"#1/4", b"nameBC\xc0\xde"),
                (b"a.o/", relocatable),
            ),
            "thin": archive(b"!<thin>\n", (b"x.o/", b"")),
        },
        "py_compile_commands": {name: json.dumps(entries).encode() for name, entries in COMMANDS.items()},
        "py_log": {"two": LOG},
        "py_words": {
            "odd": b"a.cpp\0-\0--\0@x\0-@y\0-Wl,@z,,\0=\0\0-I\xff\0-o",
            "archs": b"--offload-arch=gfx942:xnack-,native\0-gencode\0arch=compute_90a,code=sm_90a\0-arch\0native",
        },
        "py_remote": {
            "record": entry_record.encode(RECORD),
            "lease": lease.Holder("0" * 32, "host", 7, 15.0, 1).encode(),
            "tiers": b"http://u:p@[::1]:80/x?y|trusted|token-file=/t,/mnt/x|read-only,s3://b/p|endpoint=http://h",
        },
    }
    for target, files in seeds.items():
        (directory / target).mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            (directory / target / name).write_bytes(data)


def conf(file: Path) -> None:
    shim = ShimConf("nvcc", by_name("cuda"), ("/bin/false",), "x86_64-linux-gnu")
    shared = SharedConf(
        blobs=("*/blob/*",), bootstrap="", path_map=(("/nonexistent/shim", "/bin"),), env_names=(), restore=(),
        shim_dirs=(), log="/nonexistent/log", compiles="/nonexistent/compiles", headers="/nonexistent/headers",
        links="/nonexistent/links", python="/nonexistent/python",
    )  # fmt: skip
    file.write_bytes(render(shim, shared))


def options(file: Path) -> None:
    """Write all options as a dictionary for libFuzzer, which would not guess them."""
    texts = sorted({rule.text for toolchain in ALL for rule in toolchain.table.rules})
    file.write_text("".join(f'"{text}"\n' for text in texts))


if __name__ == "__main__":
    {"corpus": corpus, "conf": conf, "options": options}[sys.argv[1]](Path(sys.argv[2]))
