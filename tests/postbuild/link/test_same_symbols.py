"""Test that other files and programs find everything that a blob defines besides plain functions,
as in a library built ahead of time."""

import subprocess
from pathlib import Path

import pytest
from support import Lazyck
from support.link_project import FLAGS, Project, body

SHARED = """
#pragma once
struct Widget { virtual ~Widget(); virtual int f(); };
template <typename T> struct Shelf { static int count; int up(); };
template <typename T> struct Pure { int get(); T where(); };
extern template struct Pure<int>;
template <typename T> struct Table { static const int rows[2]; int get(); };
template <typename T> const int Table<T>::rows[2] = {50, 60};
extern template struct Table<int>;
template <typename T> struct Level { static const int step[2]; };
template <typename T> const int Level<T>::step[2] = {7, 8};
extern const unsigned char table[4];
extern "C" { int hook(); int loose(); int alias_of_f(int); int chosen(int); int resolved(int); int f(int); }
"""
BLOBS = {
    "widget": "Widget::~Widget() {} int Widget::f() { return 1; }",
    "derived": "struct Local : Widget { int f() override { return 7; } };\n"
    "int make() { Local l; Widget& w = l; return w.f(); }",
    "shelf": "template <typename T> int Shelf<T>::count = 4;\n"
    "template <typename T> int Shelf<T>::up() { return ++count; }\n"
    "template struct Shelf<int>;",
    "pure": "template <typename T> int Pure<T>::get() { return 5; }\n"
    "template <typename T> T Pure<T>::where() { return 6; }\n"
    "template struct Pure<int>;",
    "rows": "template <typename T> int Table<T>::get() { return rows[1]; }\ntemplate struct Table<int>;",
    # The blob instantiates `Level<int>` implicitly, and a file without an instantiation of its own
    # relies on that.
    "levels": "int level_of(int n) { return Level<int>::step[n]; }\n"
    'int also_level_of(int) __attribute__((alias("_Z8level_ofi")));',
    "table": "const unsigned char table[4] = {1, 2, 3, 4};",
    "alias": 'int f(int x) { return x; } int alias_of_f(int) __attribute__((alias("f")));',
    "resolved": 'static int low(int x) { return x + 1; } extern "C" int (*pick())(int) { return low; }\n'
    'int resolved(int) __attribute__((ifunc("pick")));',
    "chosen": 'extern "C" __attribute__((target_clones("default", "avx2"))) int chosen(int x) { return x + 2; }',
    "hook": "int hook() { return 8; }",
    "loose": "__attribute__((weak)) int loose() { return 9; }",
}
DISPATCH = """
int make();
__attribute__((weak)) int hook() { return 0; }
extern "C" int run() { return hook() * 100 + make() * 10 + loose(); }
extern template struct Level<int>;
extern "C" int step(int n) { return Level<int>::step[n]; }
extern "C" int row(int n) { return Table<int>::rows[n]; }
"""
PROGRAM = """
#include "api.hpp"
#include <cstdio>
extern "C" { int run(); int row(int); int step(int); }
struct Mine : Widget { int f() override { return Widget::f() + 10; } };
int main() {
    Mine m; Widget& w = m; Shelf<int> s; Pure<int> p;
    Shelf<int>::count += 10;
    std::printf("%d %d %d %d %d %d ", step(1), table[2], alias_of_f(1), alias_of_f == f, resolved(1), chosen(1));
    std::printf("%d %d %d %d %d %d\\n", w.f(), s.up(), p.get(), p.where(), run(), row(1));
}
"""
SAID = "8 3 1 1 2 3 11 15 5 6 879 60\n"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    where = tmp_path_factory.mktemp("same")
    (where / "blob").mkdir()
    (where / "api.hpp").write_text(SHARED)
    for name, text in BLOBS.items():
        (where / f"blob/{name}.cpp").write_text('#include "api.hpp"\n' + text + "\n")
    (where / "dispatch.cpp").write_text('#include "api.hpp"\n' + DISPATCH)
    (where / "program.cc").write_text(PROGRAM)
    return Project(None, where)  # type: ignore[arg-type]


def test_a_program_uses_a_lazy_library_as_one_built_ahead_of_time(project: Project, lazyck: Lazyck) -> None:
    project.lazyck = lazyck
    project.build("c++ -shared -o libx.so *.o", FLAGS + " -O2 -std=c++17")
    assert project.eager() == [
        "3 sources, each of which defines data that other files can use: "
        "blob/rows.cpp (Table<int>::rows); blob/shelf.cpp (Shelf<int>::count); blob/table.cpp (table)",
        "blob/widget.cpp defines the vtable of a class: Widget",
        "blob/levels.cpp has the only copy of a variable of a template or of an inline function that other files use: "
        "Level<int>::step",
    ]
    command = "c++ -std=c++17 -O2 program.cc -o program -L. -lx -Wl,-rpath,$PWD && ./program"
    done = subprocess.run(["sh", "-ec", command], cwd=project.where, capture_output=True, text=True)
    assert done.stdout == SAID, done.stderr


def test_inspect_tells_why_every_blob_of_a_library_is_eager(lazyck: Lazyck, tmp_path: Path) -> None:
    project = Project(lazyck, tmp_path).write({1: "int level_1 = 3;\n" + body(1, "level_1 + x")})
    project.build("c++ -shared -s -Wl,--gc-sections -o libx.so *.o")
    said = lazyck("inspect", "--all", tmp_path / "libx.so")
    assert "blobs       0 lazy with 0 symbols, 1 eager\n" in said.stdout, said.stderr
    assert said.stdout.endswith("eager blob/v1.cpp defines data that other files can use: level_1\n")
    assert "lazyck_" not in subprocess.run(["nm", "libx.so"], cwd=tmp_path, capture_output=True, text=True).stdout
    sections = subprocess.run(["readelf", "-SW", "libx.so"], cwd=tmp_path, capture_output=True, text=True).stdout
    assert " A " not in next(line for line in sections.splitlines() if ".lazyck.manifest" in line), "it is not loaded"
    assert project.call(1, 1) == "4"
