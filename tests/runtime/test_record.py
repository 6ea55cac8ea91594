"""Test that a run records what it called, that a later run makes it ready first, in the background,
and that events are reported."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support import REPOSITORY, Machine, wait_until, with_sanitizers
from support.four_blobs import NAMES, four_blob_libraries, slow_compiler, start
from support.lazylib import LazyLibrary, as_new, build_lazy_library, run

from lazyck.report.gather import gather


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, objects_dir: Path) -> Callable[[Machine], LazyLibrary]:
    return four_blob_libraries(tmp_path_factory, objects_dir)


@pytest.fixture
def lib(shared: Callable[[Machine], LazyLibrary], machine: Machine) -> LazyLibrary:
    return as_new(shared(machine))


def rows(profile: Path) -> list[list[str]]:
    return [line.split("\t") for line in profile.read_text().splitlines() if not line.startswith("#")]


def python(lib: LazyLibrary, text: str, **env: str) -> subprocess.CompletedProcess[str]:
    head = (
        "import lazyck, os, sys, time\nfrom pathlib import Path\nfrom support import wait_until\n"
        f"path = {str(lib.library)!r}\n"
    )
    full = {"PYTHONPATH": f"{REPOSITORY}:{REPOSITORY}/tests", **env}
    return lib.call(sys.executable, "-c", head + text, env=full)


CALL = "call = lib._handle._Z4callii\n"


# -- records ---------------------------------------------------------------------------------------


def test_a_run_records_each_blob_at_its_first_call(lib: LazyLibrary, tmp_path: Path) -> None:
    profile = tmp_path / "run.profile"
    done = lib.call(lib.directory / "main", "3", "1", "3", "1", env={"LAZYCK_RECORD": str(profile), "RANK": "5"})
    assert done.returncode == 0, done
    found = rows(profile)
    assert [(r[0], r[1], r[3], r[7]) for r in found[:2]] == [("three", "demo", "1", "5"), ("one", "demo", "2", "5")]
    assert all(float(r[5]) >= 0 and int(r[6]) > 1000 for r in found), "the compile's seconds and memory"
    assert profile.read_text().startswith("# lazyck profile 1: ")


def test_many_ranks_share_a_profile(lib: LazyLibrary, tmp_path: Path) -> None:
    profile = tmp_path / "run.profile"
    running = [start(lib, 1 + i % 4, 2, env={"LAZYCK_RECORD": str(profile), "RANK": str(i)}) for i in range(12)]
    assert [p.wait(120) for p in running] == [0] * 12
    found = rows(profile)
    assert {(r[0], r[7]) for r in found} == {(n, str(i)) for i in range(12) for n in (NAMES[i % 4], "two")}
    assert all(len(r) == 10 for r in found)
    for p in running:
        p.communicate()


@with_sanitizers
def test_many_threads_record_trace_and_prefetch_at_once(lib: LazyLibrary) -> None:
    lib.program(
        r"""
    #include "demo.h"
    #include "lazyck.h"
    #include <atomic>
    #include <string>
    #include <thread>
    #include <vector>
    static std::atomic<int> events{0};
    int main(int, char** argv) {
        lazyck_set_listener([](const lazyck_event*, void*) { ++events; }, nullptr);
        lazyck_job* job = lazyck_job_replay(argv[1], 2);
        std::atomic<int> wrong{job == nullptr};
        std::vector<std::thread> threads;
        for (int t = 0; t < 6; ++t) threads.emplace_back([&, t] {
            for (int i = 0; i < 8000; ++i) {
                const int which = 1 + (t + i) % 4;
                if (call(which, 10) != 10 + which) ++wrong;
                if (i % 2000 == 0 && t == 0) lazyck_record((std::string(argv[1]) + std::to_string(i)).c_str());
                if (i % 1000 == 0 && lazyck_job_wait(job, 0, nullptr) < 0) ++wrong;
            }
        });
        for (auto& thread : threads) thread.join();
        if (lazyck_job_wait(job, -1, nullptr) != 1) ++wrong;
        lazyck_job_free(job);
        return wrong || events < 4;
    }
    """,
        "all",
    )
    profile = lib.directory / "profile"
    profile.write_text("".join(f"{n}\n" for n in NAMES))
    env = {"LAZYCK_RECORD": str(profile) + ".env", "LAZYCK_TRACE": str(lib.directory / "trace")}
    done = lib.call(lib.directory / "all", profile, env=env)
    assert done.returncode == 0, done
    assert [lib.compiles(n) for n in NAMES] == [1, 1, 1, 1]
    assert {r[0] for r in rows(lib.directory / "profile0")} == set(NAMES)


def test_a_killed_run_leaves_what_it_has_recorded(lib: LazyLibrary, tmp_path: Path) -> None:
    profile = tmp_path / "run.profile"
    slow_compiler(lib, 'case " $* " in *two.cpp*) sleep 60 ;; esac;')
    running = start(lib, 1, 2, env={"LAZYCK_RECORD": str(profile)})
    wait_until(lambda: lib.compiles("two"))
    running.kill()
    running.communicate()
    assert [r[0] for r in rows(profile)] == ["one"]


def test_calls_are_sampled_and_cost_the_hot_path_nothing(lib: LazyLibrary, tmp_path: Path) -> None:
    lib.program(
        r"""
    #include "demo.h"
    #include <chrono>
    #include <unistd.h>
    int main() {
        const auto start = std::chrono::steady_clock::now();
        call(2, 1);
        while (std::chrono::steady_clock::now() - start < std::chrono::milliseconds(2500)) {
            if (call(1, 10) != 11) return 1;
            usleep(100);
        }
    }
    """,
        "often",
    )
    profile = tmp_path / "run.profile"
    assert lib.call(lib.directory / "often", env={"LAZYCK_RECORD": str(profile)}).returncode == 0
    calls = {r[0]: int(r[4]) for r in rows(profile)}  # the last line counts
    assert calls["two"] == 1
    assert 2 <= calls["one"] <= 5, "once a second, however often it was called"


def test_a_profile_that_cannot_be_written_is_said_once_and_calls_work(lib: LazyLibrary) -> None:
    done = lib.call(lib.directory / "main", "1", "2", env={"LAZYCK_RECORD": "/nonexistent/x"})
    assert done.returncode == 0
    assert done.stderr.count("cannot record in '/nonexistent/x'") == 1


# -- replay ----------------------------------------------------------------------------------------


def test_three_runs_cold_recorded_replayed(lib: LazyLibrary, tmp_path: Path) -> None:
    text = f"""
lib = lazyck.load(path)
{CALL}
with lazyck.record({str(tmp_path / "p")!r}):
    assert [call(i, 10) for i in (4, 2)] == [14, 12]
s = lib.stats()
print(s.compiles, s.hits, s.loaded)
"""
    assert python(lib, text).stdout == "2 0 2\n"
    shutil.rmtree(lib.cache)
    # The recorded set is compiled at the start, and nothing after that.
    again = python(lib, text.replace("assert [", "with lib.forbid_jit(): assert ["))
    assert (again.returncode, again.stdout) == (0, "2 0 2\n"), again
    third = python(lib, text, LAZYCK_JIT="off")
    assert (third.returncode, third.stdout) == (0, "0 2 2\n"), third
    assert lib.compiles() == 4


def test_record_decorates_a_function(lib: LazyLibrary, tmp_path: Path) -> None:
    text = f"""
lib = lazyck.load(path)
@lazyck.record({str(tmp_path / "p")!r})
def work():
    return lib._handle._Z4callii(3, 10)
assert work() == 13 and work() == 13
"""
    done = python(lib, text)
    assert done.returncode == 0, done
    assert [r[0] for r in rows(tmp_path / "p")] == ["three", "three"]


def test_libraries_loaded_within_a_record_are_recorded_too(lib: LazyLibrary, tmp_path: Path) -> None:
    text = f"""
import ctypes
with lazyck.record({str(tmp_path / "p")!r}):
    assert ctypes.CDLL(path)._Z4callii(3, 10) == 13
assert "LAZYCK_RECORD" not in os.environ
assert ctypes.CDLL(path)._Z4callii(2, 10) == 12
(found,) = lazyck.loaded()
assert found.path == path and found.stats().loaded == 2
"""
    done = python(lib, text)
    assert done.returncode == 0, done
    assert [r[0] for r in rows(tmp_path / "p")] == ["three"]


def test_a_loaded_library_is_found_by_a_symbol(lib: LazyLibrary, tmp_path: Path, objects_dir: Path) -> None:
    (tmp_path / "other").mkdir()
    other = build_lazy_library(
        tmp_path / "other", objects_dir, {"five": '#include "demo.h"\nint five(int x) { return x + 5; }\n'},
        '#include "demo.h"\nint other(int x) { return five(x); }\n',
        header="#pragma once\nint five(int); int other(int);\n", symbols={"five": ("_Z4fivei",)}, name="other",
    )  # fmt: skip
    text = f"""
import ctypes
handles = [ctypes.CDLL(path), ctypes.CDLL({str(other.library)!r})]
assert len(lazyck.loaded()) == 2
assert [l.path for l in lazyck.loaded("_Z4callii")] == [path]
assert [l.path for l in lazyck.loaded("_Z5otheri")] == [{str(other.library)!r}]
assert [l.path for l in lazyck.loaded("_Z4fivei")] == [{str(other.library)!r}]  # a stub
assert lazyck.loaded("malloc") == lazyck.loaded("no_such_symbol") == []
"""
    done = python(lib, text)
    assert done.returncode == 0, done


def test_the_environment_replays_in_the_background_at_the_first_call(lib: LazyLibrary, tmp_path: Path) -> None:
    profile = tmp_path / "list"
    profile.write_text("# any blob list will do\none\nfour\nthree\n")
    slow_compiler(lib, "sleep 0.5;")
    text = f"""
lib = lazyck.load(path)
{CALL}
assert call(2, 10) == 12
wait_until(lambda: lib.stats().loaded == 4)
"""
    done = python(lib, text, LAZYCK_PREFETCH=str(profile), LAZYCK_JOBS="4")
    assert done.returncode == 0, done
    assert [lib.compiles(n) for n in NAMES] == [1, 1, 1, 1]


def test_a_profile_that_no_longer_fits_is_said_once_and_calls_are_lazy(lib: LazyLibrary, tmp_path: Path) -> None:
    profile = tmp_path / "list"
    profile.write_text("gone\none\nelsewhere\n")
    env = {"LAZYCK_PREFETCH": str(profile)}
    done = lib.call(lib.directory / "main", "1", "2", env=env)
    assert done.returncode == 0, done
    assert done.stderr.count("2 of 3 blobs to prefetch are not in ") == 1
    missing = lib.call(lib.directory / "main", "3", env={"LAZYCK_PREFETCH": "/nonexistent"})
    assert missing.returncode == 0, missing
    assert missing.stderr.count("cannot read the profile '/nonexistent'") == 1


@pytest.mark.parametrize("what", ['["one", "onee"]', '"onee*"'])
def test_names_that_fit_no_blob_are_an_error_and_nothing_is_compiled(lib: LazyLibrary, what: str) -> None:
    text = f"""
lib = lazyck.load(path)
try:
    lib.prefetch({what})
except lazyck.CompileError as e:
    print(e)
"""
    done = python(lib, text)
    assert done.returncode == 0, done
    assert "no blob" in done.stdout and "onee" in done.stdout
    assert lib.compiles() == 0


def test_a_call_waits_for_the_blob_that_it_needs_only(lib: LazyLibrary) -> None:
    slow_compiler(lib, 'case " $* " in *one.cpp*) : > "$0.begun"; while [ ! -e "$0.go" ]; do sleep 0.02; done ;; esac;')
    text = f"""
lib = lazyck.load(path)
{CALL}
job = lib.prefetch(["one", "two", "three"], workers=3)
wait_until(Path({f"{lib.compiler}.begun"!r}).exists)
assert call(2, 10) == 12
now = job.progress()
assert not now.is_over and now.ready < 3 and now.total == 3, now
Path({f"{lib.compiler}.go"!r}).touch()
done = job.wait()
assert (done.ready, done.failed, done.is_over) == (3, 0, True)
"""
    done = python(lib, text, LAZYCK_JOBS="4", LAZYCK_MEM_PER_JOB="0")
    assert done.returncode == 0, done
    assert [lib.compiles(n) for n in NAMES] == [1, 1, 1, 0]


def test_what_took_longest_is_compiled_first_and_what_is_cached_is_loaded_before(
    lib: LazyLibrary, tmp_path: Path
) -> None:
    assert lib.call(lib.directory / "main", "4").returncode == 0
    profile = tmp_path / "p"
    tail = "\t\thost:1:1\t1\n"
    profile.write_text("".join(f"{n}\tdemo\tany\t{i}\t1\t{s}\t1{tail}" for i, (n, s) in enumerate(
        (("one", 1), ("two", 30), ("three", 9), ("four", 2)), 1)))  # fmt: skip
    text = "lib = lazyck.load(path)\nlib.prefetch(Path(sys.argv[0] or os.environ['P']), workers=1).wait()\n"
    done = python(lib, text.replace("sys.argv[0] or ", ""), P=str(profile))
    assert done.returncode == 0, done
    order = re.findall(r"compiling (\w+)", done.stderr)
    assert order == ["two", "three", "one"]


def test_a_failure_in_the_background_is_told_to_who_waits_and_to_the_caller(lib: LazyLibrary) -> None:
    slow_compiler(lib, 'case " $* " in *two.cpp*) echo "error: no"; exit 1 ;; esac;')
    text = """
lib = lazyck.load(path)
seen = []
try:
    lib.prefetch("*").wait(on_progress=seen.append)
except lazyck.CompileError as e:
    assert isinstance(e, RuntimeError) and "cannot compile blob 'two'" in str(e) and "error: no" in str(e), e
else:
    raise SystemExit("no error")
assert (seen[-1].ready, seen[-1].failed) == (3, 1)
assert lib.clear_failures() == 1
"""
    done = python(lib, text)
    assert done.returncode == 0, done


def test_a_forked_child_does_not_wait_for_threads_that_it_does_not_have(lib: LazyLibrary) -> None:
    slow_compiler(lib, ': > "$0.first"; sleep 0.4;')
    text = f"""
lib = lazyck.load(path)
{CALL}
job = lib.prefetch("*")
wait_until(Path({f"{lib.compiler}.first"!r}).exists)
child = os.fork()
if child == 0:
    assert job.wait().is_over
    os._exit(0 if call(1, 10) == 11 else 1)
assert os.waitpid(child, 0)[1] == 0
assert job.wait().ready == 4
"""
    done = python(lib, text)
    assert done.returncode == 0, done


# -- what happens ----------------------------------------------------------------------------------


def test_listener_hears_compiles_and_loads(lib: LazyLibrary) -> None:
    text = f"""
lib = lazyck.load(path)
{CALL}
events, compiles = [], []
with lib.on_event(events.append):
    assert call(1, 10) == 11
with lib.on_compile(compiles.append):
    assert call(2, 10) == 12
assert call(3, 10) == 13
heard = [e for e in events if e.kind != "wait"]  # for a slot, where other processes of the machine compile
print([(e.kind, e.blob, e.has_ended, e.has_failed) for e in heard])
print([(e.kind, e.blob, e.has_ended, e.seconds > 0, e.peak_kib > 0, e.bytes > 0) for e in compiles])
print(events[-1].what)
"""
    done = python(lib, text)
    assert done.returncode == 0, done
    lines = done.stdout.splitlines()
    assert lines[0] == str([("compile", "one", False, False), ("compile", "one", True, False),
                            ("load", "one", True, False)])  # fmt: skip
    assert lines[1] == str([("compile", "two", False, False, False, False), ("compile", "two", True, True, True, True)])
    assert lines[2] == "compiled"


def test_history_and_trace_tell_of_processes_and_ranks(lib: LazyLibrary, tmp_path: Path) -> None:
    slow_compiler(lib, 'case " $* " in *two.cpp*) echo "error: no"; exit 1 ;; *) sleep 0.3 ;; esac;')
    trace = tmp_path / "trace.json"
    running = [start(lib, 1, 2, env={"RANK": str(i), "LAZYCK_TRACE": str(trace)}) for i in range(2)]
    for p in running:
        p.communicate(timeout=60)
    assert lib.call(lib.directory / "main", "1").returncode == 0
    (history,) = (lib.cache / ".history").iterdir()
    assert history.name == os.uname().nodename
    events = [json.loads(line) for line in history.read_text().splitlines()]
    compiles = [e for e in events if e["kind"] == "compile"]
    assert [e["blob"] for e in compiles if "failed" not in e] == ["one"]
    (good,) = (e for e in compiles if "failed" not in e)
    assert good["s"] >= 0.3 and good["kib"] > 0 and good["size"] > 0 and good["rank"] in (0, 1)
    failed = [e for e in compiles if e.get("failed")]
    assert failed and all("cannot compile blob 'two'" in e["what"] for e in failed)
    assert any(e["kind"] == "wait" and e["what"] == "another process's compile" for e in events)
    assert sorted(e["what"] for e in events if e["kind"] == "load") == ["cache", "cache", "compiled"]
    assert {e["pid"] for e in compiles} <= {p.pid for p in running}
    spans = json.loads(trace.read_text())
    assert {s["args"]["name"][:6] for s in spans if s["ph"] == "M"} == {"rank 0", "rank 1"}
    assert {(s["name"], s["cat"]) for s in spans if s["ph"] == "X"} >= {("one", "compile"), ("two", "compile")}


def test_what_goes_wrong_is_told_to_programs(lib: LazyLibrary, tmp_path: Path) -> None:
    slow_compiler(lib, 'case " $* " in *two.cpp*) echo "error: no"; exit 1 ;; esac;')
    main, log = lib.directory / "main", tmp_path / "log"
    env = {"LAZYCK_LOG_FILE": str(log), "LAZYCK_LOG_FORMAT": "json", "LAZYCK_NONSENSE": "1", "RANK": "007"}
    assert lib.call(main, "1", "2", env=env).returncode != 0
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(line["level"], line["event"]) for line in lines] == [
        ("warn", "warning"),
        ("info", "compile_begin"),
        ("info", "compile_end"),
        ("info", "compile_begin"),
        ("error", "compile_end"),
    ]
    assert lines[0].keys() == {"time", "level", "event", "pid", "rank", "message"} and lines[0]["rank"] == 7
    assert (lines[-1]["blob"], lines[-1]["outcome"], lines[-1]["seconds"] > 0) == ("two", "failed", True)
    (entry,) = lib.entries()
    entry.write_bytes(entry.read_bytes()[:-1])
    log.unlink()
    assert lib.call(main, "1", env=env).returncode == 0
    damaged = [line for line in map(json.loads, log.read_text().splitlines()) if line["event"] == "damaged"]
    assert [(line["level"], line["blob"]) for line in damaged] == [("warn", "one")]


def test_the_report_finds_a_failures_log_and_a_command_that_repeats_it(lib: LazyLibrary) -> None:
    slow_compiler(lib, 'case " $* " in *two.cpp*) echo "two.cpp:1:1: error: no"; exit 1 ;; esac;')
    assert lib.call(lib.directory / "main", "1", "2").returncode != 0
    (failure,) = gather(lib.cache, (), "", "", (), {}).failures
    assert failure.blob == "two" and failure.log is not None
    assert failure.log.end.startswith("two.cpp:1:1: error: no\n[compile step: ")
    again = subprocess.run(["bash", "-c", failure.log.command], capture_output=True, text=True, timeout=60)
    assert (again.returncode, again.stdout) == (1, "two.cpp:1:1: error: no\n")


@pytest.mark.parametrize(("library", "push", "pop"), [
    ("libnvToolsExt.so.1", "nvtxRangePushA", "nvtxRangePop"),
    ("libroctx64.so.4", "roctxRangePushA", "roctxRangePop"),
])  # fmt: skip
def test_compiles_are_ranges_of_a_profiler(lib: LazyLibrary, tmp_path: Path, library: str, push: str, pop: str) -> None:
    source = tmp_path / "ranges.c"
    source.write_text(
        f'#include <stdio.h>\nint {push}(const char* t) {{ fprintf(stderr, "push %s\\n", t); return 0; }}\n'
        f'int {pop}(void) {{ fputs("pop\\n", stderr); return 0; }}\n'
    )
    run(["gcc", "-shared", "-fPIC", source, "-o", tmp_path / library])
    done = lib.call(lib.directory / "main", "1", env={"LD_LIBRARY_PATH": str(tmp_path)})
    assert done.returncode == 0, done
    said = [line for line in done.stderr.splitlines() if not line.startswith("[lazyck]")]
    assert said == ["push lazyck compile one", "pop"]


def test_log_levels_file_and_format(lib: LazyLibrary, tmp_path: Path) -> None:
    main, log = lib.directory / "main", tmp_path / "log"
    quiet = lib.call(main, "1", env={"LAZYCK_LOG": "warn"})
    assert (quiet.returncode, quiet.stderr) == (0, "")
    env = {"LAZYCK_LOG": "debug", "LAZYCK_LOG_FILE": str(log), "LAZYCK_LOG_FORMAT": "json", "RANK": "2"}
    done = lib.call(main, "1", "2", env=env)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert lines[0]["message"].startswith("found one for ")
    assert all(line["rank"] == 2 and line["pid"] > 0 and line["time"] > 1e9 for line in lines)
    told = [(line["level"], line["event"], line["blob"], line.get("outcome"), "seconds" in line) for line in lines]
    assert told == [
        ("debug", "hit", "one", None, False),
        ("debug", "load", "one", "loaded", True),
        ("info", "compile_begin", "two", None, False),
        ("debug", "command", "two", None, False),
        ("debug", "command", "two", None, False),
        ("info", "compile_end", "two", "compiled", True),
        ("debug", "load", "two", "loaded", True),
    ]
    assert {(line["library"], line["arch"]) for line in lines} == {("demo", os.uname().machine)}
    assert not any("kernel" in line for line in lines)
    # A log file that cannot be written is reported once, and calls do not fail.
    bad = lib.call(main, "1", "2", env={"LAZYCK_LOG": "debug", "LAZYCK_LOG_FILE": "/nonexistent/x"})
    assert bad.returncode == 0
    assert bad.stderr.count("cannot write to LAZYCK_LOG_FILE=/nonexistent/x: No such file or directory") == 1
    for name in ("/dev/stderr", "/proc/self/fd/2"):
        to_stderr = lib.call(main, "1", env={"LAZYCK_LOG": "debug", "LAZYCK_LOG_FILE": name})
        assert to_stderr.returncode == 0 and "found one for " in to_stderr.stderr
    to_stdout = lib.call(main, "1", env={"LAZYCK_LOG": "debug", "LAZYCK_LOG_FILE": "/dev/stdout"})
    assert to_stdout.returncode == 0 and "found one for " in to_stdout.stdout
