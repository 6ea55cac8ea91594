"""Test that the checked file is loaded, through its descriptor, whatever lies at its path by
then."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.lazylib import CXX, SOURCES, LazyLibrary, build_lazy_library, run, runtime_objects

from lazyck.runtime.builder import LINK_FLAGS

HEADER = "#pragma once\nint add(int, int); const char* where(); int use(int);\n"
BLOBS = {
    "add": '#include "demo.h"\nint add(int a, int b) { return a + b; }\n',
    "where": '#include "demo.h"\n#include <dlfcn.h>\n'
    "static int own;\n"  # the address of `where` would be that of its stub
    "const char* where() { Dl_info i; dladdr(&own, &i); return i.dli_fname; }\n",
}
MAIN = '#include "demo.h"\nint use(int x) { return add(x, x); }\n'
SYMBOLS = {"add": ("_Z3addii",), "where": ("_Z5wherev",)}
CALL_CAUGHT = r"""
#include "demo.h"
#include "error.hpp"
#include <cstdio>
int main() {
    for (int i = 0; i < 2; ++i) {
        try { std::printf("%d\n", use(4)); }
        catch (const lazyck::CompileError& e) { std::puts(e.what()); }
    }
}
"""
# This library moves SWAP_FROM to SWAP_TO before anything in the cache is loaded.
HOOK = r"""
#include <dlfcn.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
extern "C" void* dlopen(const char* name, int flags) {
    const char* from = std::getenv("SWAP_FROM");
    const char* to = std::getenv("SWAP_TO");
    if (name && from && to && (!std::strncmp(name, "/proc/", 6) || !std::strcmp(name, to))) {
        if (std::rename(from, to) == 0) std::fputs("swapped\n", stderr);
    }
    auto* real = reinterpret_cast<void* (*)(const char*, int)>(dlsym(RTLD_NEXT, "dlopen"));
    return real(name, flags);
}
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, objects_dir: Path) -> LazyLibrary:
    where = tmp_path_factory.mktemp("checked")
    lib = build_lazy_library(where, objects_dir, BLOBS, MAIN, header=HEADER, symbols=SYMBOLS)
    lib.program(CALL_CAUGHT)
    (where / "hook.cpp").write_text(HOOK)
    run([CXX, "-shared", "-fPIC", where / "hook.cpp", "-o", where / "hook.so", "-ldl"])
    (where / "evil.cpp").write_text(BLOBS["add"].replace("a + b", "666 + a + b"))
    run([CXX, "-O1", "-shared", "-fPIC", "-I", where, where / "evil.cpp", "-o", where / "evil.so"])
    return lib


@pytest.fixture
def lib(shared: LazyLibrary) -> LazyLibrary:
    shutil.rmtree(shared.cache, ignore_errors=True)
    shared.calls.unlink(missing_ok=True)
    return shared


def swapping(lib: LazyLibrary) -> dict[str, str]:
    """Return an environment in which the entry is exchanged between check and load."""
    (entry,) = lib.entries()
    ready = lib.directory / "evil.ready"
    shutil.copy(lib.directory / "evil.so", ready)
    hook = str(lib.directory / "hook.so")
    return {"LD_PRELOAD": hook, "SWAP_FROM": str(ready), "SWAP_TO": str(entry)}


def test_entry_exchanged_after_the_check_is_not_the_one_that_is_loaded(lib: LazyLibrary) -> None:
    program = lib.directory / "main"
    assert lib.call(program).stdout == "8\n8\n"
    done = lib.call(program, env=swapping(lib))
    assert "swapped" in done.stderr
    assert done.stdout == "8\n8\n"
    after = lib.call(program)  # the file at the entry's path is not an entry
    assert (after.stdout, "is damaged" in after.stderr, lib.compiles()) == ("8\n8\n", True, 2)


def without_proc() -> tuple[list[str], str]:
    """Return the words that run a command without /proc, and why that is impossible, or an empty
    string."""
    words = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$0" "$@"']
    if not shutil.which("unshare"):
        return [], "no unshare"
    tried = subprocess.run([*words, "test", "!", "-e", "/proc/self/fd"], capture_output=True, text=True)
    return words, "" if tried.returncode == 0 else f"cannot take /proc away: {tried.stderr.strip() or 'refused'}"


def test_without_proc_an_exchanged_entry_is_refused_and_compiled_again(lib: LazyLibrary) -> None:
    words, why = without_proc()
    if why:
        pytest.skip(why)
    program = lib.directory / "main"
    assert lib.call(program).stdout == "8\n8\n"
    env = swapping(lib)
    assert lib.call(*words, program).stdout == "8\n8\n"
    done = lib.call(*words, "env", *(f"{k}={v}" for k, v in env.items()), program)
    assert "another file was put in its place while it was loaded" in done.stderr
    assert (done.stdout, lib.compiles()) == ("8\n8\n", 2)


def test_loaded_entry_is_known_by_its_path_and_leaves_no_descriptor(lib: LazyLibrary) -> None:
    program = lib.program(
        r"""
        #include "demo.h"
        #include <cstdio>
        #include <cstring>
        #include <fstream>
        #include <filesystem>
        #include <iostream>
        #include <link.h>
        int main() {
            std::cout << use(4) << "\n" << where() << "\n";
            dl_iterate_phdr([](dl_phdr_info* i, size_t, void*) {
                if (!std::strstr(i->dlpi_name, ".so")) std::cout << "odd " << i->dlpi_name << "\n";
                return 0;
            }, nullptr);
            std::ifstream maps("/proc/self/maps");
            for (std::string line; std::getline(maps, line);) {
                if (line.find(where()) != std::string::npos) { std::cout << "mapped\n"; break; }
            }
            for (const auto& e : std::filesystem::directory_iterator("/proc/self/fd")) {
                std::error_code none;
                const std::string to = std::filesystem::read_symlink(e.path(), none);
                if (to.find("/v1/") != std::string::npos) std::cout << "open " << to << "\n";
            }
        }
        """,
        name="names",
    )
    out = lib.call(program).stdout.splitlines()
    (entry,) = [e for e in lib.entries() if e.name.startswith("where")]
    assert out == ["8", str(entry), "odd ", "mapped"]  # the program's own name is empty


@pytest.fixture(scope="module")
def unit(tmp_path_factory: pytest.TempPathFactory, objects_dir: Path) -> Callable[[str], str]:
    """Return a function that links a main function with the runtime's loader, runs it and
    returns its output. The program gets a directory with 0.so to 399.so, each of which returns
    its number."""
    where = tmp_path_factory.mktemp("unit")
    (where / "one.cpp").write_text(
        'extern "C" volatile const char number_text[] = "NUMBER:0000";\n'
        'extern "C" int number() { int n = 0; for (int i = 7; i < 11; ++i) n = 10 * n + number_text[i] - 48;'
        " return n; }"
    )
    run([CXX, "-shared", "-fPIC", "-nostdlib", where / "one.cpp", "-o", where / "one.so"])
    whole = (where / "one.so").read_bytes()
    assert whole.count(b"NUMBER:0000") == 1
    for i in range(400):
        (where / f"{i}.so").write_bytes(whole.replace(b"NUMBER:0000", b"NUMBER:%04d" % i))
    objects = [o for o in runtime_objects(objects_dir, CXX, ()) if not o.stem.startswith("stub_")]

    def start(main: str) -> str:
        (where / "main.cpp").write_text(UNIT + main)
        run([CXX, "-std=c++17", "-iquote", SOURCES, where / "main.cpp", *objects, "-o", where / "main",
             *LINK_FLAGS])  # fmt: skip
        return run([where / "main", where]).stdout

    return start


UNIT = r"""
#include "cache/checked_file.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <set>
#include <thread>
#include <vector>
using namespace lazyck::rt;
std::string g_where;
std::mutex g_moments;
Scope alone(const std::string&) { return {}; }
CheckedFile checked(int i, int* number = nullptr) {
    const std::string path = g_where + "/" + std::to_string(i) + ".so";
    UniqueFd fd = open_file(path, O_RDONLY);
    if (number) *number = fd.get();
    struct stat st;
    if (fstat(fd.get(), &st) != 0) std::abort();
    return CheckedFile(std::move(fd), path, st);
}
int number(void* handle) { return reinterpret_cast<int (*)()>(dlsym(handle, "number"))(); }
"""


def test_files_behind_one_descriptor_number_are_told_apart(unit: Callable[[str], str]) -> None:
    out = unit(r"""
    int main(int, char** argv) {
        g_where = argv[1];
        std::set<int> descriptors;
        std::string reason;
        int wrong = 0;
        for (int i = 0; i < 400; ++i) {
            int fd;
            CheckedFile file = checked(i, &fd);
            descriptors.insert(fd);
            void* handle = file.load(g_moments, alone, nullptr, reason);
            if (!handle || number(handle) != i) ++wrong;
        }
        std::printf("%zu descriptor, %d wrong %s\n", descriptors.size(), wrong, reason.c_str());
    }
    """)
    assert out == "1 descriptor, 0 wrong \n"


def test_lists_of_libraries_are_told_apart_whatever_their_numbers(unit: Callable[[str], str]) -> None:
    """Files in memory whose numbers end alike need names of their own, or the loader would load
    only the first of them."""
    out = unit(r"""
    #include <sched.h>
    #include <sys/mman.h>
    int main(int, char** argv) {
        cpu_set_t one;  // the kernel numbers files for each processor
        CPU_ZERO(&one);
        CPU_SET(sched_getcpu(), &one);
        sched_setaffinity(0, sizeof one, &one);
        int wrong = 0;
        std::string reason;
        for (int i = 0; i < 5; ++i) {
            for (struct stat st = {}; st.st_ino % 1000 != 500;) {
                const UniqueFd file(memfd_create("number", 0));
                if (fstat(file.get(), &st) != 0) return 1;
            }
            void* const handle = open_library({{"libc.so.6"}}, argv[1] + ("/" + std::to_string(i)) + ".so", reason);
            if (!handle || number(handle) != i) ++wrong;
        }
        std::printf("%d wrong %s\n", wrong, reason.c_str());
    }
    """)
    assert out == "0 wrong \n"


def test_one_file_loaded_by_many_threads_is_mapped_once_for_each_library(unit: Callable[[str], str]) -> None:
    out = unit(r"""
    int main(int, char** argv) {
        g_where = argv[1];
        int wrong = 0;
        for (int i = 0; i < 50; ++i) {
            CheckedFile shared = checked(i);
            std::mutex moments;
            std::vector<void*> handles(8);
            std::atomic<int> waiting{8};
            std::vector<std::thread> threads;
            for (int t = 0; t < 8; ++t) threads.emplace_back([&, t] {
                CheckedFile own = checked(i);  // as another library of this process has it
                const auto scope = [](const std::string&) { return Scope{{"libc.so.6"}}; };
                std::string reason;
                std::mutex others;
                for (--waiting; waiting > 0;) {}
                handles[t] =
                    t % 2 ? own.load(others, scope, nullptr, reason) : shared.load(moments, scope, nullptr, reason);
            });
            for (auto& t : threads) t.join();
            for (void* h : handles) wrong += !h || number(h) != i;
            const std::set<void*> all(handles.begin(), handles.end());
            wrong += all.size() != 5;
            for (int t = 0; t < 8; t += 2) wrong += handles[t] != handles[0];
        }
        std::printf("%d wrong\n", wrong);
    }
    """)
    assert out == "0 wrong\n"


def test_file_whose_descriptor_the_program_closed_is_not_mistaken(unit: Callable[[str], str]) -> None:
    out = unit(r"""
    #include <unistd.h>
    int main(int, char** argv) {
        g_where = argv[1];
        int fd;
        CheckedFile file = checked(0, &fd);
        const int other = open((g_where + "/1.so").c_str(), O_RDONLY);
        dup2(other, fd);
        std::string reason;
        const bool is_refused = file.load(g_moments, alone, nullptr, reason) == nullptr;
        std::printf("%d %s\n", is_refused, reason.c_str() + g_where.size());
    }
    """)
    assert out == "1 /0.so: this program closed the descriptor of the checked file before it was loaded\n"


@pytest.mark.parametrize("kind", ["fifo", "link", "directory", "large"])
def test_note_of_a_check_that_is_no_plain_file_is_not_read(lib: LazyLibrary, kind: str) -> None:
    program = lib.directory / "main"
    lib.call(program)
    (entry,) = lib.entries()
    seen = entry.with_name(entry.name + ".seen")
    seen.unlink(missing_ok=True)
    if kind == "fifo":
        os.mkfifo(seen)
    elif kind == "link":
        seen.symlink_to("/dev/zero")
    elif kind == "directory":
        seen.mkdir()
    else:
        with seen.open("wb") as f:
            f.truncate(1 << 40)
    done = lib.call(program)
    assert (done.stdout, done.stderr, lib.compiles()) == ("8\n8\n", "", 1)


@pytest.mark.parametrize("mode", [0o775, 0o757])
def test_entry_that_others_can_write_is_compiled_again(lib: LazyLibrary, mode: int) -> None:
    program = lib.directory / "main"
    old = os.umask(0)
    try:
        lib.call(program)
    finally:
        os.umask(old)
    (entry,) = lib.entries()
    assert entry.stat().st_mode & 0o022 == 0
    entry.chmod(mode)
    done = lib.call(program)
    assert "others can write to it" in done.stderr
    assert (done.stdout, lib.compiles()) == ("8\n8\n", 2)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_entry_of_another_user_is_compiled_again(lib: LazyLibrary) -> None:
    program = lib.directory / "main"
    lib.call(program)
    (entry,) = lib.entries()
    os.chown(entry, 12345, 12345)
    done = lib.call(program)
    assert "it belongs to user 12345" in done.stderr
    assert (done.stdout, lib.compiles()) == ("8\n8\n", 2)


@pytest.mark.skipif(not shutil.which("gdb"), reason="no gdb")
def test_debugger_sees_the_entry_and_does_not_hang(lib: LazyLibrary) -> None:
    program = lib.directory / "main"
    assert lib.call(program).stdout == "8\n8\n"
    words = ["-ex", "catch syscall exit_group", "-ex", "run", "-ex", "info sharedlibrary", "-ex", "kill"]
    options = ["-nx", "-batch", "-ex", "set debuginfod enabled off", "-ex", "set startup-with-shell off"]
    # The debugger's descriptors from 3 on are pipes. It would wait on one if it mistook a
    # descriptor of the inferior for its own.
    pipes = "import os,sys; [os.dup2(os.pipe()[0], n) for n in range(20, 4, -1)]; os.execvp('gdb', sys.argv[1:])"
    argv = [sys.executable, "-c", pipes, "gdb", *options, *words, str(program)]
    done = subprocess.run(
        argv, env={**os.environ, **lib.env}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120
    )
    if "ptrace" in done.stderr and "not permitted" in done.stderr:
        pytest.skip("no debugging here: " + done.stderr.strip().splitlines()[-1])
    (entry,) = lib.entries()
    assert str(entry) in done.stdout, done


@pytest.mark.parametrize("is_cached", [False, True], ids=["cold", "cached"])
@pytest.mark.skipif(not shutil.which("gdb"), reason="no gdb")
def test_debugger_stops_in_an_entry_that_it_knows_by_its_path(lib: LazyLibrary, is_cached: bool) -> None:
    program = lib.directory / "main"
    if is_cached:
        lib.call(program)
    # The breakpoint is hit once at the stub and once in the entry.
    words = [
        "set breakpoint pending on",
        "break _Z3addii",
        "run",
        "continue",
        "backtrace",
        "info sharedlibrary",
        "kill",
    ]
    options = ["-nx", "-batch", "-ex", "set debuginfod enabled off", "-ex", "set startup-with-shell off"]
    argv = ["gdb", *options, *(w for word in words for w in ("-ex", word)), str(program)]
    env = {**os.environ, **lib.env}
    done = subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    if "ptrace" in done.stderr and "not permitted" in done.stderr:
        pytest.skip("no debugging here: " + done.stderr.strip().splitlines()[-1])
    (entry,) = lib.entries()
    (frame,) = [line for line in done.stdout.splitlines() if line.startswith("#0 ")]
    assert "add(int, int)" in frame and frame.endswith(f"from {entry}"), done
    assert str(entry) in done.stdout.rpartition("From ")[2], done
    assert "/fd/" not in done.stdout and "BFD" not in done.stderr, done


def test_only_where_a_debugger_is_attached_it_is_told_of_the_name(lib: LazyLibrary) -> None:
    program = lib.program(
        r"""
        #include "demo.h"
        #include <cstdio>
        #include <link.h>
        #include <sys/ptrace.h>
        #include <sys/wait.h>
        #include <unistd.h>
        int call(const char* how) {
            unsigned long long unloaded = 0;
            const int value = use(4);
            dl_iterate_phdr([](dl_phdr_info* i, size_t, void* out) {
                *static_cast<unsigned long long*>(out) = i->dlpi_subs;
                return 1;
            }, &unloaded);
            std::printf("%s %d, unloaded %llu\n", how, value, unloaded);
            std::fflush(stdout);
            return 0;
        }
        int main() {
            const pid_t child = fork();
            if (child == 0) _exit(ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0 ? 77 : call("traced"));
            int status = 0;
            while (waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
                ptrace(PTRACE_CONT, child, nullptr, WSTOPSIG(status));
            }
            if (WEXITSTATUS(status) == 77) { std::puts("no tracing here"); return 0; }
            return call("alone");
        }
        """,
        name="traced",
    )
    lib.call(lib.directory / "main")
    out = lib.call(program).stdout
    if "no tracing" in out:
        pytest.skip(out)
    assert out == "traced 8, unloaded 1\nalone 8, unloaded 0\n"
