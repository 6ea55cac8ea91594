"""Test first calls: a blob is compiled once however many ask, nothing is compiled twice, and
failures name what is wrong."""

import functools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support import AARCH64, HERE, RISCV64, Machine, machine_params, on_each_machine
from support.four_blobs import slow_compiler
from support.lazylib import LazyLibrary, as_new, build_lazy_library
from support.small_library import BLOBS, CALL_CAUGHT, HEADER, MAIN, SYMBOLS

CALL_ONCE = '#include "demo.h"\nint main() { return use(4) == 8 && sub(5, 2) == 3 ? 0 : 1; }'

Make = Callable[..., LazyLibrary]


@pytest.fixture
def make(tmp_path: Path, objects_dir: Path, machine: Machine) -> Make:
    """Return a function that builds the library of this file, with changes."""

    def build(directory: str = "lib", **changes: object) -> LazyLibrary:
        where = tmp_path / directory
        where.mkdir()
        plain = {"blobs": BLOBS, "main": MAIN, "header": HEADER, "symbols": SYMBOLS, "machine": machine}
        return build_lazy_library(where, objects_dir, **{**plain, **changes})  # type: ignore[arg-type]

    return build


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, objects_dir: Path) -> Callable[[Machine], LazyLibrary]:
    """Return a function that builds the library of this file for a machine once."""

    @functools.cache
    def build(machine: Machine) -> LazyLibrary:
        where = tmp_path_factory.mktemp("resolve")
        return build_lazy_library(where, objects_dir, BLOBS, MAIN, header=HEADER, symbols=SYMBOLS, machine=machine)

    return build


@pytest.fixture
def lib(shared: Callable[[Machine], LazyLibrary], machine: Machine) -> LazyLibrary:
    return as_new(shared(machine))


@on_each_machine
def test_many_threads_of_many_processes_compile_a_blob_once(lib: LazyLibrary) -> None:
    program = lib.program(r"""
    #include "demo.h"
    #include <atomic>
    #include <thread>
    #include <vector>
    int main() {
        std::atomic<int> bad{0}, waiting{8};
        std::vector<std::thread> threads;
        for (int i = 0; i < 8; ++i) threads.emplace_back([&] {
            for (--waiting; waiting > 0;) {}
            if (use(21) != 42) ++bad;
        });
        for (auto& t : threads) t.join();
        return bad;
    }
    """)
    processes = [
        subprocess.Popen(lib.words(program), env={**os.environ, **lib.env}, stderr=subprocess.PIPE, text=True)
        for _ in range(8)
    ]
    errors = [p.communicate(timeout=120)[1] for p in processes]
    assert [p.returncode for p in processes] == [0] * 8, errors
    assert lib.compiles() == 1
    assert sum("compiling add" in e for e in errors) == 1
    assert not list((lib.cache / ".staging").iterdir())


def test_different_blobs_compile_at_the_same_time(lib: LazyLibrary) -> None:
    # Each compiler waits for the other to start, so compiles one after the other would fail.
    lib.compiler.write_text(
        "#!/bin/sh\n"
        f'case "$*" in *-c*add.cpp*) me=add other=sub ;; *-c*sub.cpp*) me=sub other=add ;; *) exec g++ "$@" ;; esac\n'
        f"touch '{lib.compiler}'.$me\n"
        f"for i in $(seq 600); do [ -e '{lib.compiler}'.$other ] && exec g++ \"$@\"; sleep 0.1; done\nexit 9\n"
    )
    program = lib.program(r"""
    #include "demo.h"
    #include <thread>
    int main() {
        int a = 0, b = 0;
        std::thread one([&] { a = use(4); }), two([&] { b = sub(5, 2); });
        one.join(); two.join();
        return a == 8 && b == 3 ? 0 : 1;
    }
    """)
    done = lib.call(program, env={"LAZYCK_JOBS": "2"})
    assert done.returncode == 0, done.stderr


@on_each_machine
def test_second_process_needs_no_compiler_and_says_nothing(lib: LazyLibrary) -> None:
    program = lib.program(CALL_ONCE)
    first = lib.call(program)
    assert first.returncode == 0, first.stderr
    lines = first.stderr.splitlines()
    assert [line.rsplit(" in ", 1)[0] for line in lines[:2]] == [
        f"[lazyck] compiling add for {lib.machine.name} ...",
        f"[lazyck] compiled add for {lib.machine.name}",
    ]
    lib.compiler.unlink()
    shutil.rmtree(lib.directory / "lazyck")
    second = lib.call(program)
    assert (second.returncode, second.stderr) == (0, "")


@on_each_machine
def test_failure_tells_all_and_the_next_call_tries_again(lib: LazyLibrary) -> None:
    source = lib.directory / "lazyck/src/add.cpp"
    good = source.read_text()
    source.write_text('#include "demo.h"\nint add(int a, int b) { return a + undeclared; }\n')
    program = lib.program(CALL_CAUGHT, "caught")
    failed = lib.call(program)
    assert failed.returncode == 3, failed
    assert "blob 'add'" in failed.stdout
    assert "undeclared" in failed.stdout.splitlines()[0]
    assert not lib.entries()
    log = Path(failed.stdout.split("log: ")[1].splitlines()[0])
    assert "undeclared" in log.read_text()
    command = failed.stdout.split("to reproduce: ")[1].splitlines()[0]
    again = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert again.returncode != 0
    assert "undeclared" in again.stderr
    source.write_text(good)
    assert lib.call(program).stdout == "8\n"
    assert subprocess.run(["sh", "-c", command], capture_output=True, check=False).returncode == 0


CALL_OFTEN_THEN_CLEAR = r"""
#include "demo.h"
#include "error.hpp"
#include "lazyck.h"
#include <cstdio>
#include <string>
int main(int, char** argv) {
    std::string first;
    for (int i = 0; i < 1000; ++i) {
        try { use(4); return 2; }
        catch (const lazyck::CompileError& e) {
            if (first.empty()) first = e.what();
            if (first != e.what() || std::string(e.blob()) != "add" || *e.log() == 0 || *e.command() == 0) return 3;
        }
    }
    std::puts(first.c_str());
    if (std::rename(argv[1], argv[2]) != 0) return 4;
    try { use(4); return 5; } catch (const lazyck::CompileError&) {}
    if (lazyck_clear_failures() != 1 || lazyck_clear_failures() != 0) return 6;
    return use(4) == 8 && sub(5, 2) == 3 ? 0 : 7;
}
"""


@on_each_machine
def test_what_the_compiler_refused_is_not_compiled_again_until_cleared(lib: LazyLibrary) -> None:
    source = lib.directory / "lazyck/src/add.cpp"
    (lib.directory / "good.cpp").write_text(source.read_text())
    source.write_text("int add(int a, int b) { return oops; }\n")
    done = lib.call(lib.program(CALL_OFTEN_THEN_CLEAR), lib.directory / "good.cpp", source)
    assert done.returncode == 0, done
    assert "lazyck_clear_failures()" in done.stdout
    assert lib.compiles("add") == 2


@on_each_machine
def test_threads_that_waited_share_the_failure(lib: LazyLibrary) -> None:
    (lib.directory / "lazyck/src/add.cpp").write_text("int add(int a, int b) { return oops; }\n")
    slow_compiler(lib, "sleep 0.4")
    program = lib.program(r"""
    #include "demo.h"
    #include "error.hpp"
    #include <atomic>
    #include <thread>
    #include <vector>
    int main() {
        std::atomic<int> caught{0};
        std::vector<std::thread> threads;
        for (int i = 0; i < 6; ++i) threads.emplace_back([&] {
            try { use(1); } catch (const lazyck::CompileError&) { ++caught; }
        });
        for (auto& t : threads) t.join();
        return caught == 6 ? 0 : 1;
    }
    """)
    assert lib.call(program).returncode == 0
    assert lib.compiles() == 1


def test_missing_compiler_is_named(lib: LazyLibrary) -> None:
    lib.compiler.unlink()
    done = lib.call(lib.program(CALL_CAUGHT, "caught"))
    assert done.returncode == 3
    assert str(lib.compiler) in done.stdout
    assert "No such file" in done.stdout
    assert "lazyck prebuild" in done.stdout


def test_missing_toolchain_home_names_the_variables(make: Make) -> None:
    lib = make(home="/nonexistent/rocm", home_env=("SOME_PATH", "SOME_HOME"))
    program = lib.program(CALL_CAUGHT, "caught")
    done = lib.call(program)
    assert done.returncode == 3
    assert "/nonexistent/rocm" in done.stdout
    assert "SOME_PATH or SOME_HOME" in done.stdout
    assert lib.call(program, env={"SOME_HOME": str(lib.directory)}).stdout == "8\n"


def test_missing_bundle_is_named(lib: LazyLibrary) -> None:
    shutil.rmtree(lib.directory / "lazyck")
    done = lib.call(lib.program(CALL_CAUGHT, "caught"))
    assert done.returncode == 3
    assert "LAZYCK_ROOT" in done.stdout


def test_symbol_that_the_blob_does_not_define_is_named(make: Make) -> None:
    lib = make(symbols={"add": ("_Z3addii", "_Z4gonei"), "sub": ("_Z3subii",)})
    done = lib.call(lib.program(CALL_CAUGHT, "caught"))
    assert done.returncode == 3
    assert "_Z4gonei" in done.stdout
    assert not lib.entries()


def test_hidden_symbol_of_a_blob_is_not_taken_for_a_definition(make: Make) -> None:
    hidden = '#include "demo.h"\n__attribute__((visibility("hidden"))) int add(int a, int b) { return a + b; }\n'
    lib = make(blobs={**BLOBS, "add": hidden})
    done = lib.call(lib.program(CALL_CAUGHT, "caught"))
    assert done.returncode == 3
    assert "_Z3addii" in done.stdout


on_every_machine = pytest.mark.parametrize("machine", machine_params(HERE, AARCH64, RISCV64), indirect=True)


@on_every_machine
def test_ifunc_is_resolved_as_the_loader_does_it(make: Make, machine: Machine) -> None:
    # Loaders pass the CPU's features, but not on x86-64. On aarch64 the highest bit but one says
    # that there is a second argument.
    features = "0" if machine.name == "x86_64" else "(given & ~(1UL << 62)) ^ getauxval(AT_HWCAP)"
    text = (
        "#include <sys/auxv.h>\n"
        "static int real(int a, int b) { return a + b; }\n"
        "static int wrong(int, int) { return -1; }\n"
        'extern "C" { static int (*choose(unsigned long given))(int, int) {\n'
        f"    return {features} ? wrong : real;\n}} }}\n"
        'int add(int a, int b) __attribute__((ifunc("choose")));\n'
    )
    lib = make(blobs={**BLOBS, "add": text})
    done = lib.call(lib.program(CALL_CAUGHT, "caught"))
    assert done.stdout == "8\n", done


def test_a_resolver_of_the_program_that_calls_a_blob_ends_with_the_reason(make: Make) -> None:
    lib = make()
    text = (
        '#include "demo.h"\nstatic int one() { return 1; }\n'
        'extern "C" int (*choose())() { return add(1, 2) == 3 ? one : nullptr; }\n'
        'int chosen() __attribute__((ifunc("choose")));\nint main() { return chosen(); }\n'
    )
    done = lib.call(lib.program(text, "early"))
    assert done.returncode == -signal.SIGABRT
    assert "_Z3addii was called by a resolver" in done.stderr and "--blobs" in done.stderr, done


@on_every_machine
def test_initializers_have_default_floating_point_settings_and_the_caller_keeps_its_own(make: Make) -> None:
    text = "#include <cfenv>\nstatic const int mode = std::fegetround();\n"
    text += "int add(int a, int b) { return mode == FE_TONEAREST ? a + b : -1; }\n"
    lib = make(blobs={**BLOBS, "add": text})
    program = """
    #include "demo.h"
    #include <cfenv>
    #include <cstdio>
    int main() {
        std::fesetround(FE_UPWARD);
        std::feclearexcept(FE_ALL_EXCEPT);
        std::feraiseexcept(FE_INEXACT);
        const int sum = add(3, 5);
        std::printf("%d %d %d\\n", sum, std::fegetround() == FE_UPWARD, std::fetestexcept(FE_ALL_EXCEPT) == FE_INEXACT);
    }
    """
    done = lib.call(lib.program(program, flags=["-Wl,--no-as-needed", "-lm"]))
    assert done.stdout == "8 1 1\n", done


def test_blob_calls_back_into_library_and_other_blobs(make: Make) -> None:
    blobs = {
        "add": '#include "demo.h"\nint add(int a, int b) { return sub(a, -b) + base(); }\n',
        "sub": BLOBS["sub"],
    }
    lib = make(blobs=blobs, header=HEADER + "int base();\n", main=MAIN + "int base() { return 1000; }\n")
    assert lib.call(lib.program(CALL_CAUGHT, "caught")).stdout == "1008\n"


def test_static_initializers_that_need_each_other_do_not_deadlock(make: Make) -> None:
    # Loading add calls sub, and loading sub calls add, while two threads call one each.
    blobs = {
        "add": '#include "demo.h"\nstatic int g = sub(3, 1);\nint add(int a, int b) { return a + b + 0 * g; }\n',
        "sub": '#include "demo.h"\nstatic int g = add(3, 1);\nint sub(int a, int b) { return a - b + 0 * g; }\n',
    }
    lib = make(blobs=blobs)
    program = lib.program(r"""
    #include "demo.h"
    #include <thread>
    int main() {
        int a = 0, b = 0;
        std::thread one([&] { a = use(4); }), two([&] { b = sub(5, 2); });
        one.join(); two.join();
        return a == 8 && b == 3 ? 0 : 1;
    }
    """)
    for _ in range(5):
        assert lib.call(program).returncode == 0
    assert lib.compiles() == 2


def test_on_error_abort_ends_the_process(lib: LazyLibrary) -> None:
    lib.compiler.unlink()
    done = lib.call(lib.program(CALL_CAUGHT, "caught"), env={"LAZYCK_ON_ERROR": "abort"})
    assert done.returncode == -signal.SIGABRT
    assert "cannot compile blob 'add'" in done.stderr


CALL_FORBIDDEN = CALL_CAUGHT.replace("try {", "lazyck_forbid_jit(1); try {").replace(
    '#include "error.hpp"', '#include "error.hpp"\n#include "lazyck.h"'
)


@pytest.mark.parametrize("by", ["LAZYCK_JIT=off", "the program (lazyck_forbid_jit)"])
def test_a_forbidden_compile_is_an_error_with_the_command_that_makes_up_for_it(make: Make, by: str) -> None:
    lib = make("with blanks")
    is_variable = by == "LAZYCK_JIT=off"
    program = lib.program(CALL_CAUGHT if is_variable else CALL_FORBIDDEN)
    env = {"LAZYCK_JIT": "off"} if is_variable else {}
    done = lib.call(program, env=env)
    assert done.returncode == 3
    assert f"and {by} forbids compiling it" in done.stdout
    assert lib.compiles() == 0
    assert not lib.cache.exists()
    line = done.stdout.partition("to build it: ")[2]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    pasted = lib.call("sh", "-c", line, env={**env, "PATH": path, "LAZYCK_CACHE_DIR": ""})
    assert pasted.returncode == 0, pasted.stderr
    assert lib.compiles() == 1
    assert lib.call(program, env=env).stdout == "8\n"


@pytest.mark.parametrize("disposition", ["SIG_IGN", "reaper"])
def test_host_program_that_reaps_children_itself(lib: LazyLibrary, disposition: str) -> None:
    handler = "SIG_IGN" if disposition == "SIG_IGN" else "[](int) { while (waitpid(-1, nullptr, WNOHANG) > 0) {} }"
    program = lib.program(
        f"""
    #include "demo.h"
    #include "error.hpp"
    #include <csignal>
    #include <cstdio>
    #include <sys/wait.h>
    int main() {{
        signal(SIGCHLD, {handler});
        try {{ std::printf("%d\\n", use(4)); }}
        catch (const lazyck::CompileError& e) {{ std::puts(e.what()); return 3; }}
    }}
    """
    )
    done = lib.call(program)
    assert done.stdout == "8\n", done
    shutil.rmtree(lib.cache)
    (lib.directory / "lazyck/src/add.cpp").write_text("int add(int a, int b) { return oops; }\n")
    failed = lib.call(program)
    assert failed.returncode == 3
    assert "oops" in failed.stdout


def test_forked_child_can_call_while_the_parent_compiles(lib: LazyLibrary) -> None:
    slow_compiler(lib, ': > "$0.first"; sleep 0.3')
    program = lib.program(r"""
    #include "demo.h"
    #include <sys/wait.h>
    #include <thread>
    #include <unistd.h>
    int main(int, char** argv) {
        int a = 0;
        std::thread one([&] { a = use(4); });
        while (access(argv[1], F_OK) != 0) usleep(10000);
        const pid_t child = fork();
        if (child == 0) _exit(use(4) == 8 && sub(3, 1) == 2 ? 0 : 1);
        int status = 1;
        waitpid(child, &status, 0);
        one.join();
        return a == 8 && status == 0 ? 0 : 1;
    }
    """)
    done = lib.call(program, f"{lib.compiler}.first")
    assert done.returncode == 0, done.stderr
    assert lib.compiles("add") == 1


def test_odd_characters_in_paths(make: Make, tmp_path: Path) -> None:
    lib = make(directory="a 'quoted\" dir\nof $two lines")
    program = tmp_path / "loader.py"
    program.write_text("import ctypes, sys\nlib = ctypes.CDLL(sys.argv[1])\nprint(lib._Z3usei(4))\n", encoding="utf-8")
    done = lib.call(sys.executable, program, lib.library)
    assert done.stdout == "8\n", done.stderr
    assert lib.call(sys.executable, program, lib.library).stderr == ""
    assert len(lib.entries()) == 1


def test_a_compile_has_the_variables_of_its_recipe_and_no_others_of_the_job(make: Make) -> None:
    lib = make(env=(("MARK", "from recipe"),))
    lib.compiler.write_text(f'#!/bin/sh\n/usr/bin/env | sort | tr "\\n" "|" >> \'{lib.calls}\'\nexec g++ "$@"\n')
    jobs = {"CPLUS_INCLUDE_PATH": "/leak", "MARK": "job's", "LD_RUN_PATH": "/leak", "PATH": "/leak:/usr/bin:/bin"}
    done = lib.call(lib.program(CALL_CAUGHT, "caught"), env=jobs)
    assert done.stdout == "8\n"
    where = "/proc/self/cwd"
    one = f"HOME={where}|LC_ALL=C|MARK=from recipe|PATH=/usr/bin:/bin|PWD={where}|TMPDIR=.|TZ=UTC0|"
    assert lib.calls.read_text() == one * 2  # the compile and the link
