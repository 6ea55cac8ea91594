"""Tests `lazyck prebuild build`: its messages, the order of its compiles, and what an interruption
costs."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import REPOSITORY, Lazyck, on_terminal, wait_until
from support.bundles import Bundle, build, entries, make_bundle, sleeping

from lazyck.history.costs import Costs
from lazyck.prebuild.blob_entries import BlobEntry
from lazyck.prebuild.plan import Job, JobFailure, Plan, estimate, make_plan
from lazyck.prebuild.progress import PlanProgress, describe, time_left

BROKEN = "#error broken on purpose\n"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "lazyck-cache"


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    (tmp_path / "b b").mkdir()
    return make_bundle(tmp_path / "b b", ["one", "two", "three", "four"])


def record_costs(cache: Path, text: str, library: str = "libtiny") -> None:
    cache.mkdir(mode=0o700, exist_ok=True)
    (cache / ".costs").mkdir(mode=0o700, exist_ok=True)
    (cache / ".costs" / library).write_text(text)


def start(bundle: Bundle, *words: str | Path, in_background: bool = False) -> subprocess.Popen[str]:
    """Start a prebuild as from a terminal, or as in the background of a shell, whose processes
    ignore SIGINT."""
    on_interrupt = signal.SIG_IGN if in_background else signal.default_int_handler
    argv = [sys.executable, "-m", "lazyck", "prebuild", "build", "--manifest", str(bundle.file), *map(str, words)]
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY)}

    def set_signals() -> None:
        signal.signal(signal.SIGINT, on_interrupt)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup makes its program ignore it

    return subprocess.Popen(
        argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=set_signals,
    )  # fmt: skip


def alive_in(bundle: Bundle) -> list[str]:
    """Return the command lines of processes that have to do with the bundle."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(bundle.directory) in line:
            found.append(line)
    return found


# -- the order, and what is known of times ---------------------------------------------------------


def test_dry_run_says_what_would_be_compiled_and_compiles_nothing(lazyck: Lazyck, bundle: Bundle, cache: Path) -> None:
    record_costs(cache, "10.0 5 one x86_64\n40.0 5 one x86_64\n60.0 5 three x86_64\nnonsense\n90.0 5 !two x86_64\n")
    done = lazyck("prebuild", "build", "--manifest", bundle.file, "--all", "--dry-run", "--jobs", "2")
    assert done.returncode == 0, done.stderr
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert [r[0] for r in rows[:-1]] == ["three", "two", "four", "one"]
    assert [r[2] for r in rows[:-1]] == ["60.0", "-", "-", "40.0"]
    assert "about 3 m 20 s of compiles, 3 m 20 s" not in rows[-1][0]
    assert "200" in str(estimate_seconds(rows[-1][0])), rows[-1]
    assert "(2 of them guessed" in rows[-1][0]
    assert bundle.compiled() == []
    as_json = json.loads(
        lazyck("prebuild", "build", "--manifest", bundle.file, "--all", "--dry-run", "--json", "--jobs", "2").stdout
    )
    assert (as_json["total"], as_json["cached"], as_json["compile_seconds"], as_json["seconds"]) == (4, 0, 200, 100)
    assert [j["blob"] for j in as_json["to_compile"]] == ["three", "two", "four", "one"]


def estimate_seconds(line: str) -> int:
    found = re.search(r"about (\d+) m (\d+) s of compiles", line)
    assert found, line
    return int(found[1]) * 60 + int(found[2])


def test_the_longest_known_are_compiled_first(lazyck: Lazyck, bundle: Bundle, cache: Path) -> None:
    record_costs(cache, "10.0 5 one x86_64\n60.0 5 three x86_64\n5.0 5 four x86_64\n")
    assert build(lazyck, bundle, "--all", "--jobs", "1")["status"] == 0
    assert bundle.compiled() == ["three", "two", "one", "four"]


def job(name: str, seconds: float | None) -> Job:
    return Job(BlobEntry(name, (), "x86_64", Path(f"/c/v1/lib/x86_64-t/{name}-{'0' * 16}.so"), False), seconds)


def test_time_left_comes_from_what_compiles_took_before_and_todays_speed() -> None:
    plan = Plan((), (job("a", 60), job("b", 20), job("c", None), job("d", 20)))
    state = PlanProgress(plan, 2, start=0.0)
    # Nothing has ended, so c counts as the mean of 33.3 s. Two at a time take 66.7 s, which is more
    # than the 60 s that a takes alone.
    assert time_left(state, 0.0) == pytest.approx(66.7, abs=0.1)
    state.running = {0: 0.0, 1: 0.0}
    assert time_left(state, 2.0) == pytest.approx((133.3 - 4) / 2, abs=0.1)
    state.running, state.took = {2: 40.0}, {0: 60, 1: 20, 3: 20}
    assert time_left(state, 60.0) == pytest.approx(10.0, abs=4)
    assert time_left(PlanProgress(Plan((), (job("a", None),)), 2, 0.0), 5.0) is None
    slow = PlanProgress(plan, 2, 0.0, took={1: 80.0, 3: 80.0})
    assert (time_left(slow, 80.0) or 0) > 150  # the machine is a quarter as fast as it was
    assert describe(
        PlanProgress(plan, 2, 0.0, failures={1: JobFailure(plan.jobs[1], "", "")}), 10.0, 2 << 20
    ).startswith("1 failed, ")


def test_unknown_blobs_count_as_the_mean_of_the_known() -> None:
    jobs = [job("a", None), job("b", None), job("c", None)]
    costs = Costs({("lib", "b", "x"): 100.0, ("lib", "c", "x"): 10.0})
    plan = make_plan([j.entry for j in jobs], costs)
    assert [j.entry.name for j in plan.jobs] == ["b", "a", "c"]
    assert estimate(plan, costs, 2) == (165.0, 100.0)
    assert estimate(make_plan([j.entry for j in jobs], Costs({})), Costs({}), 2) is None


# -- what it says ----------------------------------------------------------------------------------


def test_json_is_one_object_on_stdout_with_every_failure(lazyck: Lazyck, bundle: Bundle) -> None:
    assert build(lazyck, bundle, "one")["compiled"] == 1
    bundle.source("two").write_text(BROKEN)
    bundle.source("four").write_text(BROKEN)
    done = build(lazyck, bundle, "--all")
    assert done["status"] == 1
    counts = {k: done[k] for k in ("total", "cached", "compiled", "left", "interrupted")}
    assert counts == {"total": 4, "cached": 1, "compiled": 1, "left": 0, "interrupted": False}
    assert sorted(f["blob"] for f in done["failed"]) == ["four", "two"]
    for failed in done["failed"]:
        assert failed["arch"] == "x86_64"
        assert "#error broken on purpose" in failed["error"]
        assert "broken on purpose" in Path(failed["log"]).read_text()
        assert failed["log"] in done["stderr"]
    assert done["seconds"] > 0
    again = build(lazyck, bundle, "one", "three")
    assert (again["status"], again["cached"], again["compiled"], again["failed"]) == (0, 2, 0, [])


def test_no_keep_going_stops_after_the_first_failure(lazyck: Lazyck, bundle: Bundle) -> None:
    bundle.source("one").write_text(BROKEN)
    done = build(lazyck, bundle, "--all", "--no-keep-going", "--jobs", "1")
    assert (done["status"], len(done["failed"]), done["compiled"], done["left"]) == (1, 1, 0, 3)


def test_a_log_gets_plain_lines_a_failure_at_once_and_a_summary(lazyck: Lazyck, bundle: Bundle) -> None:
    bundle.source("three").write_text(BROKEN)
    bundle.slow.write_text("0.5")
    done = lazyck("prebuild", "build", "--manifest", bundle.file, "--all", "--jobs", "1")
    assert done.returncode == 1
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert lines[0] == "lazyck: 0 of 4 entries are cached already, 4 to compile"
    assert re.match(r"lazyck: \[1/4\] compiled one \(x86_64\) in [\d.]+ s; .*left", lines[1]), lines
    assert any(re.match(r"lazyck: \[3/4\] failed: three \(x86_64\): .*broken on purpose", line) for line in lines)
    assert any(re.match(r"lazyck: 4 entries: 3 compiled, 1 failed; [\d.]+ s", line) for line in lines)
    assert "\r" not in done.stderr
    assert len(lines) < 14


@pytest.mark.parametrize("columns", [150, 50, 0])
def test_a_terminal_gets_a_bar_that_fits(bundle: Bundle, cache: Path, columns: int) -> None:
    record_costs(cache, "2.0 5 one x86_64\n")
    bundle.slow.write_text("1.5")
    bundle.source("two").write_text(BROKEN)
    status, text = on_terminal("prebuild", "build", "--manifest", bundle.file, "--all", "--jobs", "2", columns=columns)
    assert status == 1
    bars = [line for line in re.split(r"[\r\n]", text) if re.match(r"lazyck: \d/4 \|", line)]
    assert any(bar.startswith("lazyck: 2/4 |") for bar in bars), text
    assert max(map(len, bars)) <= (columns or 80)
    assert any(re.search(r"\|, 1 failed, .* left", bar) for bar in bars), bars
    whole = r"\|, 1 failed, .* left, \d running, [\d.]+/min, [\d.]+ [KMG]B; (one|three|four) \(x86_64\) \d s"
    assert any(re.search(whole, bar) for bar in bars) == (columns == 150), bars
    assert re.search(r"lazyck: failed: two \(x86_64\): .*broken on purpose", text), text
    assert "lazyck: 4 entries: 3 compiled, 1 failed" in text


def test_verbose_prints_the_commands(lazyck: Lazyck, bundle: Bundle) -> None:
    done = lazyck("prebuild", "build", "--manifest", bundle.file, "one", "--verbose")
    assert re.search(r"lazyck-rt' 'compile' .* 'one'", done.stderr), done.stderr


def test_archs_that_are_not_here_are_compiled_without_a_gpu(lazyck: Lazyck, tmp_path: Path, cache: Path) -> None:
    bundle = make_bundle(tmp_path / "b", ["one", "two"], archs=["gfx942"])
    done = build(lazyck, bundle, "--all", "--arch", "gfx942;gfx950")
    assert (done["status"], done["total"], done["compiled"]) == (0, 4, 4)
    assert sorted(entries(cache)) == ["gfx942/one", "gfx942/two", "gfx950/one", "gfx950/two"]


def test_memory_is_respected_across_the_compiles(lazyck: Lazyck, bundle: Bundle) -> None:
    bundle.slow.write_text("0.5")
    assert build(lazyck, bundle, "--all", "--jobs", "4", env={"LAZYCK_MEM_PER_JOB": "900T"})["compiled"] == 4
    assert bundle.overlaps() == 1
    (bundle.directory / "spans.log").unlink()
    lazyck("prebuild", "clean", "--manifest", bundle.file, "--all")
    assert build(lazyck, bundle, "--all", "--jobs", "4", env={"LAZYCK_MEM_PER_JOB": "1M"})["compiled"] == 4
    assert bundle.overlaps() > 1


def test_names_with_dollars_blanks_and_quotes_are_compiled(lazyck: Lazyck, tmp_path: Path) -> None:
    names = ["a $b", "it's", "back`tick", 'dou"ble']
    texts = {n: 'extern "C" int f() { return 1; }\n' for n in names}
    bundle = make_bundle(tmp_path / "b", texts)
    manifest = bundle.manifest
    from dataclasses import replace

    from lazyck.formats.manifest import encode

    bundle.file.write_bytes(encode(replace(manifest, blobs=tuple(replace(b, symbols=("f",)) for b in manifest.blobs))))
    done = build(lazyck, bundle, "--all")
    assert (done["status"], done["compiled"]) == (0, 4), done["stderr"]


# -- what it needs ---------------------------------------------------------------------------------


def test_no_program_but_a_compiler_is_needed(bundle: Bundle, tmp_path: Path) -> None:
    """The Python that this environment was made of has nothing beside it, and PATH leads only to
    g++ and what it runs."""
    path = tmp_path / "path"
    path.mkdir()
    python = path / "python3"
    python.symlink_to(sys._base_executable)  # type: ignore[attr-defined]
    for name in ("g++", "as", "ld"):
        (path / name).symlink_to(str(shutil.which(name)))
    packages = ":".join(p for p in sys.path if p.endswith("-packages"))
    argv: list[str | Path] = [python, "-m", "lazyck", "prebuild", "build", "--manifest", bundle.file, "--all"]
    env = {**os.environ, "PYTHONPATH": f"{REPOSITORY}:{packages}", "PATH": str(path)}
    done = subprocess.run(argv, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(bundle.compiled()) == 4


# -- interruptions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["ctrl-c", "SIGINT", "SIGTERM", "SIGHUP", "SIGTERM in the background"])
def test_an_interruption_loses_nothing_that_was_compiled(lazyck: Lazyck, bundle: Bundle, cache: Path, how: str) -> None:
    assert build(lazyck, bundle, "one")["compiled"] == 1
    bundle.slow.write_text("60.25")
    process = start(bundle, "--all", "--jobs", "2", "--json", in_background="background" in how)
    wait_until(lambda: (bundle.directory / "spans.log").read_text().count("begin") == 3)
    began = time.monotonic()
    if how == "ctrl-c":
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(getattr(signal, how.split()[0]))
    out, err = process.communicate(timeout=60)
    assert time.monotonic() - began < 30
    assert process.returncode == 130, err
    result = json.loads(out)
    assert (result["interrupted"], result["cached"], result["compiled"], result["failed"]) == (True, 1, 0, [])
    assert result["left"] == 3
    assert "run the same command again to compile the rest" in err
    assert "Traceback" not in err
    wait_until(lambda: not alive_in(bundle) and not sleeping("60.25"), 20)
    bundle.slow.unlink()
    again = build(lazyck, bundle, "--all")
    assert (again["status"], again["cached"], again["compiled"]) == (0, 1, 3)


def test_killed_and_run_again_it_goes_on_where_it_was(lazyck: Lazyck, bundle: Bundle, cache: Path) -> None:
    bundle.slow.write_text("1")
    process = start(bundle, "--all", "--jobs", "1")
    wait_until(lambda: len(bundle.compiled()) == 2)
    process.kill()
    process.communicate()
    wait_until(lambda: not alive_in(bundle), 20)  # what runs comes to its end
    assert 2 <= len(bundle.compiled()) <= 3
    have = len(entries(cache))
    assert have >= 1
    bundle.slow.unlink()
    again = build(lazyck, bundle, "--all")
    assert (again["status"], again["cached"], again["compiled"]) == (0, have, 4 - have)
