"""Tests examples/model: its demo, built by the model and ahead of time, and programs in which the
model has to keep arguments, to share a cache, or to refuse to be lazy."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
from support import AARCH64, HERE, REPOSITORY, Machine, machine_params, wait_until

EXAMPLE = REPOSITORY / "examples" / "model"


def load_model() -> ModuleType:
    """Load model.py, which belongs to no package."""
    spec = importlib.util.spec_from_file_location("lazyck_model", EXAMPLE / "model.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look the module up there
    spec.loader.exec_module(module)
    return module


model = load_model()


@dataclass(frozen=True)
class Project:
    """A project in a directory of its own, with a cache of its own: its home has the cache."""

    root: Path
    machine: Machine = HERE

    @property
    def env(self) -> dict[str, str]:
        return {**os.environ, **self.machine.env, "HOME": str(self.root.parent / "home"), "CXX": self.machine.cxx}

    def build(self, *before: str | Path) -> str:
        """Run make, after the words `before`. Return what it wrote to stderr."""
        argv = [*map(str, before), "make", "--quiet", f"CXX={Path(self.machine.cxx).name}"]
        done = subprocess.run(argv, cwd=self.root, env=self.env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stderr

    def build_lazily(self) -> str:
        return self.build(EXAMPLE / "model.py", "*/kernels/*.cpp")

    def start(self, *words: str) -> subprocess.Popen[str]:
        argv = [*self.machine.runner, str(self.root / "demo"), *words]
        return subprocess.Popen(argv, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def call(self, *words: str) -> tuple[str, list[str]]:
        """Run the program. Return its output, and the names of the blobs that it compiled."""
        process = self.start(*words)
        out, said = process.communicate(timeout=120)
        assert process.returncode == 0, said
        return out, compiled_in(said)

    @property
    def entries(self) -> set[str]:
        return {path.name for path in (self.root.parent / "home").rglob("*.so")}


@dataclass(frozen=True)
class Held:
    """The demo with a compiler that waits in first calls until `gate` exists. `starts` has a line
    for each such compile."""

    demo: Project
    gate: Path
    starts: Path


def compiled_in(said: str) -> list[str]:
    return re.findall(r"^model: compiled (\w+)-[0-9a-f]{16}\.so$", said, re.MULTILINE)


def copy_demo(tmp_path: Path, machine: Machine = HERE) -> Project:
    shutil.copytree(EXAMPLE / "demo", tmp_path / "project")
    return Project(tmp_path / "project", machine)


@pytest.fixture
def demo(tmp_path: Path) -> Project:
    project = copy_demo(tmp_path)
    project.build_lazily()
    return project


def clean(project: Project) -> None:
    for path in (project.root / "demo", *project.root.rglob("*.o")):
        path.unlink()


def write(project: Project, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (project.root / name).write_text(text)


def test_the_model_has_at_most_300_lines() -> None:
    made = re.compile(r"/(__pycache__|\.\w+_cache)/")  # by Python, mypy and ruff
    files = [p for p in EXAMPLE.rglob("*") if p.is_file() and p.name != "README.md" and not made.search(str(p))]
    assert {p.name for p in files} >= {"model.py", "runtime.cpp", "main.cpp", "Makefile"}
    assert sum(len(p.read_text().splitlines()) for p in files) <= 300


@pytest.mark.parametrize("machine", machine_params(HERE, AARCH64))
def test_a_kernel_is_compiled_at_its_first_call_and_does_as_ahead_of_time(machine: Machine, tmp_path: Path) -> None:
    demo = copy_demo(tmp_path, machine)
    demo.build()
    ahead = [demo.call(), demo.call("again")]
    clean(demo)
    said = demo.build_lazily()
    assert re.sub("-[0-9a-f]{16}", "", said) == "model: scale.so is lazy\nmodel: sum.so is lazy\n"
    assert demo.entries == set()
    lazy = [demo.call(), demo.call("again"), demo.call("again")]
    assert [compiled for _, compiled in lazy] == [["sum"], ["scale"], []]
    assert [out for out, _ in lazy[:2]] == [out for out, _ in ahead] == ["6\n", "12\n"]


def test_the_program_needs_no_file_of_the_build(demo: Project) -> None:
    for path in demo.root.rglob("*"):
        if path.is_file() and path.name != "demo":
            path.unlink()
    assert demo.call("again") == ("12\n", ["scale", "sum"])


def test_after_a_change_of_a_source_only_its_blob_is_compiled(demo: Project) -> None:
    demo.call("again")
    before = demo.entries
    source = demo.root / "kernels" / "sum.cpp"
    source.write_text(source.read_text().replace("0.0", "100.0"))
    (demo.root / "kernels" / "scale.cpp").touch()
    demo.build_lazily()
    assert demo.call("again") == ("112\n", ["sum"])
    assert len(demo.entries - before) == 1 and before < demo.entries


def test_a_key_covers_the_compiler_the_flags_the_source_and_its_headers(tmp_path: Path) -> None:
    other = tmp_path / "other-g++"
    other.write_text(f'#!/bin/sh\n[ "$*" = --version ] && echo 1.0 || exec {HERE.cxx} "$@"\n')
    other.chmod(0o755)
    source, header = tmp_path / "blob.cpp", tmp_path / "blob.hpp"
    source.write_text('#include "blob.hpp"\nint f() { return 1; }\n')
    header.touch()

    def entry(*flags: str, compiler: str = HERE.cxx) -> str:
        record = model.Record(compiler, str(tmp_path), "blob.cpp", list(flags))
        return str(model.probe(record, str(tmp_path / "blob.o")).entry)

    first = entry()
    assert entry() == first
    os.utime(source)
    assert entry() == first  # at another time
    changed = [entry("-O2"), entry(compiler=str(other))]
    other.write_text(other.read_text().replace("1.0", "1.1"))
    changed.append(entry(compiler=str(other)))
    header.write_text("int g();\n")
    changed.append(entry())
    source.write_text(source.read_text().replace("1", "2"))
    changed.append(entry())
    assert len({first, *changed}) == 6


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    """Build the demo by a compiler that, once a first call has started it, waits for a file."""
    tools, gate, starts = (tmp_path / name for name in ("tools", "gate", "starts"))
    tools.mkdir()
    half = 'for output; do :; done; echo half > "$output"'  # the last word, as `compile` has it
    wait = f"{half}; echo $$ >> {starts}; until [ -e {gate} ]; do sleep 0.02; done"
    (tools / "g++").write_text(f'#!/bin/sh\ncase "$*" in *-shared*) {wait};; esac\nexec {HERE.cxx} "$@"\n')
    (tools / "g++").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    demo = copy_demo(tmp_path, Machine(HERE.name, "g++"))
    demo.build_lazily()
    yield Held(demo, gate, starts)
    gate.touch()  # a test that fails leaves no compiler waiting


def is_waiting_for_a_lock(pid: int) -> bool:
    return re.search(rf"-> FLOCK .* {pid} ", Path("/proc/locks").read_text()) is not None


def test_of_processes_that_race_one_compiles(held: Held) -> None:
    racing = [held.demo.start() for _ in range(4)]
    wait_until(lambda: sum(is_waiting_for_a_lock(process.pid) for process in racing) == 3)
    held.gate.touch()
    ends = [process.communicate(timeout=120) for process in racing]
    assert [out for out, _ in ends] == ["6\n"] * 4
    assert [name for _, said in ends for name in compiled_in(said)] == ["sum"]
    assert len(held.starts.read_text().splitlines()) == 1


def test_a_process_that_is_killed_while_it_compiles_leaves_no_entry_and_no_lock(held: Held) -> None:
    killed = held.demo.start()
    wait_until(held.starts.exists)
    killed.kill()
    killed.wait()
    assert held.demo.entries == set()
    next_one = held.demo.start()  # while the compiler of the killed one still runs
    wait_until(lambda: len(held.starts.read_text().splitlines()) == 2)
    held.gate.touch()
    out, said = next_one.communicate(timeout=120)
    killed.communicate(timeout=120)  # ends with that compiler
    assert (out, compiled_in(said)) == ("6\n", ["sum"])
    assert held.demo.call() == ("6\n", [])


def test_a_compile_that_fails_is_an_error_and_no_entry(held: Held) -> None:
    held.gate.touch()
    (held.gate.parent / "tools" / "g++").write_text("#!/bin/sh\nexit 1\n")
    failed = held.demo.start()
    _, said = failed.communicate(timeout=120)
    assert failed.returncode != 0 and re.search(r"^model: cannot make sum-\w+\.so ready: cannot compile ", said)
    assert held.demo.entries == set()


ARGUMENTS = {
    "kernels.hpp": """
        #include <cstdarg>
        struct Big { long values[5]; };
        Big all(int, long, short, char, unsigned, long long, const char*, long,
                double, float, double, double, float, double, double, double, double, float);
        double many(int count, ...);
    """,
    "kernels/scale.cpp": """
        #include "../kernels.hpp"
        Big all(int a, long b, short c, char d, unsigned e, long long f, const char* g, long h,
                double p, float q, double r, double s, float t, double u, double v, double w, double x, float y) {
            const double sum = p + 2 * q + 3 * r + 4 * s + 5 * t + 6 * u + 7 * v + 8 * w + 9 * x + 10 * y;
            return {{a + 2 * b + 3 * c, 4 * d + 5 * e + 6 * f, g[1], h, static_cast<long>(sum)}};
        }
    """,
    "kernels/sum.cpp": """
        #include "../kernels.hpp"
        double many(int count, ...) {
            va_list arguments;
            va_start(arguments, count);
            double sum = 0;
            for (int i = 0; i < count; ++i) sum = 10 * sum + va_arg(arguments, int) + va_arg(arguments, double);
            va_end(arguments);
            return sum;
        }
    """,
    "main.cpp": """
        #include <cstdio>
        #include "kernels.hpp"
        int main() {
            const Big big = all(1, 2, 3, 4, 5, 6, "xyz", 8, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10);
            for (long value : big.values) std::printf("%ld ", value);
            std::printf("%g\\n", many(6, 1, 0.5, 2, 0.25, 3, 1.5, 4, 2.5, 5, 3.5, 6, 4.5));
        }
    """,
}


@pytest.mark.parametrize("machine", machine_params(HERE, AARCH64))
def test_arguments_reach_the_function_through_the_slow_path(machine: Machine, tmp_path: Path) -> None:
    project = copy_demo(tmp_path, machine)
    write(project, ARGUMENTS)
    project.build()
    ahead, _ = project.call()
    assert ahead.startswith("14 77 121 8 385 ")
    clean(project)
    project.build_lazily()
    assert project.call() == (ahead, ["scale", "sum"])
    assert project.call() == (ahead, [])


# Both blobs and the program define `twice<int>`, and each calls a function of another one.
TOGETHER = {
    "kernels.hpp": """
        template <class T> [[gnu::noinline]] T twice(T x) { return x + x; }
        int scale(int), sum(int), of_the_program(int);
    """,
    "kernels/scale.cpp": """
        #include "../kernels.hpp"
        template int twice(int);
        int scale(int x) { return x < 100 ? sum(twice(x)) : x; }
    """,
    "kernels/sum.cpp": """
        #include "../kernels.hpp"
        template int twice(int);
        int sum(int x) { return scale(twice(of_the_program(x))); }
    """,
    "main.cpp": """
        #include <cstdio>
        #include "kernels.hpp"
        int of_the_program(int x) { return x + 1; }
        int main(int count, char**) { std::printf("%d %d\\n", count > 1 ? 0 : scale(1), twice(4)); }
    """,
}


def test_blobs_call_one_another_and_the_program_and_share_inline_functions(tmp_path: Path) -> None:
    project = copy_demo(tmp_path)
    write(project, TOGETHER)
    project.build_lazily()
    assert project.call("without") == ("0 8\n", [])  # the program has a `twice<int>` of its own
    assert project.call() == ("106 8\n", ["scale", "sum"])


def test_a_blob_that_cannot_wait_is_compiled_in_the_build(tmp_path: Path) -> None:
    project = copy_demo(tmp_path)
    source = project.root / "kernels" / "sum.cpp"
    source.write_text(source.read_text() + "int seen = 1;")
    assert ".so is eager: it defines seen, no function\n" in project.build_lazily()
    assert project.call("again") == ("12\n", ["scale"])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("extern const int seen = 1;", "it defines seen, no function"),
        ("inline int& one() { static int it; return it; } int two() { return one(); }", "it defines _ZZ3onevE2it"),
        ("struct Base { virtual void f() {} }; Base* make() { return new Base; }", "it defines _ZTI4Base"),
        ("int other(); static const int here = other(); int f() { return here; }", "it runs code at start or exit"),
        ("void g(); [[gnu::constructor]] static void early() { g(); }", "it runs code at start or exit"),
        ("void g(); [[gnu::destructor]] static void late() { g(); }", "it runs code at start or exit"),
        ("static int calls; static const int table[] = {1, 2}; int f() { return table[++calls % 2]; }", ""),
    ],
    ids=["constant", "shared_state", "vtable", "initializer", "constructor", "destructor", "own_data"],
)
def test_only_a_blob_of_functions_waits(text: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "blob.cpp").write_text(text)
    record = model.Record(HERE.cxx, str(tmp_path), "blob.cpp", ["-O1"])
    found = model.probe(record, str(tmp_path / "blob.o")).why_eager
    assert found.startswith(why) and bool(found) == bool(why)


@pytest.mark.parametrize("flag", ["-MMD", "-march=native", "-fPIC", "-flto", "-fvisibility=hidden", "-O", "other.cpp"])
def test_a_compile_with_a_flag_that_is_not_known_is_not_deferred(flag: str) -> None:
    words = ["-O2", "-c", "kernels/sum.cpp", "-o", "sum.o"]
    found = model.find_record("g++", words, "/project", "*/kernels/*.cpp")
    assert found == (model.Record("g++", "/project", "kernels/sum.cpp", ["-O2"]), "sum.o")
    for more in ([flag, *words], [*words, flag]):
        assert model.find_record("g++", more, "/project", "*/kernels/*.cpp") is None


@pytest.mark.parametrize(
    "words", ["kernels/sum.cpp -o sum", "-c kernels/sum.cpp", "-c main.cpp -o main.o", "-c kernels/sum.cpp -o"]
)
def test_what_is_no_compile_of_a_blob_is_run(words: str) -> None:
    assert model.find_record("g++", words.split(), "/project", "*/kernels/*.cpp") is None


def test_a_hidden_function_is_an_error_that_names_it(tmp_path: Path) -> None:
    project = copy_demo(tmp_path)
    header = project.root / "kernels.hpp"
    header.write_text(header.read_text().replace("double sum", '[[gnu::visibility("hidden")]] double sum'))
    project.build_lazily()
    process = project.start()
    assert "it lacks _Z3sumRKSt6vectorIdSaIdEE" in process.communicate(timeout=120)[1] and process.returncode != 0


def test_deferred_objects_do_not_link_without_the_model(demo: Project) -> None:
    (demo.root / "demo").unlink()
    done = subprocess.run(["make"], cwd=demo.root, env=demo.env, capture_output=True, text=True)
    assert done.returncode != 0 and "undefined reference to `deferred_so_link_it_by_model_py'" in done.stderr
