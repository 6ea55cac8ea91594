"""A project that is built by make or by ninja, and that tests break."""

SOURCES = {
    "inc.h": "template <int N> int twice(int x);\n",
    "blob/v1.cpp": '#include "inc.h"\ntemplate <> int twice<1>(int x) { return 2 * x; }\n',
    "dispatch.cpp": '#include "inc.h"\nextern "C" int run(int x) { return twice<1>(x); }\n',
    "gen.sh": "echo making blobs\n",
    "Makefile": """all: libx.so
made: gen.sh
\tsh gen.sh
\ttouch made
%.o: %.cpp made
\tc++ -fPIC -I. -c $< -o $@
libx.so: dispatch.o blob/v1.o
\tar rcs libv.a blob/v1.o $(MORE_MEMBERS)
\tc++ -shared -o $@ dispatch.o -Wl,--no-undefined libv.a $(MORE)
""",
    "build.ninja": """rule cxx
  command = c++ -fPIC -I. -c $in -o $out
rule gen
  command = sh gen.sh && touch made
rule ar
  command = ar rcs $out $in $$MORE_MEMBERS
rule link
  command = c++ -shared -o $out dispatch.o -Wl,--no-undefined libv.a $$MORE
build made: gen gen.sh
build dispatch.o: cxx dispatch.cpp || made
build blob/v1.o: cxx blob/v1.cpp || made
build libv.a: ar blob/v1.o
build libx.so: link dispatch.o libv.a
""",
}
