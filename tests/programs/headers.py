"""Traits: where a blob finds headers and data, and where its assembler finds them."""

from programs.rows import Row

H = "#ifndef H%\n#define H%\nstatic inline int h%(void) { return VALUE; }\n#endif\n"
# A function in whose name a number stands.
OF_SIZE = "template <int N> struct I% {};\nint q%(I%<SIZE>) { return 1; }\n"
DEFAULT = "#ifndef D%\n#define D% 8\n#endif\n" + OF_SIZE.replace("SIZE", "D%")
ANGLE, QUOTE = "#include <h%.h>", '#include "h%.h"'


def found(path: str, flags: str = "", head: str = ANGLE, **more: str) -> Row:
    """Return the row of a header at `path`."""
    return Row(head=head, term="h%()", flags=flags, files={path: H}, **more)  # type: ignore[arg-type]


# fmt: off
ROWS = {
    "headers/same-directory": found("blob/h%.h", "", QUOTE),
    "headers/parent-directory": found("other/h%.h", "", '#include "../other/h%.h"'),
    "headers/include-directory": found("inc%/h%.h", "-Iinc%"),
    "headers/include-two-words": found("inc%/h%.h", "-I inc%", QUOTE),
    "headers/include-by-parent": found("inc%/d/h%.h", "-Iinc%/d/../d"),
    "headers/include-absolute": found("inc%/h%.h", '-I"$PWD/inc%"'),
    "headers/quote-directory": found("inc%/h%.h", "-iquote inc%", QUOTE),
    "headers/system-directory": found("inc%/h%.h", "-isystem inc%"),
    "headers/after-directory": found("inc%/h%.h", "-idirafter inc%"),
    "headers/prefix-directory": found("inc%/d/h%.h", "-iprefix inc%/ -iwithprefix d"),
    "headers/prefix-before": found("inc%/d/h%.h", "-iprefix inc%/ -iwithprefixbefore d"),
    "headers/preprocessor-option": found("inc%/h%.h", "-Wp,-Iinc%"),
    "headers/long-option": found("inc%/h%.h", "--include-directory=inc%"),
    "headers/include-file": found("inc%/h%.h", "-include inc%/h%.h", ""),
    "headers/include-search": found("inc%/h%.h", "-Iinc% -include h%.h", ""),
    "headers/include-system-search": found("inc%/h%.h", "-isystem inc% -include h%.h", ""),
    "headers/macros-file": Row(term="M%", flags="-imacros inc%/m%.h", files={"inc%/m%.h": "#define M% VALUE\n"}),
    "headers/macros-search": Row(term="M%", flags="-Iinc% -imacros m%.h", files={"inc%/m%.h": "#define M% VALUE\n"}),
    "headers/blank-in-path": found("inc %/h%.h", '-I"inc %"', QUOTE),
    "headers/quote-in-path": found("inc'%/h%.h", '-I"inc\'%"', QUOTE),
    "headers/computed": found("inc%/h%.h", "-Iinc% '-DNAME%=<h%.h>'", "#include NAME%"),
    "headers/computed-quoted": found("inc%/h%.h", "-Iinc% '-DNAME%=\"h%.h\"'", "#include NAME%"),
    "headers/search-variable": found("inc%/h%.h", before="export CPATH=inc%:$CPATH"),
    "headers/language-variable": found("inc%/h%.h", before="export CPLUS_INCLUDE_PATH=inc%:$CPLUS_INCLUDE_PATH"),
    "headers/linked-directory": Row(head=ANGLE, term="h%()", flags="-Iinc%", links={"inc%": ("one%", "two%")},
        files={"one%/h%.h": H.replace("VALUE", "11"), "two%/h%.h": H.replace("VALUE", "22")}),
    "headers/linked-file": Row(head=ANGLE, term="h%()", flags="-Iinc%", links={"inc%/h%.h": ("../one%.h", "../two%.h")},
        files={"one%.h": H.replace("VALUE", "11"), "two%.h": H.replace("VALUE", "22")}),
    "headers/beside-a-link": Row(head='#include "s%.h"', term="h%()", flags="-Ireal%",
        files={"real%/h%.h": H, "real%/s%.h": QUOTE + "\n"}, links={"blob/s%.h": ("../real%/s%.h",) * 2}),
    "headers/include-next": Row(head=ANGLE, term="h%()", flags="-Ia% -Ib%",
        files={"a%/h%.h": "#include_next <h%.h>\n", "b%/h%.h": H}),
    "headers/has-include": Row(head="#if __has_include(<o%.h>)\n#define O% 5\n#else\n#define O% 6\n#endif", term="O%",
        flags="-Iinc%", files={"inc%/other.h": ""}, later={"inc%/o%.h": ""}),
    "headers/has-include-of-a-macro": found("inc%/h%.h", "-Iinc% '-DNAME%=<h%.h>'",
        "#if __has_include(NAME%)\n#include NAME%\n#else\n#define h%() 3\n#endif"),
    "headers/twins": Row(head='#include "../a%/h%.h"\n#include "../b%/h%.h"', term="a%()", files={
        "a%/h%.h": '#pragma once\n#include "v.h"\n', "b%/h%.h": '#pragma once\n#include "v.h"\n',
        "a%/v.h": "static inline int a%(void) { return VALUE; }\n", "b%/v.h": "#define a%() 7\n"}),
    "headers/chain": Row(head=ANGLE, term="h%()", flags="-Iinc%",
        files={"inc%/h%.h": "#include <d/c%.h>\n", "inc%/d/c%.h": '#include "e/c%.h"\n', "inc%/d/e/c%.h": H}),
    "headers/included-source": found("blob/part%.cpp", "", '#include "part%.cpp"'),
    "headers/earlier-on-the-path": Row(head=ANGLE, term="h%()", flags="-Iearly% -Ilate%",
        files={"late%/h%.h": H.replace("VALUE", "11"), "early%/o.h": ""}, later={"early%/h%.h": H}),
    "headers/directory-that-appears": Row(head=ANGLE, term="h%()", flags="-Iearly% -Ilate%",
        files={"late%/h%.h": H.replace("VALUE", "11")}, later={"early%/h%.h": H}),
    "headers/beside-the-source-later": Row(head=QUOTE, term="h%()", flags="-Ilate%",
        files={"late%/h%.h": H.replace("VALUE", "11")}, later={"blob/h%.h": H}),
    "headers/precompiled": found("inc%/h%.h", "-Iinc%",
        before="$CXX -fPIC -O1 -w -x c++-header inc%/h%.h -o inc%/h%.h.gch"),
    "headers/option-file": Row(head=ANGLE, term="h%() + W%", flags="@words%",
        files={"inc%/h%.h": H, "words%": "-Iinc% -DW%=VALUE\n"}),
    "headers/out-of-a-linked-directory": Row(head='#include "../l%/../h%.h"', term="h%()", links={"l%": ("d%/in",) * 2},
        files={"d%/in/o.h": "", "d%/h%.h": H, "h%.h": H.replace("VALUE", "33")}),
    "headers/packed": Row(head="#pragma pack(push, 1)\n#include <h%.h>\n#pragma pack(pop)", term="(int)sizeof(P%)",
        flags="-Iinc%", files={"inc%/h%.h": "#pragma once\nstruct P% { char c; int i; };\n"},
        blobs={"p%.cpp": ("#include <h%.h>\n" + OF_SIZE.replace("SIZE", "sizeof(P%)"), "-Iinc%")}),
    "headers/default-of-a-macro": Row(head=ANGLE, term="D%", flags="-Iinc%",
        files={"inc%/h%.h": "#pragma once\n#define D% 4\n"}, blobs={"d%.cpp": (DEFAULT, "")}),
    "headers/definition-behind-a-comment": Row(head="/* once */ #define D% 4", term="D%",
        blobs={"d%.cpp": (DEFAULT, "")}),
    "headers/undefined-macro": Row(head="#ifdef linux\n#define U% 1\n#else\n#define U% 2\n#endif", term="U%",
        flags="-Ulinux"),
    "data/embed": Row(head='static const unsigned char w%[] = {\n#embed "../data%/w.bin"\n};', term="w%[0]",
        files={"data%/w.bin": "DATA"}),
    "data/embed-by-option": Row(head="static const unsigned char w%[] = {\n#embed <w%.bin> limit(2)\n};", term="w%[0]",
        flags="--embed-dir=data%", files={"data%/w%.bin": "DATA"}),
    "data/assembler-include": Row(term="g%()", files={"data%/s.inc": ".set s%_value, VALUE\n"},
        head='static inline int g%(void) { int v; '
        '__asm__(".include \\"data%/s.inc\\"\\n mov $s%_value, %%0" : "=r"(v)); '
        "return v; }"),
    "data/incbin-in-function": Row(term="g%()", files={"data%/w.bin": "DATA"},
        head="static inline int g%(void) { const unsigned char* p; __asm__("
        '".pushsection .rodata\\n1: .incbin \\"data%/w.bin\\"\\n.popsection\\n lea 1b(%%%%rip), %%0" : "=r"(p)); '
        "return p[0]; }"),
    "data/assembler-source": Row(files={"blob/s%.inc": "#define S% VALUE\n", "data%/w.bin": "DATA"}, blobs={"s%.S": (
        '#include "s%.inc"\n.text\n.globl s%\n.type s%, @function\ns%: movzbl w(%%rip), %%eax\n add $S%, %%eax\n ret\n'
        '.size s%, .-s%\n.section .rodata\nw: .incbin "data%/w.bin"\n.section .note.GNU-stack,"",@progbits\n', "")}),
}
# fmt: on
INCBIN = (
    '__asm__(".section .rodata\\n.local w%_data\\nw%_data: .incbin \\"PATH\\"\\n.text");\n'
    'extern const unsigned char w%[] __asm__("w%_data") __attribute__((visibility("hidden")));'
)
for _name, _path, _flags in (
    ("relative", "data%/w%.bin", ""),
    ("found", "w%.bin", "-Idata%"),
    ("found-by-assembler", "w%.bin", "-Wa,-Idata%"),
):
    _head = INCBIN.replace("PATH", _path)
    ROWS[f"data/incbin-{_name}"] = Row(head=_head, term="w%[0]", flags=_flags, files={"data%/w%.bin": "DATA"})
ROWS["data/incbin-in-a-header"] = Row(
    head='#include "i%.h"\nEMBED%("data%/w.bin")',
    term="w%[0]",
    files={
        "data%/w.bin": "DATA",
        "blob/i%.h": "#define EMBED%(path) " + INCBIN.replace("\n", " ").replace('\\"PATH\\"', '\\"" path "\\"') + "\n",
    },
)
