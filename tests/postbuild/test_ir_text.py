"""Compare what the reader of LLVM IR says with what a compiler makes of the text."""

import subprocess
from pathlib import Path

import pytest
from support.llvm_tools import CLANG, COMPILERS, compiler, needs_clang

from lazyck.postbuild.objects.elf import open_image
from lazyck.postbuild.probe.ir import Unreadable, eager_reason, functions, read_module

LINKAGES = r"""
; define void @in_a_comment() {
source_filename = "a \22}{ b.c"
%struct.define = type { i32, ptr }
$folded = comdat any
@"a = global" = internal constant [12 x i8] c"define @x()\0A"  ; @y = global i32 0
@number = private unnamed_addr constant <{ i32, [2 x i8] }> <{ i32 1, [2 x i8] c"{(" }>, align 4
@elsewhere = external global i32
@maybe = extern_weak global i32
@weak_data = weak_odr global i32 0, comdat($folded)
@alias_of_alias = hidden alias i32 (i32), ptr @renamed
@renamed = dso_local alias i32 (i32), ptr @plain
@weak_alias = weak alias i32 (i32), ptr @local
@chosen = ifunc i32 (i32), ptr @resolver
define i32 @plain(i32 %x) #0 { ret i32 %x } define dso_local { i32, i32 } @two(ptr byval(%struct.define) %p)
  "key"="va{lue" prefix { i32, i32 } { i32 1, i32 2 } personality ptr @handler {
entry:
  %a = load i32, ptr @elsewhere ; } unbalanced in a comment
  %"quoted } name" = insertvalue { i32, i32 } undef, i32 %a, 0
  ret { i32, i32 } %"quoted } name"
}
declare void @undefined(ptr, ...)
declare i32 @handler(...)
define internal i32 @local(i32 %x) { ret i32 1 }
define private i32 @secret(i32 %x) { ret i32 1 }
define available_externally i32 @inlined(i32 %x) { ret i32 1 }
define linkonce_odr i32 @droppable(i32 %x) { ret i32 1 }
define linkonce i32 @droppable_too(i32 %x) { ret i32 1 }
define weak i32 @weak(i32 %x) { ret i32 1 }
define weak_odr protected i32 @folded(i32 %x) comdat { ret i32 1 }
define hidden i32 @hidden(i32 %x) { ret i32 1 }
define external fastcc noundef range(i32 0, 9) i32 @"sp\61ce \22q\22 \C3\A9"(i32 %x) { ret i32 1 }
define i32 @"\01exactly"(i32 %x) { ret i32 1 }
define i32 @"$dollar.and-dash_"(i32 %x) { ret i32 1 }
define internal ptr @resolver() { ret ptr @plain }
define void @0() { ret void }
attributes #0 = { nounwind "frame-pointer"="all" }
!llvm.module.flags = !{!0}
!0 = !{i32 1, !"define @not_me() {", i32 4}
"""


def object_of(tmp_path: Path, kind: str, text: str, *options: str) -> dict[str, tuple[str, str, bool]]:
    """Compile `text`. Return each symbol with its binding, its type, and whether it is hidden."""
    (tmp_path / "m.ll").write_text(text, encoding="utf-8")
    argv = [compiler(kind, tmp_path), "-w", "-fPIC", *options, "-c", "m.ll", "-o", "m.o"]
    subprocess.run(argv, cwd=tmp_path, check=True)
    table = open_image(tmp_path / "m.o").symbols()
    return {s.name: (s.binding, s.type, s.hidden) for s in table if s.name and s.section and s.binding != "LOCAL"}


@pytest.mark.parametrize("kind", COMPILERS)
def test_reachable_functions_are_those_of_the_object(kind: str, tmp_path: Path) -> None:
    # clang before version 19 does not know range().
    made = object_of(tmp_path, kind, LINKAGES.replace("range(i32 0, 9) ", ""), "-O2")
    found = functions(read_module(LINKAGES))
    visible = {n for n, (_, type_, hidden) in made.items() if "FUNC" in type_ and not hidden and "unnamed" not in n}
    assert set(found.symbols) == visible
    assert {'space "q" é', "exactly", "$dollar.and-dash_", "two", "renamed", "weak_alias", "chosen"} <= visible
    assert set(found.unreachable) == {"hidden", "alias_of_alias", "droppable", "droppable_too"}
    assert {"hidden", "alias_of_alias"} <= made.keys() and "droppable" not in made
    assert found.merged == {"weak", "folded", "weak_alias"}
    assert str(eager_reason(read_module(LINKAGES))) == "defines data that other files can use: weak_data"


ASSEMBLER = "has assembler outside of functions, which may define anything"
SAME_FILE = "declares a symbol as one of the same file, and a blob is in a file of its own"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "@a = global i32 0\n@b = thread_local global i32 0\ndefine void @f() { ret void }",
            "defines data that other files can use: a, b",
        ),
        ("@a = common global i32 0", "defines data that other files can use: a"),
        ("@x = internal global i32 0\n@a = alias i32, ptr @x", "defines data that other files can use: a"),
        ("@a = hidden constant [1 x i8] zeroinitializer", "defines data that other files can use: a"),
        (
            "@a = weak_odr global i32 0 @b = internal global ptr @a @c = external global i32",
            "defines data that other files can use: a",
        ),
        ("@a = linkonce_odr global i32 0 @b = linkonce_odr constant i32 3", ""),
        ("@_ZTV1X = weak_odr constant [1 x ptr] zeroinitializer", "defines the vtable of a class: _Z1X"),
        ('module asm ".globl f"', ""),
        ('module asm ".globl f" define internal void @f() { ret void }', ASSEMBLER),
        ('module asm "\\09.globl\\09f\\0A.type f,@function\\0A"', ASSEMBLER),
        ('module asm ".globl f; f: ret"', ASSEMBLER),
        ('module asm ".symver f,g@V"', ASSEMBLER),
        ("declare dso_local i32 @g(i32)", f"{SAME_FILE}: g, dso_local"),
        ("@g = external hidden global i32", f"{SAME_FILE}: g, hidden"),
        ("@__dso_handle = external hidden global i8", ""),
        (
            "@t = internal thread_local(localexec) global i32 0",
            "has a variable that is thread_local(localexec), which no library can have: t",
        ),
        ("@t = internal thread_local(initialexec) global i32 0", ""),
        (
            "@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] [{ i32, ptr, ptr } { i32 1, ptr @i, ptr "
            "null }] define internal void @i() { ret void }",
            "has code that runs when the library is loaded: i",
        ),
        ("@llvm.used = appending global [1 x ptr] [ptr @f]\ndefine internal void @f() { ret void }", ""),
        (
            "@llvm.global_dtors = appending global [1 x { i32, ptr, ptr }] [{ i32, ptr, ptr } { i32 1, ptr "
            "@_GLOBAL__sub_I_x.cpp, ptr null }]\n@seen = internal global i32 0\n"
            "define internal void @_GLOBAL__sub_I_x.cpp() { store i32 1, ptr @seen call void @registrar() ret void }\n"
            "declare void @registrar()",
            "has code that runs when the library is loaded: registrar",
        ),
    ],
)
def test_what_makes_a_module_eager(text: str, reason: str) -> None:
    assert str(eager_reason(read_module(text)) or "") == reason


@pytest.mark.parametrize("kind", COMPILERS)
def test_what_a_module_needs_is_what_its_object_leaves_undefined(kind: str, tmp_path: Path) -> None:
    text = """
    module asm ".globl wanted"
    @variable = external global float
    declare void @called(ptr)
    declare void @never_called()
    declare extern_weak void @maybe()
    declare float @llvm.exp.f32(float)
    declare double @llvm.pow.f64(double, double)
    declare void @llvm.assume(i1)
    define double @f(float %x, double %y) {
      %v = load float, ptr @variable
      %e = call float @llvm.exp.f32(float %v)
      store float %e, ptr @variable
      %p = call double @llvm.pow.f64(double %y, double %y)
      call void @llvm.assume(i1 true)
      call void @called(ptr @maybe)
      ret double %p
    }
    """
    object_of(tmp_path, kind, text, "-O1")
    rows = open_image(tmp_path / "m.o").symbols()
    undefined = frozenset(s.name for s in rows if not s.section and s.name) - {"_GLOBAL_OFFSET_TABLE_"}
    assert functions(read_module(text)).needs == undefined == {"variable", "called", "maybe", "expf", "pow", "wanted"}


@pytest.mark.parametrize("text", ["define void @f() { ret void", "}", "@a = @b = global i32 0", "define void @f( {"])
def test_text_that_is_no_module_is_unreadable(text: str) -> None:
    with pytest.raises(Unreadable):
        read_module(text)


SOURCE = """
#include <iostream>
#include <vector>
template<class T> T instance(T x) { return x + 1; }
template int instance(int);
static int state;
inline int shared(int x) { static int n; return n += x; }
int add(std::vector<int>& v) { for (auto& x : v) x += shared(state++); std::cout << v.size(); return 1; }
namespace { int quiet(int x) { return x * state; } }
struct S { int method(int); virtual int other() { return 2; } };
int S::method(int x) { return quiet(x) + other(); }
__attribute__((weak)) int replaceable() { return 1; }
extern "C" int plain(int x) { return x; }
"""


@needs_clang
@pytest.mark.parametrize("options", ["-O0 -g", "-O1", "-O2 -fPIC -fvisibility=hidden"])
def test_ir_of_a_cpp_file_defines_what_its_object_does(options: str, tmp_path: Path) -> None:
    (tmp_path / "k.cpp").write_text(SOURCE)
    common = [CLANG or "", "-x", "c++", *options.split()]
    subprocess.run([*common, "-S", "-emit-llvm", "k.cpp", "-o", "k.ll"], cwd=tmp_path, check=True)
    subprocess.run([*common, "-c", "k.cpp", "-o", "k.o"], cwd=tmp_path, check=True)
    module = read_module((tmp_path / "k.ll").read_text())
    assert eager_reason(module) is None
    found = functions(module)
    table = [s for s in open_image(tmp_path / "k.o").symbols() if s.binding != "LOCAL" and s.section and s.name]
    for symbols, hidden in ((found.symbols, False), (found.unreachable, True)):
        own = {s.name for s in table if s.type == "FUNC" and s.hidden == hidden and "shared" not in s.name}
        inline = {e.symbol for e in module.entities.values() if e.linkage == "linkonce_odr"}
        assert {s for s in symbols if s not in inline} == own - inline
    assert "_Z8instanceIiET_S0_" in found.symbols + found.unreachable
