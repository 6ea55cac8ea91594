"""Ways to write `#include`, and what only looks like one."""

IS_INCLUDE = [
    '#include "x.h"',
    '  #  include\t"x.h" // why',
    '/* a */ #/* b */include/* c\n */"x.h"',
    '#inc\\\nlude \\\n "x.\\\nh"',
    '#inc\\  \nlude "x.h"\r',
    '%:include "x.h"',
    '#import "x.h"',
    '#if 0\n#include "x.h"\n#endif',
    '// it\'s\n#include "x.h"',
    "int a = 1'000; char c = '\"';\n#include \"x.h\"",
    '#error don\'t\n#include "x.h"',
    'auto r = R"(\n)" ")";\n#include "x.h"',
    'auto r = u8R"--(\n#define ")\n)--";\n#include "x.h"',
    'auto r = R"(never closed\n#include "x.h"',
    'const char* s = "/*";\n#include "x.h"\n// */',
    '/* never closed\n#include "x.h"',
    'const char* s = "a\\\n/*";\n#include "x.h"\nint b; /* */',
    '\ufeff#include "x.h"',
    '#include "x.h"',
]


IS_COMPUTED = [
    '#define X "x.h"\n#include X',
    "#define X <x.h>\n%:include/**/X",
    "#define Y(n) #n\n#define X(n) Y(n.h)\n#inc\\\nlude X(x)",
    '#include "way.h"\n#include WAY',
    "#if 1\n#else\n#include NOTHING\n#endif\n#include <x.h>",
]


IS_NO_INCLUDE = [
    '// #include "x.h"',
    '// \\\n#include "x.h"',
    '/*\n#include "x.h"\n*/',
    'const char* s = R"(\n#include "x.h"\n)";',
    'const char* s = "\\\n#include \\"x.h\\"";',
    '#define X "x.h"\n//#include X',
    'int a; #include "x.h"',
    '#include "x.h',
    '#include ""',
    "#include",
    "#",
    '#pragma include "x.h"',
    '#includes "x.h"',
    "",
    "\0\0",
]
