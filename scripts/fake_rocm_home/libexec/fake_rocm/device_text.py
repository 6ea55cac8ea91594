"""Finds kernels and device variables in preprocessed text, and in the assembler text made from it.

While a file is compiled in passes, include/fake_rocm/tu.h leaves marks in the place of HIP's
keywords. In the text, each kernel's body gets a sign that appears in the assembler text, and the
address of each variable goes into a section of its own. So the assembler text says which symbols
they have, instances of templates included.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

KERNEL, DEVICE, MANAGED = (f"__attribute__((__fake_rocm_{word}__))" for word in ("kernel", "device", "managed"))
_MARK = re.compile(r"__attribute__\(\(__fake_rocm_(kernel|device|managed)__\)\)")
_SIGN = "/* fake_rocm kernel */"
_VARIABLES = "fake_rocm_variables"
_SKIPPED = re.compile(
    r"""
      R"(?P<delimiter>[^()\\\s]{0,16})\(.*?\)(?P=delimiter)"   # raw string
    | "(?:\\.|[^"\\\n])*"                                      # string
    | \b\d[\w.']*                                              # number, which may hold ' between its digits
    | '(?:\\.|[^'\\\n])*'                                      # character
    | ^[ \t]*\#[^\n]*$                                         # line marker
    | \b(?:__attribute__|alignas|decltype|noexcept)\s*\(       # brackets that are no parameters
    | [(\[{)\]};=]
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)


def has_managed(text: str) -> bool:
    return MANAGED in text


def with_signs(text: str, *, for_host: bool) -> str:
    """Return `text` without marks, with signs that can be found in the assembler text. For the
    host, a kernel's body does nothing."""
    pieces: list[str] = []
    done = 0
    number = 0
    for mark in _MARK.finditer(text):
        if mark.start() < done:
            continue  # within a body that was removed
        pieces.append(text[done : mark.start()])
        done = mark.end()
        kind, at = _declared(text, mark.end())
        if mark[1] == "kernel" and kind == "function" and text[at] == "{":
            pieces += [text[done : at + 1], f'__asm__ volatile("{_SIGN}");']
            done = at + 1
            if for_host:
                end = _closing(text, at)
                pieces += ["__builtin_trap();", "\n" * text.count("\n", at, end)]
                done = end
        elif mark[1] == "device" and kind == "variable" and (name := _variable(text[mark.end() : at])):
            end = _statement_end(text, at)
            number += 1
            pieces += [_MARK.sub("", text[done : end + 1]), _entry(name, number)]
            done = end + 1
    return "".join([*pieces, text[done:]])


def _entry(name: str, number: int) -> str:
    attributes = f'__attribute__((used, section("{_VARIABLES}")))'
    return f" static const void* const fake_rocm_variable_{number} {attributes} = (const void*)&{name};"


def _tokens(text: str, at: int) -> Iterator[re.Match[str]]:
    return _SKIPPED.finditer(text, at)


def _closing(text: str, at: int) -> int:
    """Return where the bracket at `at` is closed."""
    depth = 0
    for token in _tokens(text, at):
        depth += (token[0][-1] in "([{") - (token[0] in ")]}")
        if depth == 0:
            return token.start()
    return len(text) - 1


def _declared(text: str, at: int) -> tuple[str, int]:
    """Return what is declared from `at` on: "function" and the place of its body or its `;`, or
    "variable" and the place of its initializer, its size or its end."""
    kind = ""
    skip = at
    for token in _tokens(text, at):
        if token.start() < skip:
            continue
        if token[0] in ("(", "[") or token[0].endswith("("):
            skip = _closing(text, token.end() - 1) + 1
            if token[0] == "(":
                kind = "function"
            elif token[0] == "[" and text[token.start() : token.start() + 2] != "[[" and not kind:
                return "variable", token.start()
        elif token[0] in "{;=":
            return kind or "variable", token.start()
    return "", len(text) - 1


def _variable(head: str) -> str:
    words = re.findall(r"\w+", _MARK.sub("", head))
    return "" if not words or {"extern", "constexpr", "struct", "class", "union", "enum"} & set(words) else words[-1]


def _statement_end(text: str, at: int) -> int:
    skip = at
    for token in _tokens(text, at):
        if token.start() < skip:
            continue
        if token[0] == ";":
            return token.start()
        if token[0][-1] in "([{":
            skip = _closing(text, token.end() - 1) + 1
    return len(text) - 1


@dataclass(frozen=True)
class Assembly:
    """Holds assembler text, and the symbols of its kernels and device variables."""

    lines: tuple[str, ...]
    kernels: tuple[str, ...]
    variables: tuple[str, ...]


def read_assembly(text: str) -> Assembly:
    lines = tuple(text.splitlines())
    kernels: dict[str, None] = {}
    variables: dict[str, None] = {}
    function = section = ""
    for line in lines:
        if (label := re.match(r'("[^"]+"|[\w.$]+):', line)) and not label[1].startswith(".L"):
            function = label[1]
        elif _SIGN in line and function:
            kernels[function] = None
        elif switch := re.match(r"\s*\.(?:section\s+([^\s,]+)|text|data|bss|popsection|previous)", line):
            section = switch[1] or ""
        elif section == _VARIABLES and (value := re.match(r"\s*\.(?:quad|xword)\s+([^\s+]+)", line)):
            variables[value[1]] = None
    return Assembly(lines, tuple(kernels), tuple(variables))


def host_assembly(made: Assembly, image: str) -> str:
    """Return the host's assembler text, with all kernels and variables registered with `image`.

    Each kernel's name becomes that of a variable, its handle, and its function becomes what the
    real compiler calls a device stub. The names keep the type of functions, as they have it where
    everything is compiled at once: other objects of a library may be compiled that way.
    """
    stubs = {kernel: f"__device_stub__{kernel}" for kernel in made.kernels}
    out = [_renamed(line, stubs) for line in made.lines]
    weak = {m[1] for line in made.lines if (m := re.match(r"\s*\.weak\s+(\S+)", line))}
    for kernel, stub in stubs.items():
        group = f'.{kernel},"awG",@progbits,{kernel},comdat' if kernel in weak else ',"aw",@progbits'
        out += [f" .section .data.rel.ro{group}", " .p2align 3", f" .type {kernel},@function", f" .size {kernel},8"]
        out += [f"{kernel}:", f" .quad {stub}"]
    out += [' .section .data.rel.ro.fake_rocm,"aw",@progbits', " .p2align 3", "fake_rocm_registered:"]
    strings: list[str] = []
    for number, (symbol, kind) in enumerate([*((k, 1) for k in made.kernels), *((v, 2) for v in made.variables)]):
        out.append(f" .quad {symbol},.Lfake_rocm_name{number},{kind}")
        strings += [f".Lfake_rocm_name{number}:", f' .asciz "{symbol}"']
    out += [" .quad 0,0,0", ' .section .rodata.fake_rocm,"a",@progbits', *strings]
    out += [' .section .hip_fatbin,"a",@progbits', " .p2align 12", "fake_rocm_image:", f' .incbin "{image}"']
    out += [' .section .hipFatBinSegment,"aw",@progbits', " .p2align 3", "fake_rocm_wrapper:"]
    out += [" .long 0x48495046,1", " .quad fake_rocm_image,0", ""]
    return "\n".join(out)


def _renamed(line: str, stubs: dict[str, str]) -> str:
    """Return a line of a kernel's definition as its stub has it, and other lines unchanged."""
    words = re.match(r"(\s*\.(?:type|size)\s+)?([\w.$]+)(:|,.*)", line)
    if not words or words[2] not in stubs or (words[3] != ":") != bool(words[1]):
        return line
    stub = stubs[words[2]]
    return (words[1] or "") + stub + words[3].replace(f"-{words[2]}", f"-{stub}")


# A host object with something to register gets this code as well.
REGISTRATION = """
extern "C" {
struct fake_rocm_row { void* handle; char* name; unsigned long kind; };
extern __attribute__((visibility("hidden"))) fake_rocm_row fake_rocm_registered[];
extern __attribute__((visibility("hidden"))) char fake_rocm_wrapper[];
void** __hipRegisterFatBinary(const void*);
void __hipRegisterFunction(void**, const void*, char*, const char*, unsigned int, void*, void*, void*, void*, int*);
void __hipRegisterVar(void**, void*, char*, char*, int, unsigned long, int, int);
void __hipUnregisterFatBinary(void**);
static void** fake_rocm_module;
__attribute__((constructor(101))) static void fake_rocm_module_ctor() {
    fake_rocm_module = __hipRegisterFatBinary(fake_rocm_wrapper);
    for (fake_rocm_row* row = fake_rocm_registered; row->kind != 0; ++row) {
        if (row->kind == 1)
            __hipRegisterFunction(fake_rocm_module, row->handle, row->name, row->name, -1, 0, 0, 0, 0, 0);
        else
            __hipRegisterVar(fake_rocm_module, row->handle, row->name, row->name, 0, 0, 0, 0);
    }
}
__attribute__((destructor(101))) static void fake_rocm_module_dtor() { __hipUnregisterFatBinary(fake_rocm_module); }
}
"""


def joined(text: str, registration: str) -> str:
    """Join two files of assembler text into one."""
    return text + registration.replace(".L", ".Lfake_rocm_of_")


def device_assembly(made: Assembly) -> str:
    """Return the device's assembler text. Each kernel gets a descriptor, as AMD's code objects
    have them, and each variable a name that the runtime finds. Nothing runs when the image is
    loaded."""
    out = [re.sub(r"\.section\s+\.(init_array|fini_array|ctors|dtors)\b[^\s,]*", r".section .fake_rocm.\1", line)
           for line in made.lines]  # fmt: skip
    for symbol, suffix in [*((k, "kd") for k in made.kernels), *((v, "var") for v in made.variables)]:
        out += [f' .globl "{symbol}.{suffix}"', f' .set "{symbol}.{suffix}",{symbol}']
    return "\n".join([*out, ""])
