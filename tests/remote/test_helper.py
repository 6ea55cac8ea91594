"""Test the helper's protocol over a real socket, with each backend: what the runtime hears, and
what the remote then has."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import REPOSITORY, wait_until
from support.driver import ENTRY, KEY, NAME, Host, entry_bytes
from support.servers import Hostile

from lazyck.remote.entry_record import decode


def test_what_one_host_compiles_another_fetches(tier: str, tmp_path: Path) -> None:
    first, second = Host(tmp_path / "1", f"{tier}|trusted"), Host(tmp_path / "2", f"{tier}|trusted")
    runtime = first.miss()
    assert runtime.verdict() == "compile"
    first.make(runtime, body=b"made" * 300_000)
    runtime = second.miss()
    assert runtime.verdict() == "hit"
    label = tier.partition("|")[0].replace(":sesame@", "")
    assert runtime.said == [f"hit {label} {1_200_064}"]
    assert second.keep(runtime) == entry_bytes(body=b"made" * 300_000)
    assert not list(runtime.cwd.iterdir())


def test_of_hosts_that_miss_together_one_compiles(tier: str, tmp_path: Path) -> None:
    hosts = [Host(tmp_path / str(n), f"{tier}|trusted") for n in range(4)]
    runtimes = [host.miss() for host in hosts]
    verdicts: dict[int, str] = {}

    def see() -> bool:
        for n, runtime in enumerate(runtimes):
            if n not in verdicts:
                runtime.socket.setblocking(False)
                try:
                    verdicts[n] = runtime.verdict(0.05)
                except (BlockingIOError, TimeoutError):
                    continue
                if verdicts[n] == "compile":
                    time.sleep(0.3)  # stands for the compile
                    runtime.say(f"made {write(hosts[n])}")
        return len(verdicts) == len(runtimes)

    def write(host: Host) -> Path:
        path = host.directory / "entry.so"
        path.write_bytes(entry_bytes())
        return path

    wait_until(see, 20)
    assert sorted(verdicts.values()) == ["compile", "hit", "hit", "hit"]
    for n, runtime in enumerate(runtimes):
        if verdicts[n] == "hit":
            hosts[n].keep(runtime)
        else:
            runtime.end()


def test_when_a_holder_is_killed_another_takes_over(tier: str, tmp_path: Path) -> None:
    dead, alive = Host(tmp_path / "1", f"{tier}|trusted"), Host(tmp_path / "2", f"{tier}|trusted")
    runtime = dead.miss()
    assert runtime.verdict() == "compile"
    other = alive.miss()
    time.sleep(0.7)  # it has asked by then; nothing tells that it waits
    runtime.kill()
    began = time.monotonic()
    assert other.verdict() == "compile"
    assert 0.2 < time.monotonic() - began < 8  # the lease lasts 0.9 s
    alive.make(other)
    assert Host(tmp_path / "3", f"{tier}|trusted").miss().verdict() == "hit"


def test_a_holder_that_lives_keeps_its_lease(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    slow, other = (Host(tmp_path / n, f"{tmp_path}/shared|trusted") for n in "12")
    runtime = slow.miss()
    assert runtime.verdict() == "compile"
    waiting = other.miss()
    with pytest.raises(TimeoutError):
        waiting.verdict(3)  # more than three times the duration of a lease
    slow.make(runtime)
    assert waiting.verdict() == "hit"


def test_a_failed_compile_is_tried_by_the_next_and_after_some_by_all(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    for n in range(3):
        runtime = Host(tmp_path / str(n), f"{tmp_path}/shared|trusted").miss()
        assert runtime.verdict() == "compile"
        runtime.die()
        runtime.wait(10)
    together = [Host(tmp_path / f"more{n}", f"{tmp_path}/shared|trusted").miss() for n in range(2)]
    assert [runtime.verdict(3) for runtime in together] == ["compile", "compile"]


def test_patience_ends(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    slow, other = (Host(tmp_path / n, f"{tmp_path}/shared|trusted") for n in "12")
    holder = slow.miss()
    assert holder.verdict() == "compile"
    began = time.monotonic()
    runtime = other.miss("--wait", "1")
    assert runtime.verdict() == "compile"
    assert 1 < time.monotonic() - began < 5
    other.make(runtime)  # what it made is there for all
    assert Host(tmp_path / "3", f"{tmp_path}/shared|trusted").miss().verdict() == "hit"


def test_only_fetch_waits_for_nobody_and_takes_no_lease(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    one, two = (Host(tmp_path / n, f"{tmp_path}/shared|trusted") for n in "12")
    assert one.miss("--only-fetch").verdict() == "miss"
    assert not list((tmp_path / "shared").iterdir())
    runtime = one.miss()
    assert runtime.verdict() == "compile"
    runtime_2 = two.miss("--only-fetch")
    assert runtime_2.verdict() == "miss"
    runtime_2.end()
    one.make(runtime)
    assert two.miss("--only-fetch").verdict() == "hit"


def test_what_the_runtime_refuses_is_compiled_and_replaced(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    one, two, three = (Host(tmp_path / n, f"{tmp_path}/shared|trusted") for n in "123")
    runtime = one.miss()
    assert runtime.verdict() == "compile"
    one.make(runtime, body=b"defines nothing")
    runtime = two.miss()
    assert runtime.verdict() == "hit"
    runtime.say("bad it does not define 'f'")
    assert runtime.verdict() == "compile"
    assert not (runtime.cwd / "fetched.so").exists()
    two.make(runtime, body=b"defines f")
    runtime = three.miss()
    assert runtime.verdict() == "hit"
    assert three.keep(runtime) == entry_bytes(body=b"defines f")


def test_a_hit_in_a_far_tier_fills_the_nearer_ones_that_may_be_written(tmp_path: Path) -> None:
    near, closed, far = (tmp_path / n for n in ("near", "closed", "far"))
    for directory in (near, closed, far):
        directory.mkdir()
    maker = Host(tmp_path / "1", f"{far}|trusted")
    runtime = maker.miss()
    assert runtime.verdict() == "compile"
    maker.make(runtime)
    host = Host(tmp_path / "2", f"{near}|trusted,{closed}|trusted|read-only,{far}|trusted|read-only")
    runtime = host.miss()
    assert runtime.verdict() == "hit"
    assert runtime.said == [f"hit {far} {len(entry_bytes())}"]
    assert not list(near.iterdir())  # the caller is served first
    host.keep(runtime)
    assert (near / ENTRY.record).read_bytes() == (far / ENTRY.record).read_bytes()
    assert sorted(p.name for p in (near / "cas").iterdir()) == sorted(p.name for p in (far / "cas").iterdir())
    assert not list(closed.iterdir())
    runtime = host.miss()
    assert runtime.verdict() == "hit"
    assert runtime.said == [f"hit {near} {len(entry_bytes())}"]


def test_a_made_entry_goes_to_every_tier_with_what_its_compile_took(tmp_path: Path) -> None:
    tiers = [tmp_path / n for n in "abc"]
    for directory in tiers:
        directory.mkdir()
    host = Host(tmp_path / "1", f"{tiers[0]}|trusted,{tiers[1]}|trusted|read-only,{tiers[2]}|trusted")
    (host.cache / ".costs").mkdir()
    (host.cache / ".costs" / "libx").write_text("9.0 1 blob gfx90a\n3.0 2 blob gfx942\n41.5 70000 blob gfx942\n1 2 x")
    runtime = host.miss()
    assert runtime.verdict() == "compile"
    host.make(runtime)
    for directory in (tiers[0], tiers[2]):
        record = decode((directory / ENTRY.record).read_bytes())
        assert record and (record.entry, record.seconds, record.peak_kib) == (ENTRY, 41.5, 70000)
    assert not list(tiers[1].iterdir())
    assert sorted(p.name for p in (tiers[2] / "ac").iterdir()) == [ENTRY.record[3:]]  # the lease is gone


@pytest.mark.parametrize(("known", "expected"), [("", "41.500 70000 blob gfx942\n"), ("3.0 2 blob gfx942\n", "")])
def test_a_fetched_entry_tells_what_its_compile_took(tmp_path: Path, known: str, expected: str) -> None:
    """The blob's next build has another key, but an expected time. What a compile took here is
    better known than what it took elsewhere."""
    (tmp_path / "shared").mkdir()
    maker, other = (Host(tmp_path / n, f"{tmp_path}/shared|trusted") for n in "12")
    for host, text in ((maker, "41.5 70000 blob gfx942\n"), (other, known)):
        (host.cache / ".costs").mkdir()
        (host.cache / ".costs" / "libx").write_text(text)
    runtime = maker.miss()
    assert runtime.verdict() == "compile"
    maker.make(runtime)
    runtime = other.miss()
    assert runtime.verdict() == "hit"
    other.keep(runtime)
    assert (other.cache / ".costs" / "libx").read_text() == known + expected


def test_the_helper_survives_the_terminals_keys_and_ends_with_its_caller(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    runtime = Host(tmp_path / "1", f"{tmp_path}/shared|trusted").miss()
    assert runtime.verdict() == "compile"
    (pid,) = runtime.helpers
    assert os.getsid(pid) == pid
    for number in (signal.SIGINT, signal.SIGHUP):
        os.kill(pid, number)
    time.sleep(0.2)  # a helper that heeds them would be gone by then
    assert runtime.helpers == [pid]
    runtime.die()
    runtime.wait(5)
    assert not list(runtime.cwd.iterdir())
    # The lease is free at once, before it would expire.
    began = time.monotonic()
    assert Host(tmp_path / "2", f"{tmp_path}/shared|trusted").miss().verdict() == "compile"
    assert time.monotonic() - began < 2


def test_a_holder_that_is_told_to_end_gives_its_lease_back(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    runtime = Host(tmp_path / "1", f"{tmp_path}/shared|trusted", LAZYCK_REMOTE_TIMEOUT="10").miss()
    assert runtime.verdict() == "compile"
    (pid,) = runtime.helpers
    os.kill(pid, signal.SIGTERM)
    runtime.wait(5)
    began = time.monotonic()
    assert Host(tmp_path / "2", f"{tmp_path}/shared|trusted").miss().verdict() == "compile"
    assert time.monotonic() - began < 2


def test_a_caller_that_ends_while_it_waits_takes_the_helper_along(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    holder = Host(tmp_path / "1", f"{tmp_path}/shared|trusted").miss()
    assert holder.verdict() == "compile"
    waiting = Host(tmp_path / "2", f"{tmp_path}/shared|trusted").miss()
    time.sleep(0.5)  # it has asked by then; nothing tells that it waits
    waiting.die()
    waiting.wait(5)
    assert holder.helpers


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"LAZYCK_REMOTE": "nonsense"}, "note warn LAZYCK_REMOTE, tier 1: not a URL"),
        ({"LAZYCK_REMOTE_TIMEOUT": "soon"}, "note warn LAZYCK_REMOTE_TIMEOUT='soon'"),
        ({"LAZYCK_TRUST": "/none"}, "note warn LAZYCK_TRUST: /none: No such file"),
        ({"LAZYCK_SIGN_KEY": "/none"}, "note warn LAZYCK_SIGN_KEY: /none: No such file"),
        ({"LAZYCK_REMOTE": "nosuch://x/y|trusted"}, "skipped nosuch://x/y:"),
    ],
)
def test_settings_that_make_no_sense_are_said_and_the_caller_compiles(
    env: dict[str, str], message: str, tmp_path: Path
) -> None:
    (tmp_path / "shared").mkdir()
    runtime = Host(tmp_path / "1", f"{tmp_path}/shared|trusted").miss(env=env)
    assert runtime.verdict() == "compile"
    assert runtime.said[0].startswith(message)


@pytest.mark.parametrize(
    "words",
    [
        ["entry"],
        ["entry", "--key"],
        ["fetch", "--key", KEY, "--name", NAME, "--cache", "/c"],
        ["entry", "--key", KEY, "--name", "../../x", "--cache", "/c"],
        ["entry", "--key", "xyz", "--name", NAME, "--cache", "/c"],
        ["entry", "--key", KEY, "--name", NAME, "--cache", "/c"],  # standard input is not a socket
    ],
)
def test_a_command_line_that_makes_no_sense_is_refused(words: list[str]) -> None:
    argv = [sys.executable, "-m", "lazyck.commands.remote_program", *words]
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("lazyck-remote: ")
    assert "Traceback" not in done.stderr


def test_the_helper_loads_only_what_its_tier_needs(hostile: Hostile, tmp_path: Path) -> None:
    program = (
        "import sys; from lazyck.remote import helper\n"
        "try: helper.serve(helper.parse(sys.argv[1:]), type('C', (), {'send': lambda *a: None})())\n"
        "except AttributeError: pass\n"
        "print(' '.join(m for m in ('click', 'redis', 'fsspec', 'tqdm', 'asyncio', 'requests', 'cryptography')\n"
        "               if m in sys.modules))"
    )
    argv = [
        sys.executable,
        "-c",
        program,
        "entry",
        "--key",
        KEY,
        "--name",
        NAME,
        "--cache",
        str(tmp_path),
        "--only-fetch",
    ]
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY), "LAZYCK_REMOTE": f"{hostile.url}|trusted"}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["requests"]
