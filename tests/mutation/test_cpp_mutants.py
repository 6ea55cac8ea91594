"""Measure a sample of the mutants of the C++ runtime. `cpp_run.py` measures all of them."""

import shutil
from pathlib import Path

import pytest

from mutation.cpp_mutants import Mutated, compile_errors, mutate, switches
from mutation.cpp_run import CLANG, DECIDING, measure, render

_LEAST = 0.8

pytestmark = pytest.mark.skipif(not shutil.which(CLANG), reason=f"no {CLANG}")

SOURCE = """\
namespace lazyck::rt {
constexpr int k_most = 4;
int count(int a, int b) {
    int n = 0;
    for (int i = a; i < b && n != k_most; ++i) {
        if (i % 2 == 0) continue;
        n += 1;
    }
    return n;
}
}
"""


def mutated(where: Path) -> Mutated:
    (where / "some.cpp").write_text(SOURCE)
    return mutate(where, "some.cpp", ["-std=c++17"], 1)


def test_mutants_are_what_a_person_might_get_wrong(tmp_path: Path) -> None:
    whats = {str(m).partition("] ")[2] for m in mutated(tmp_path).mutants}
    assert whats == {
        "one more: 4", "one less: 4", "one more: 0", "one less: 0", "one more: 2", "one less: 2", "one more: 1",
        "one less: 1", "&& becomes ||: i < b && n != k_most", "negated: i < b", "< becomes <=: i < b",
        "negated: n != k_most", "negated: i % 2 == 0", "% becomes *: i % 2", "dropped: continue;", "dropped: n += 1",
    }  # fmt: skip


def test_a_mutated_source_compiles_and_keeps_its_lines(tmp_path: Path) -> None:
    made = mutated(tmp_path)
    (tmp_path / "mutant_switches.h").write_text(switches(len(made.mutants)))
    (tmp_path / "some.cpp").write_text(made.text())
    assert compile_errors(tmp_path, "some.cpp", ["-std=c++17"]) == set()
    lines = made.text().splitlines()[2:]
    assert len(lines) == len(SOURCE.splitlines())
    assert "return n;" in lines[8]


def test_what_does_not_compile_is_no_mutant(tmp_path: Path) -> None:
    made = mutated(tmp_path)
    made.drop_lines({5})
    assert {m.line for m in made.mutants} == {2, 4, 6, 7}


@pytest.mark.slow
def test_a_sample_of_the_mutants_is_noticed(tmp_path: Path) -> None:
    results = measure(tmp_path, DECIDING, sample=150)
    print(render(results))
    assert sum(1 for r in results if r.killer) >= _LEAST * len(results)
