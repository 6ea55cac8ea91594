#!/usr/bin/env python3
"""lazyck in 300 lines: `model.py BLOBS COMMAND...` runs a build such that the C++ sources that
match the pattern BLOBS (`*/kernels/*.cpp`) are compiled when the program first calls a function of
theirs. Read from top to bottom, then `runtime.cpp`, which is what the program does at that call."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path

HERE = Path(__file__).resolve()
COMPILERS = ("c++", "g++", "clang++", "aarch64-linux-gnu-g++")


def run(*words: str, directory: str = ".", text: str = "") -> str:
    """Return the output of a command. If it fails, it has said why, and the build ends."""
    done = subprocess.run(words, cwd=directory, input=os.fsencode(text), stdout=subprocess.PIPE)
    return sys.exit(done.returncode) if done.returncode else os.fsdecode(done.stdout)


# 1. Intercept. The build finds this program under the names of compilers (`main`, at the end).
@dataclass(frozen=True)
class Record:
    """A compile that was not run. Together with the source, this is all that it takes to run it."""

    compiler: str
    directory: str
    source: str
    flags: list[str]


# An unknown flag may do more than decide the code: -MMD writes a file that the build wants now,
# -march=native means another machine later, -fPIC is for a library. Such a compile is not deferred.
KNOWN_FLAG = re.compile(r"-([DI].+|O[0-3s]|g|std=.+|Wall|Wextra|fPIE|march=(?!native).+)")


def find_record(compiler: str, words: list[str], directory: str, blobs: str) -> tuple[Record, str] | None:
    """Return the record of a compile that can wait, and the object that the build wants from it."""
    if "-c" not in words or "-o" not in words[:-1]:
        return None
    at = words.index("-o")
    others = [w for w in (*words[:at], *words[at + 2 :]) if w != "-c"]
    flags = [w for w in others if KNOWN_FLAG.fullmatch(w)]
    sources = [w for w in others if w not in flags]  # and flags that are not known
    if len(sources) != 1 or not fnmatch(os.path.join(directory, sources[0]), blobs):
        return None
    return Record(compiler, directory, sources[0], flags), words[at + 1]


def render_record(record: Record) -> str:
    """Return the assembler text of a deferred object. The record is inside, so it goes wherever the
    build takes the object. A link without this program fails, since it lacks a symbol."""
    quoted = json.dumps(f"<record>{json.dumps(asdict(record))}</record>")  # as assemblers quote, too
    return f' .section .model.record,"",%progbits\n .ascii {quoted}\n .data\n .quad deferred_so_link_it_by_model_py\n'


def read_record(word: str) -> Record | None:
    """Return the record if a word of a link is a deferred object, else nothing."""
    content = Path(word).read_bytes() if word.endswith(".o") and Path(word).is_file() else b""
    found = re.search(b"<record>(.*)</record>", content)
    return Record(**json.loads(found[1])) if found else None


# 2. Probe. The link needs to know which symbols each blob will define.
@dataclass(frozen=True)
class Blob:
    """A source that is compiled later: its preprocessed text, the command, what the probe found."""

    entry: str  # the name of its entry in the cache: the source's name, and the key
    command: list[str]
    text: str
    functions: dict[str, str]  # each symbol, and the letter that nm has for its kind
    why_eager: str


def probe(record: Record, output: str) -> Blob:
    """Learn the symbols of a blob. Its text includes the headers, so that the program needs no file
    of the build later. This probe compiles the text to `output`, which is thrown away if the blob
    is lazy: that is simple, but saves no time. lazyck compiles only the heads of functions, those
    of many blobs at once, and ships sources and headers as files."""
    command = [record.compiler, *record.flags, "-fPIC"]
    text = run(*command, "-E", record.source, directory=record.directory)
    run(*command, "-c", "-x", "c++-cpp-output", "-", "-o", output, directory=record.directory, text=text)
    rows = run(run(record.compiler, "-print-prog-name=nm").strip(), "--defined-only", "--format=posix", output)
    kinds = {name: kind for name, kind, *_ in map(str.split, rows.splitlines())}
    # The key is a digest of all that decides the code: equal keys, equal code. So no entry of the
    # cache gets stale, whatever the dates of files. At a call, lazyck adds the arch of the GPU.
    decisive = "\0".join([run(record.compiler, "--version"), *command, text])
    entry = f"{Path(record.source).stem}-{hashlib.sha256(os.fsencode(decisive)).hexdigest()[:16]}.so"
    functions = {name: kind for name, kind in kinds.items() if kind in "TW"}
    return Blob(entry, command, text, functions, why_eager(kinds, Path(output).read_bytes()))


def why_eager(kinds: dict[str, str], image: bytes) -> str:
    """Return why a blob cannot wait, or nothing. A stub can stand for a function, but not for data
    that others see, and code that runs before `main` must be there then."""
    data = [name for name, kind in kinds.items() if kind not in "TWtrdb"]
    early = re.search(rb"\.(init|fini)_array", image)
    return f"it defines {data[0]}, no function" if data else "it runs code at start or exit" if early else ""


# 3. Stub. Under each symbol stands code that jumps through a slot. At first, the slot leads to a
# slow path. Nobody knows the function's signature, so it keeps all registers that may hold an
# argument, asks the runtime for the function, and jumps there.
def each(registers: range | tuple[str, ...], text: str) -> str:
    return "".join(text.format(register, at=16 * i) for i, register in enumerate(registers))


PUSHED = ("rax", "rdi", "rsi", "rdx", "rcx", "r8", "r9", "r10")  # rax counts the vectors of variable arguments
MACHINES = {  # a stub, a slow path, and what all slow paths share (136, not 128: calls want an aligned stack)
    "x86_64": (
        " endbr64; jmp *{slot}(%rip)\n",
        " endbr64; movl ${number}, %r11d; jmp model_slow\n",
        f"{each(PUSHED, ' push %{};')} sub $136, %rsp; {each(range(8), 'movups %xmm{}, {at}(%rsp);')}\n"
        " mov %r11d, %edi; call model_resolve; mov %rax, %r11\n"
        f"{each(range(8), ' movups {at}(%rsp), %xmm{};')} add $136, %rsp; {each(PUSHED[::-1], 'pop %{};')} jmp *%r11\n",
    ),
    "aarch64": (  # the stub's load acquires what the loader wrote into the blob
        " hint 34; adrp x16, {slot}; add x16, x16, :lo12:{slot}; ldar x16, [x16]; br x16\n",
        " hint 34; ldr w17, ={number}; b model_slow\n",
        " stp x29, x30, [sp, -288]!; mov x29, sp\n"
        f"{each(range(9), ' str x{}, [sp, 16 + {at}];')} {each(range(8), 'str q{}, [sp, 160 + {at}];')}\n"
        " mov w0, w17; bl model_resolve; mov x16, x0\n"
        f"{each(range(9), ' ldr x{}, [sp, 16 + {at}];')} {each(range(8), 'ldr q{}, [sp, 160 + {at}];')}\n"
        " ldp x29, x30, [sp], 288; br x16\n",
    ),
}


def render_stubs(functions: list[tuple[str, str]], machine: str, manifest: str) -> str:
    """Return the assembler text of stubs, slots and manifest. Several blobs and objects may define
    the same inline function. It is a weak symbol: so is the stub, and the first one serves."""
    stub, slow, shared = MACHINES[machine]
    code, slots = f" .text\nmodel_slow:\n{shared}", " .data\n .p2align 3\n .globl model_slots\nmodel_slots:\n"
    for i, (name, kind) in enumerate(functions):
        if kind == "T" or f"\n{name}:\n" not in code:
            code += f" .{'weak' if kind == 'W' else 'globl'} {name}\n .type {name}, %function\n{name}:\n"
        code += stub.format(slot=f"model_slots + {8 * i}") + f".Lslow{i}:\n" + slow.format(number=i)
        slots += f" .quad .Lslow{i}\n"
    embedded = f' .section .model.manifest,"a"\n .globl model_manifest\nmodel_manifest: .incbin "{manifest}"\n'
    return f'{code}{slots}{embedded} .section .note.GNU-stack,"",%progbits\n'


def render_manifest(blobs: list[Blob]) -> bytes:
    """Return the manifest: strings that end in NUL, which `take` in runtime.cpp reads."""
    lists = [(b.entry, b.text, len(b.command), *b.command, len(b.functions), *b.functions) for b in blobs]
    return b"".join(os.fsencode(f"{word}\0") for words in lists for word in words)


# 4. Link. It is the project's own, with stubs, manifest and runtime instead of the lazy objects.
def link(compiler: str, words: list[str], records: dict[str, Record]) -> None:
    with tempfile.TemporaryDirectory() as place:
        objects = {word: f"{place}/{i}.o" for i, word in enumerate(records)}
        blobs = {word: probe(record, objects[word]) for word, record in records.items()}
        for blob in blobs.values():
            print(f"model: {blob.entry} is", f"eager: {blob.why_eager}" if blob.why_eager else "lazy", file=sys.stderr)
        lazy = {word: blob for word, blob in blobs.items() if not blob.why_eager}
        functions = [item for blob in lazy.values() for item in blob.functions.items()]
        manifest, stubs, runtime = (f"{place}/{file}" for file in ("manifest", "stubs.o", "runtime.o"))
        Path(manifest).write_bytes(render_manifest(list(lazy.values())))
        text = render_stubs(functions, run(compiler, "-dumpmachine").partition("-")[0], manifest)
        run(compiler, "-c", "-x", "assembler", "-", "-o", stubs, text=text)
        run(compiler, "-std=c++17", "-fPIC", "-c", f"{HERE.parent}/runtime.cpp", "-o", runtime)
        real = [objects.get(word, word) for word in words if word not in lazy]
        run(compiler, *real, stubs, runtime, "-rdynamic", "-ldl")  # -rdynamic: blobs call functions of the program


def main() -> None:
    name, *words = os.path.basename(sys.argv[0]), *sys.argv[1:]
    if name not in COMPILERS:
        with tempfile.TemporaryDirectory() as shims:
            for shim in COMPILERS:
                Path(shims, shim).symlink_to(HERE)
            env = {**os.environ, "PATH": f"{shims}:{os.environ['PATH']}", "MODEL_BLOBS": words[0]}
            sys.exit(subprocess.run(words[1:], env=env).returncode)
    others = [path for path in os.environ["PATH"].split(":") if path != os.path.dirname(sys.argv[0])]
    compiler = shutil.which(name, path=":".join(others)) or sys.exit(f"model: there is no {name}")
    records = {word: record for word in words if (record := read_record(word))}
    if found := find_record(compiler, words, os.getcwd(), os.environ["MODEL_BLOBS"]):
        run(compiler, "-c", "-x", "assembler", "-", "-o", found[1], text=render_record(found[0]))
    elif records:
        link(compiler, words, records)
    else:
        os.execv(compiler, [compiler, *words])


if __name__ == "__main__":
    main()
