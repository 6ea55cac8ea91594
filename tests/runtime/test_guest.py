"""Test that the runtime behaves as a guest in other people's processes: it leaves their
descriptors, language, environment, threads, signals, stacks and floating point alone."""

import json
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.lazylib import CXX, SOURCES, LazyLibrary, as_new, build_lazy_library, run, runtime_objects

from lazyck import abi
from lazyck.postbuild.bundle import deploy
from lazyck.postbuild.cxx.lexer import without_comments

HEADER = "#pragma once\nint one(int); int two(int); int bad(int);\n"
BLOBS = {
    "one": '#include "demo.h"\nint one(int x) { return x + 1; }\n',
    "two": '#include "demo.h"\nint two(int x) { return x + 2; }\n',
    "bad": '#include "demo.h"\n#error "no"\n',
}
SYMBOLS = {"one": ("_Z3onei",), "two": ("_Z3twoi",), "bad": ("_Z3badi",)}
MAIN = '#include "demo.h"\nint use(int x) { return one(x) + two(x) + bad(x); }\n'


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, objects_dir: Path) -> LazyLibrary:
    where = tmp_path_factory.mktemp("guest")
    return build_lazy_library(where, objects_dir, BLOBS, MAIN, header=HEADER, symbols=SYMBOLS)


@pytest.fixture
def lib(shared: LazyLibrary) -> LazyLibrary:
    return as_new(shared)


def program(lib: LazyLibrary, body: str, includes: str = "", libs: tuple[str, ...] = ()) -> Path:
    names = [
        "cstdio",
        "cstdlib",
        "cstring",
        "string",
        "thread",
        "vector",
        "unistd.h",
        "fcntl.h",
        "signal.h",
        "sys/wait.h",
    ]
    lines = "".join(f"#include <{name}>\n" for name in (*names, *includes.split()))
    return lib.program(f'#include "demo.h"\n#include "lazyck.h"\n#include "error.hpp"\n{lines}{body}', libs=libs)


def before_compile(lib: LazyLibrary, shell: str) -> None:
    """Make the compile step (not the link step) first run `shell`."""
    script = lib.compiler.read_text()
    lib.compiler.write_text(script.replace("\nexec ", f"\ncase \" $* \" in *' -c '*)\n{shell}\n;; esac\nexec "))


# -- descriptors, processes ------------------------------------------------------------------------


def test_compile_keeps_none_of_the_programs_descriptors_open(lib: LazyLibrary, tmp_path: Path) -> None:
    before_compile(
        lib,
        f"ls -l /proc/$$/fd > {tmp_path}/fds; touch {tmp_path}/go; while [ ! -e {tmp_path}/seen ]; do sleep 0.02; done",
    )
    main = program(
        lib,
        r"""
        int main(int, char** argv) {
            int own[2], plain[2];
            if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, own) || socketpair(AF_UNIX, SOCK_STREAM, 0, plain))
                return 2;
            std::thread caller([] { if (one(1) != 2) std::abort(); });
            while (access(argv[1], F_OK) != 0) usleep(1000);
            close(own[0]);
            close(plain[0]);
            for (const int end : {own[1], plain[1]}) {
                pollfd wanted = {end, POLLIN, 0};
                std::printf("%d", poll(&wanted, 1, 1500));
            }
            std::puts("");
            close(open(argv[2], O_CREAT | O_WRONLY, 0600));
            caller.join();
        }
        """,
        "sys/socket.h poll.h",
    )
    done = lib.call(main, tmp_path / "go", tmp_path / "seen")
    assert done.stdout == "11\n", done
    listing = (tmp_path / "fds").read_text()
    assert "/cxx" in listing and "socket:" not in listing, listing


def test_program_may_close_and_use_all_descriptors_during_a_compile(lib: LazyLibrary, tmp_path: Path) -> None:
    before_compile(lib, f"touch {tmp_path}/go; while [ ! -e {tmp_path}/seen ]; do sleep 0.02; done")
    main = program(
        lib,
        r"""
        int main(int, char** argv) {
            int value = 0;
            std::thread caller([&] { value = one(1); });
            while (access(argv[1], F_OK) != 0) usleep(1000);
            for (int fd = 3; fd < 100; ++fd) close(fd);
            std::vector<int> own;
            while (own.size() < 40) own.push_back(open(argv[3], O_RDWR | O_CREAT | O_APPEND, 0600));
            close(open(argv[2], O_CREAT | O_WRONLY, 0600));
            caller.join();
            int open = 0;
            for (const int fd : own) open += fcntl(fd, F_GETFD) >= 0;
            std::printf("%d %d %ld\n", value, open, (long)lseek(own[0], 0, SEEK_END));
        }
        """,
    )
    done = lib.call(main, tmp_path / "go", tmp_path / "seen", tmp_path / "mine")
    assert done.stdout == "2 40 0\n", done


@pytest.mark.parametrize("flags", ["CLONE_NEWPID", "CLONE_NEWUSER | CLONE_NEWPID"])
def test_children_of_the_program_have_their_pid_namespace(lib: LazyLibrary, flags: str) -> None:
    main = program(
        lib,
        r"""
        int main() {
            const std::string users = "0 " + std::to_string(geteuid()) + " 1";
            if (unshare(FLAGS) != 0) return 77;
            if ((FLAGS) & CLONE_NEWUSER) {
                const int map = open("/proc/self/uid_map", O_WRONLY);
                if (write(map, users.data(), users.size()) < 0) return 77;
                close(map);
            }
            pid_t first = 0;
            for (int i = 0; i < 2; ++i) {
                try {
                    std::printf("%d ", i == 0 ? one(1) : two(1));
                } catch (const lazyck::CompileError& e) {
                    std::printf("%d ", std::strstr(e.what(), "another PID namespace") != nullptr);
                }
                std::fflush(stdout);
                const pid_t child = fork();
                if (child < 0) return 1;
                if (child == 0) {
                    if (i == 0) pause();
                    _exit(getpid());
                }
                if (i == 0) {
                    first = child;
                    continue;
                }
                int status = 0;
                waitpid(child, &status, 0);
                std::printf("%d\n", WEXITSTATUS(status));
            }
            kill(first, SIGKILL);
        }
        """.replace("FLAGS", flags),
        "sched.h",
    )
    done = lib.call(main)
    if done.returncode == 77:
        pytest.skip("the system does not let this user make namespaces")
    # The second call comes when the namespace has its first process.
    assert done.stdout == ("1 1 2\n" if "USER" in flags else "2 3 2\n"), done


def test_memory_of_the_program_is_shown_once(lib: LazyLibrary, tmp_path: Path) -> None:
    before_compile(lib, f"cat /proc/[0-9]*/stat > {tmp_path}/stat 2> {tmp_path}/gone; true")
    main = program(
        lib,
        r"""
        int main() {
            std::vector<char> much(300 << 20, 1);
            std::printf("%d %d\n", getpid(), one(much[7]));
        }
        """,
    )
    done = lib.call(main)
    own, value = done.stdout.split()
    assert value == "2"
    parents, sizes = {}, {}  # of each process; sizes are in bytes
    for line in (tmp_path / "stat").read_text(errors="replace").splitlines():
        pid, fields = int(line.split()[0]), line.rpartition(")")[2].split()
        parents[pid], sizes[pid] = int(fields[1]), int(fields[21]) * os.sysconf("SC_PAGESIZE")
    family = {int(own)}
    for _ in parents:
        family |= {pid for pid, parent in parents.items() if parent in family}
    assert len(family) >= 3 and sizes[int(own)] > 300 << 20
    assert sum(sizes[pid] for pid in family) - sizes[int(own)] < 100 << 20


def test_process_that_adopts_orphans_is_left_with_no_remains_of_helpers(lib: LazyLibrary, tmp_path: Path) -> None:
    helper = tmp_path / "helper"
    helper.write_text(
        f"#!{sys.executable}\nimport os, time\nif os.fork(): os._exit(0)\n"
        'os.write(0, b"pid %d\\nmiss\\n" % os.getpid())\ntime.sleep(0.3)\n'  # it outlives its answer
    )
    helper.chmod(0o755)
    main = program(
        lib,
        r"""
        int main() {
            prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
            const bool is_right = one(1) == 2 && two(1) == 3;
            int ended = 0;
            for (int i = 0; i < 50; ++i) {
                usleep(20000);
                // Who still has a child in whatever state hears of it.
                siginfo_t info = {};
                if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0) ended += info.si_pid != 0;
                else if (errno == ECHILD) ended = -1000;
            }
            std::printf("%d %d\n", is_right, ended < 0);
        }
        """,
        "sys/prctl.h cerrno",
    )
    env = {"LAZYCK_REMOTE": "/nowhere", "LAZYCK_REMOTE_HELPER": str(helper)}
    assert lib.call(main, env=env).stdout == "1 1\n"


def test_system_without_dev_null_compiles(lib: LazyLibrary) -> None:
    main = program(lib, r"""int main() { std::printf("%d\n", one(1)); }""")
    script = f"mount -t tmpfs none /dev && exec '{main}'"
    done = lib.call("unshare", "-m", "sh", "-c", script)
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip("needs a mount namespace: " + done.stderr.strip())
    assert done.stdout == "2\n", done


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory, objects_dir: Path) -> LazyLibrary:
    """Build a library whose sources are one archive, as `lazyck` deploys it."""
    blobs = {"one": BLOBS["one"]}
    steps = ("g++", "-std=c++17", "-fPIC", "-I", f"{abi.PH_ROOT}/demo/tree", "-c", abi.PH_SOURCE, "-o", abi.PH_OUTPUT)
    lib = build_lazy_library(
        tmp_path_factory.mktemp("deployed"), objects_dir, blobs,
        '#include "demo.h"\nint use(int x) { return one(x); }\n', header=HEADER,
        symbols={"one": SYMBOLS["one"]}, sealed=True, compile_words=steps,
    )  # fmt: skip
    own = lib.directory / "lazyck" / "demo"
    deploy(own, own)
    return lib


@pytest.mark.parametrize("part", [".", "", "bin", "./bin"])
def test_relative_part_of_path_decides_nothing(deployed: LazyLibrary, tmp_path: Path, part: str) -> None:
    lib = as_new(deployed)
    main = program(
        lib,
        r"""
        int main() {
            try { std::printf("%d\n", one(1)); } catch (const std::exception& e) { std::puts(e.what()); }
        }
        """,
        "stdexcept",
    )
    trap = tmp_path / "trap"
    (trap / "bin").mkdir(parents=True)
    for name in ("tar", "gzip", "g++", "as", "launcher", "helper"):
        for directory in (trap, trap / "bin"):
            (directory / name).write_text(f"#!/bin/sh\ntouch {trap}/ran-{name}\n")
            (directory / name).chmod(0o755)
    env = {**os.environ, **lib.env, "PATH": f"{part}:{os.environ['PATH']}", "LAZYCK_REMOTE": "/none",
           "LAZYCK_REMOTE_HELPER": "helper"}  # fmt: skip
    for launcher, said in (("launcher", "cannot start 'launcher': not found in PATH"), ("", "2\n")):
        done = subprocess.run(
            [main], cwd=trap, env={**env, "LAZYCK_LAUNCHER": launcher}, capture_output=True, text=True
        )
        assert said in done.stdout, done
        assert "cannot start 'helper': not found in PATH" in done.stderr
    assert not list(trap.glob("ran-*"))


# -- files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["fifo", "directory", "link", "device"])
def test_what_lies_in_the_place_of_a_file_of_ours_hangs_no_call(lib: LazyLibrary, tmp_path: Path, kind: str) -> None:
    main = program(lib, r"""int main() { std::printf("%d\n", one(1)); }""")
    assert lib.call(main).stdout == "2\n"
    files = [p for p in lib.cache.rglob("*") if p.is_file() and p.parent.parts[-1] != "v1" and "v1" not in p.parts]
    assert len(files) >= 4, files  # a lock, costs, a history, a slot, admission
    for file in files:
        shutil.rmtree(lib.cache / "v1")
        kept = file.read_bytes()
        file.unlink()
        if kind == "fifo":
            os.mkfifo(file)
        elif kind == "directory":
            file.mkdir()
        elif kind == "link":
            (tmp_path / "target").write_text("mine\n")
            file.symlink_to(tmp_path / "target")
        else:
            try:
                os.mknod(file, 0o600 | stat.S_IFCHR, os.makedev(5, 0))
            except PermissionError:
                pytest.skip("may not make devices")
        done = lib.call("timeout", "60", main, env={"TMPDIR": str(tmp_path)})
        assert done.stdout == "2\n", (file, done)
        if kind == "link":
            assert (tmp_path / "target").read_text() == "mine\n", file
        if kind == "directory":
            file.rmdir()
        else:
            file.unlink()
        file.write_bytes(kept)


@pytest.mark.parametrize("variable", ["LAZYCK_LOG_FILE", "LAZYCK_TRACE", "LAZYCK_RECORD", "LAZYCK_PREFETCH"])
@pytest.mark.parametrize("what", ["fifo", "directory", "nowhere"])
def test_file_that_the_user_names_and_that_is_none_is_said_and_no_more(
    lib: LazyLibrary, tmp_path: Path, variable: str, what: str
) -> None:
    main = program(lib, r"""int main() { std::printf("%d\n", one(1)); }""")
    path = tmp_path / what
    if what == "fifo":
        os.mkfifo(path)
    elif what == "directory":
        path.mkdir()
    else:
        path = path / "file"
    done = lib.call("timeout", "60", main, env={variable: str(path)})
    assert done.stdout == "2\n", done
    assert str(path) in done.stderr, done


def test_fallback_cache_goes_with_the_process(lib: LazyLibrary, tmp_path: Path) -> None:
    main = program(
        lib,
        r"""
        int main(int, char** argv) {
            if (one(1) != 2) return 1;
            if (argv[1] != nullptr && fork() == 0) {
                while (access(argv[1], F_OK) != 0) usleep(1000);
                return two(1) != 3;
            }
            std::system("ls $TMPDIR");
        }
        """,
    )
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    env = {"LAZYCK_CACHE_DIR": "/proc/none/cache", "TMPDIR": str(temporary), "XDG_RUNTIME_DIR": ""}
    done = lib.call(main, env=env)
    assert done.returncode == 0 and done.stdout.startswith("lazyck-"), done
    assert list(temporary.iterdir()) == []
    # The cache stays as long as a forked child lives, because the child may need it.
    go = tmp_path / "go"
    running = subprocess.Popen([main, go], env={**os.environ, **lib.env, **env}, stdout=subprocess.DEVNULL)
    assert running.wait() == 0
    assert [p.name for p in temporary.iterdir()] != []
    go.touch()


# -- language --------------------------------------------------------------------------------------

# These functions of the C library depend on the locale, the time zone or the environment.
DEPENDING = re.compile(
    r" U ((v?(f|s|sn|as)?printf|(f|s)?scanf|__isoc.*_\w*scanf|strto(d|f|ld)|ato(f)|strerror\w*|strsignal|setlocale|"
    r"localtime(_r)?|gmtime(_r)?|mktime|strftime|strcoll|to(upper|lower)|is(alpha|space|digit)\w*|__ctype_\w+|getenv|"
    r"secure_getenv|environ|__environ|getpw\w+|gettext|iconv\w*|_ZNSt6locale.*|_ZSt17__verify_grouping.*))(@|$)",
    re.MULTILINE,
)


def test_what_depends_on_language_or_environment_is_asked_in_one_place(objects_dir: Path) -> None:
    undefined = run(["nm", "-u", *runtime_objects(objects_dir, CXX, ())]).stdout
    asked = {"environ": "environment.cpp", "getpwuid_r": "config.cpp"}
    assert {m[1] for m in DEPENDING.finditer(undefined)} == set(asked)
    for name, place in asked.items():
        users = [p.name for p in SOURCES.rglob("*.*") if re.search(rf"\b{name}\b", without_comments(p.read_text()))]
        assert users == [place]


@pytest.fixture(scope="session")
def german(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    where = tmp_path_factory.mktemp("locale")
    made = where / "de_DE.UTF-8"
    try:
        subprocess.run(["localedef", "-i", "de_DE", "-f", "UTF-8", made], check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as e:
        pytest.skip(f"no German locale can be made (Debian: locales): {e}")
    return {"LOCPATH": str(where), "LC_ALL": "de_DE.UTF-8", "LANG": "de_DE.UTF-8"}


def test_numbers_are_written_and_read_in_one_form(lib: LazyLibrary, german: Mapping[str, str], tmp_path: Path) -> None:
    before_compile(lib, f'echo "$LC_ALL" > {tmp_path}/language')
    main = program(
        lib,
        r"""
        int main() {
            if (setlocale(LC_ALL, "") == nullptr || std::string(localeconv()->decimal_point) != ",") return 9;
            std::printf("%d\n", one(1));
        }
        """,
        "clocale",
    )
    env = {**german, "LAZYCK_LOCK_TIMEOUT": "0.5", "LAZYCK_TRACE": str(tmp_path / "trace"), "LAZYCK_LOG_FORMAT": "json"}
    done = lib.call(main, env=env)
    assert done.stdout == "2\n", done
    assert (tmp_path / "language").read_text() == "C\n"
    (history,) = (lib.cache / ".history").iterdir()
    assert {json.loads(line)["kind"] for line in history.read_text().splitlines()} == {"compile", "load"}
    (costs,) = (lib.cache / ".costs").iterdir()
    assert re.fullmatch(r"\d+\.\d{3} \d+ one \w+\n", costs.read_text())
    assert json.loads((tmp_path / "trace").read_text())
    assert all(json.loads(line)["time"] > 1e9 for line in done.stderr.splitlines())


# -- threads, environment, signals -----------------------------------------------------------------

NO_THREADS = r"""
#include <errno.h>
#include <pthread.h>
int pthread_create(pthread_t* a, const pthread_attr_t* b, void* (*c)(void*), void* d) {
    (void)a; (void)b; (void)c; (void)d;
    return EAGAIN;
}
"""


def test_system_that_has_no_threads_to_give(lib: LazyLibrary, tmp_path: Path) -> None:
    (tmp_path / "none.c").write_text(NO_THREADS)
    run(["cc", "-shared", "-fPIC", tmp_path / "none.c", "-o", tmp_path / "none.so"])
    main = program(
        lib,
        r"""
        static void hear(const lazyck_event*, void*) {}
        static bool has_all_signals() {
            sigset_t now;
            sigprocmask(SIG_SETMASK, nullptr, &now);
            for (int s = 1; s < 32; ++s) if (sigismember(&now, s)) return false;
            return true;
        }
        int main(int, char** argv) {
            std::printf("prefetch %d\n", lazyck_prefetch("one"));
            std::printf("record %d\n", lazyck_record(argv[1]));
            std::printf("listener %d\n", lazyck_set_listener(hear, nullptr));
            std::puts(lazyck_last_error());
            const char* const names[] = {"two"};
            lazyck_job* const job = lazyck_job_start(names, 1, 2);
            std::printf("job %d\n", lazyck_job_wait(job, -1, nullptr));
            lazyck_job_free(job);
            const int sum = one(1) + two(1);
            std::printf("%d %d\n", sum, has_all_signals());
        }
        """,
    )
    done = lib.call(main, tmp_path / "profile", env={"LD_PRELOAD": str(tmp_path / "none.so"), "LAZYCK_JOBS": "4"})
    lines = done.stdout.splitlines()
    assert lines[:3] == ["prefetch 1", "record 0", "listener -1"] and "no thread" in lines[3].replace("a ", "no "), done
    assert lines[4:] == ["job 1", "5 1"], done


def test_environment_is_read_once(lib: LazyLibrary, tmp_path: Path) -> None:
    before_compile(lib, f"env > {tmp_path}/env")
    main = program(
        lib,
        r"""
        int main() {
            if (one(1) != 2) return 1;
            // What another thread's setenv leaves behind for a moment, for whoever reads meanwhile.
            char** const kept = environ;
            environ = reinterpret_cast<char**>(8);
            const int value = two(1);
            int failures = 0;
            try { bad(1); } catch (const lazyck::CompileError&) { ++failures; }
            environ = kept;
            // A child gets a rank of its own.
            setenv("RANK", "7", 1);
            std::fflush(stdout);
            if (fork() == 0) {
                lazyck_clear_failures();
                try { bad(1); } catch (const lazyck::CompileError&) {}
                _exit(0);
            }
            wait(nullptr);
            std::printf("%d %d\n", value, failures);
        }
        """,
    )
    done = lib.call(main, env={"RANK": "1", "SEEN": "yes"})
    assert done.stdout == "3 1\n", done
    seen = (tmp_path / "env").read_text()
    assert "PATH=/" in seen and "SEEN" not in seen
    assert "[rank 1] compiling two" in done.stderr and "[rank 7] compiling bad" in done.stderr, done


def test_reader_of_messages_that_is_gone_ends_no_program(lib: LazyLibrary) -> None:
    main = program(
        lib,
        r"""
        int main() {
            signal(SIGPIPE, SIG_DFL);
            const int value = one(1);
            sigset_t pending;
            sigpending(&pending);
            std::printf("%d %d\n", value, sigismember(&pending, SIGPIPE));
        }
        """,
    )
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([main], env={**os.environ, **lib.env}, stdout=subprocess.PIPE, stderr=write, text=True)
    os.close(write)
    assert (done.returncode, done.stdout) == (0, "2 0\n")


def test_limit_on_the_size_of_files_ends_no_program(lib: LazyLibrary) -> None:
    main = program(
        lib,
        r"""
        int main(int argc, char**) {
            const rlimit limit = {10, 10};
            if (argc > 1) setrlimit(RLIMIT_FSIZE, &limit);
            const int value = one(1);
            sigset_t pending;
            sigpending(&pending);
            std::printf("%d %d\n", value, sigismember(&pending, SIGXFSZ));
        }
        """,
        "sys/resource.h",
    )
    for words in ([], ["limited"]):
        done = lib.call(main, *words)
        assert (done.returncode, done.stdout) == (0, "2 0\n")


CUT = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
void* mmap(void* at, size_t size, int protection, int flags, int fd, off_t offset) {
    void* (*const real)(void*, size_t, int, int, int, off_t) = dlsym(RTLD_NEXT, "mmap");
    char link[64], path[4096] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (fd >= 0 && readlink(link, path, sizeof path - 1) > 4 && strcmp(path + strlen(path) - 4, ".tsv") == 0)
        truncate(path, 0);
    return real(at, size, protection, flags, fd, offset);
}
"""


def test_file_that_is_cut_while_it_is_read_ends_no_program(lib: LazyLibrary, tmp_path: Path) -> None:
    (tmp_path / "cut.c").write_text(CUT)
    run(["cc", "-w", "-shared", "-fPIC", tmp_path / "cut.c", "-o", tmp_path / "cut.so"])
    main = program(lib, r'int main() { std::printf("%d\n", one(1)); }')
    (tmp_path / "profile.tsv").write_text("two\n")
    env = {"LD_PRELOAD": str(tmp_path / "cut.so"), "LAZYCK_PREFETCH": str(tmp_path / "profile.tsv")}
    assert lib.call(main, env=env).stdout == "2\n"


REUSED = {
    "a file before the first line": "close(2); open(argv[1], O_WRONLY | O_CREAT | O_TRUNC, 0600);",
    "a stream before the first line": 'std::fclose(stderr); std::fopen(argv[1], "w");',
    "a file after the first line": "if (one(1) != 2) return 1; close(2); open(argv[1], O_WRONLY | O_CREAT, 0600);",
    "a database": "close(2); open(argv[1], O_RDWR | O_CREAT | O_CLOEXEC, 0600);",
    "what is only read": "open(argv[1], O_WRONLY | O_CREAT, 0600); close(2); open(argv[1], O_RDONLY);",
}


@pytest.mark.parametrize("how", REUSED)
def test_lines_do_not_go_where_descriptor_2_leads_by_then(lib: LazyLibrary, tmp_path: Path, how: str) -> None:
    body = f"int main(int, char** argv) {{ {REUSED[how]} return two(1) == 3 ? 0 : 1; }}"
    done = lib.call(program(lib, body), tmp_path / "data")
    assert done.returncode == 0
    assert (tmp_path / "data").read_text() == ""


def test_file_that_got_the_number_of_no_standard_error_hears_no_lines(lib: LazyLibrary, tmp_path: Path) -> None:
    body = "int main(int, char** argv) { return open(argv[1], O_WRONLY | O_CREAT, 0600) == 2 && two(1) == 3 ? 0 : 1; }"
    done = lib.call("/bin/sh", "-c", '"$@" 2>&-', "sh", program(lib, body), tmp_path / "data")
    assert (done.returncode, (tmp_path / "data").read_text()) == (0, "")


def test_standard_error_that_is_a_file_gets_the_lines(lib: LazyLibrary, tmp_path: Path) -> None:
    main = program(lib, "int main() { return two(1) == 3 ? 0 : 1; }")
    assert lib.call("/bin/sh", "-c", '"$1" 2>"$2"', "sh", main, tmp_path / "log").returncode == 0
    assert "compiled two" in (tmp_path / "log").read_text()


def test_connection_that_got_number_2_hears_no_lines(lib: LazyLibrary) -> None:
    main = program(
        lib,
        r"""
        int main() {
            const int server = socket(AF_INET, SOCK_STREAM, 0);
            sockaddr_in at = {};
            at.sin_family = AF_INET;
            at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
            socklen_t size = sizeof at;
            if (bind(server, reinterpret_cast<sockaddr*>(&at), size) || listen(server, 1)) return 2;
            getsockname(server, reinterpret_cast<sockaddr*>(&at), &size);
            close(2);
            if (socket(AF_INET, SOCK_STREAM, 0) != 2 || connect(2, reinterpret_cast<sockaddr*>(&at), size)) return 3;
            const int peer = accept(server, nullptr, nullptr);
            if (one(1) != 2) return 4;
            close(2);
            char byte;
            std::printf("%zd\n", read(peer, &byte, 1));
        }
        """,
        "sys/socket.h netinet/in.h",
    )
    assert lib.call(main).stdout == "0\n"


def test_log_that_is_exchanged_by_a_daemon_gets_the_lines(lib: LazyLibrary, tmp_path: Path) -> None:
    main = program(
        lib,
        r"""
        int main(int, char** argv) {
            if (one(1) != 2) return 1;
            dup2(open(argv[1], O_WRONLY | O_CREAT | O_APPEND, 0600), 2);
            return two(1) == 3 ? 0 : 1;
        }
        """,
    )
    assert lib.call(main, tmp_path / "log").returncode == 0
    assert "compiled two" in (tmp_path / "log").read_text()


# -- stacks, floating point ------------------------------------------------------------------------

SMALL = r"""
static int g_result = 0;
static ucontext_t g_main, g_fiber;
static void call() {
    g_result = one(1);
    try { bad(1); } catch (const lazyck::CompileError&) { g_result += 100; }
}
static void in_handler(int) { g_result = two(1); }
alignas(64) static char g_stack[SIZE];
int main(int, char** argv) {
    const std::string how = argv[1];
    if (how == "fiber") {
        getcontext(&g_fiber);
        g_fiber.uc_stack.ss_sp = g_stack;
        g_fiber.uc_stack.ss_size = sizeof g_stack;
        g_fiber.uc_link = &g_main;
        makecontext(&g_fiber, reinterpret_cast<void (*)()>(call), 0);
        swapcontext(&g_main, &g_fiber);
    } else if (how == "signal") {
        stack_t alternate = {};
        alternate.ss_sp = g_stack;
        alternate.ss_size = sizeof g_stack;
        if (sigaltstack(&alternate, nullptr) != 0) return 9;
        struct sigaction action = {};
        action.sa_handler = in_handler;
        action.sa_flags = SA_ONSTACK;
        sigaction(SIGUSR1, &action, nullptr);
        raise(SIGUSR1);
    } else {
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        pthread_attr_setstacksize(&attributes, 16384);
        pthread_t thread;
        if (pthread_create(&thread, &attributes, [](void*) -> void* { call(); return nullptr; }, nullptr)) return 9;
        pthread_join(thread, nullptr);
    }
    std::printf("%d\n", g_result);
}
"""


@pytest.mark.parametrize(("how", "size", "result"), [("fiber", 8192, 102), ("signal", 8192, 3), ("thread", 0, 102)])
def test_call_from_a_small_stack(lib: LazyLibrary, how: str, size: int, result: int) -> None:
    main = program(lib, SMALL.replace("SIZE", str(size or 1)), "ucontext.h pthread.h")
    for _ in ("compiled", "from the cache"):
        done = lib.call(main, how)
        assert done.stdout == f"{result}\n", (how, done.returncode, done.stderr)


def test_exception_and_stack_trace_pass_from_our_stack_to_the_callers(lib: LazyLibrary) -> None:
    main = program(
        lib,
        r"""
        struct Seen { int* count; ~Seen() { ++*count; } };
        static int between(int* count) { const Seen seen{count}; return bad(1) + 1; }
        int main() {
            int count = 0;
            for (int i = 0; i < 3; ++i) {
                try { between(&count); } catch (const lazyck::CompileError& e) { count += 10 * (e.what() != nullptr); }
            }
            std::printf("%d\n", count);
        }
        """,
    )
    assert lib.call(main).stdout == "33\n"


def test_signal_handler_may_call_during_a_compile(lib: LazyLibrary, tmp_path: Path) -> None:
    before_compile(lib, f"touch {tmp_path}/go; while [ ! -e {tmp_path}/seen ]; do sleep 0.02; done")
    main = program(
        lib,
        r"""
        static char** g_words;
        static volatile int g_value;
        int main(int, char** argv) {
            g_words = argv;
            signal(SIGUSR1, [](int) {
                close(open(g_words[2], O_CREAT | O_WRONLY, 0600));
                g_value = two(1);
            });
            std::thread sender([caller = pthread_self(), argv] {
                while (access(argv[1], F_OK) != 0) usleep(1000);
                pthread_kill(caller, SIGUSR1);
            });
            const int value = one(1);
            sender.join();
            std::printf("%d %d\n", value, g_value);
        }
        """,
    )
    assert lib.call(main, tmp_path / "go", tmp_path / "seen").stdout == "2 3\n"


def test_floating_point_settings_are_the_programs(lib: LazyLibrary) -> None:
    main = program(
        lib,
        r"""
        int main() {
            fesetround(FE_UPWARD);
            feclearexcept(FE_ALL_EXCEPT);
            feenableexcept(FE_ALL_EXCEPT);
            const int value = one(1) + two(1);
            lazyck_stats stats = {};
            stats.size = sizeof stats;
            lazyck_get_stats(&stats);
            lazyck_prefetch("one");
            const bool is_kept = fegetexcept() == FE_ALL_EXCEPT && fegetround() == FE_UPWARD;
            std::printf("%d %d %d\n", value, is_kept, fetestexcept(FE_ALL_EXCEPT));
        }
        """,
        "fenv.h",
        ("-lm",),
    )
    for _ in ("compiled", "from the cache"):
        done = lib.call(main)
        assert done.stdout == "5 1 0\n", done
