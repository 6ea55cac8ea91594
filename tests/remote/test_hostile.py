"""Test a remote that stalls, lies, breaks off, is full or is missing. The caller compiles within a
bounded time, and only a correct entry is handed over."""

import os
import socket
import time
from pathlib import Path

import pytest
from support import wait_until
from support.driver import ENTRY, Host, entry_bytes, entry_file
from support.servers import Hostile, free_port, hostile_server, needs_nginx, needs_redis, nginx, redis, running

from lazyck.remote import EntryName, Remote

BODY = b"the code" * 50_000


def seed(hostile: Hostile, tmp_path: Path, body: bytes = BODY) -> None:
    """Put an entry on the server."""
    remote = Remote.from_environment({"LAZYCK_REMOTE": f"{hostile.url}|trusted"})
    assert remote and remote.push(ENTRY, entry_file(tmp_path / "seed", body=body))
    hostile.asked.clear()
    hostile.sent = 0


@pytest.mark.parametrize(
    ("mood", "only", "word", "message"),
    [
        ("stall", "", "skipped", "no answer within 0.6 s"),
        ("stall_within", "cas/", "skipped", "stalls or breaks off"),
        ("drip", "", "skipped", "did not finish within"),
        ("truncate", "ac/", "skipped", "stalls or breaks off"),
        ("truncate", "cas/", "skipped", "stalls or breaks off"),
        ("shorten", "cas/", "refused", "its contents do not match its record"),
        ("garbage", "ac/", "refused", "its record: it is not JSON"),
        ("garbage", "cas/", "refused", "its contents do not match its record"),
        ("nonsense", "", "skipped", "cannot be connected to, or breaks connections"),
        ("fail", "", "skipped", "answers with status 500"),
        ("fail", "cas/", "skipped", "answers with status 500"),
        ("oversize", "ac/", "skipped", "more than a record holds"),
        ("redirect", "", "skipped", "redirects in circles"),
        ("unpack", "ac/", "refused", "its record: it is not JSON"),
    ],
)
def test_a_server_that_misbehaves_costs_a_bounded_time_and_is_said(
    mood: str, only: str, word: str, message: str, hostile: Hostile, tmp_path: Path
) -> None:
    seed(hostile, tmp_path)
    hostile.mood, hostile.only, hostile.methods = mood, only, "GET"
    # What answers at once must not be taken for slow on a loaded machine.
    patience = "0.6" if mood in ("stall", "stall_within", "drip") else "20"
    host = Host(tmp_path / "1", f"{hostile.url}|trusted", LAZYCK_REMOTE_TIMEOUT=patience)
    runtime = host.miss("--wait", "0")
    assert runtime.verdict() == "compile"
    assert len(runtime.of(word)) == 1, runtime.said
    assert message in runtime.of(word)[0]
    assert hostile.url in runtime.of(word)[0]
    assert not list(runtime.cwd.iterdir())
    runtime.die()
    runtime.wait(5)


def test_no_more_is_read_than_the_record_says(hostile: Hostile, tmp_path: Path) -> None:
    seed(hostile, tmp_path)
    hostile.mood, hostile.only = "oversize", "cas/"
    host = Host(tmp_path / "1", f"{hostile.url}|trusted")
    runtime = host.miss()
    assert runtime.verdict() == "hit"
    assert host.keep(runtime) == entry_bytes(body=BODY)
    assert hostile.sent < 64 << 20  # as much as fits into the sockets' buffers, not two gigabytes


def test_a_compiled_entry_mends_what_was_damaged_there(hostile: Hostile, tmp_path: Path) -> None:
    seed(hostile, tmp_path)
    name = next(path for path in hostile.objects if path.startswith("/cas/"))
    hostile.objects[name] = hostile.objects[name][:-1] + b"?"
    host = Host(tmp_path / "1", f"{hostile.url}|trusted")
    runtime = host.miss()
    assert runtime.verdict() == "compile"
    host.make(runtime, body=BODY)
    runtime = Host(tmp_path / "2", f"{hostile.url}|trusted").miss()
    assert runtime.verdict() == "hit"


def test_contents_that_were_evicted_are_put_there_again(hostile: Hostile, tmp_path: Path) -> None:
    seed(hostile, tmp_path)
    del hostile.objects[next(path for path in hostile.objects if path.startswith("/cas/"))]
    host = Host(tmp_path / "1", f"{hostile.url}|trusted")
    runtime = host.miss()
    assert runtime.verdict() == "compile"
    assert not runtime.of("refused")
    host.make(runtime, body=b"another compiler's bytes")
    runtime = Host(tmp_path / "2", f"{hostile.url}|trusted").miss()
    assert runtime.verdict() == "hit"


def test_an_entry_under_another_entrys_name_is_refused(hostile: Hostile, tmp_path: Path) -> None:
    seed(hostile, tmp_path)
    other = "libx/gfx942-cc-1/other-0123456789abcdef.so"
    hostile.objects["/" + EntryName(ENTRY.key_id, other).record] = hostile.objects["/" + ENTRY.record]
    runtime = Host(tmp_path / "1", f"{hostile.url}|trusted").miss("--wait", "0", name=other)
    assert runtime.verdict() == "compile"
    assert "its record is another entry's" in runtime.of("refused")[0]


def test_a_tier_that_failed_is_passed_over_for_a_while_and_then_used_again(hostile: Hostile, tmp_path: Path) -> None:
    seed(hostile, tmp_path)
    hostile.mood = "stall"
    host = Host(tmp_path / "1", f"{hostile.url}|trusted", LAZYCK_REMOTE_TIMEOUT="1")
    runtime = host.miss("--only-fetch")
    assert runtime.verdict() == "miss"
    asked = len(hostile.asked)
    runtime = host.miss("--only-fetch")  # another process of this host
    assert runtime.verdict() == "miss"
    assert "no answer within 1 s" in runtime.of("skipped")[0]
    assert len(hostile.asked) == asked
    hostile.mood = ""
    time.sleep(6 * 1.25)  # the longest time that the tier is passed over
    assert host.miss("--only-fetch").verdict() == "hit"


def test_a_tier_that_is_down_does_not_hide_the_next(hostile: Hostile, tmp_path: Path) -> None:
    seed(hostile, tmp_path)
    nobody = f"http://127.0.0.1:{free_port()}"
    host = Host(tmp_path / "1", f"{nobody}|trusted,{tmp_path}/unmounted|trusted,{hostile.url}|trusted|read-only")
    runtime = host.miss()
    assert runtime.verdict() == "hit"
    assert [line.split(": ")[1] for line in runtime.of("skipped")] == [
        "cannot be connected to, or breaks connections", "there is no such directory",
    ]  # fmt: skip
    host.keep(runtime)
    assert not (tmp_path / "unmounted").exists()


def test_a_host_that_answers_nothing_costs_the_connect_time(hostile: Hostile, tmp_path: Path) -> None:
    """A full backlog drops packets, as a network partition does."""
    seed(hostile, tmp_path)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen(0)
        port = s.getsockname()[1]
        held = [socket.socket() for _ in range(4)]
        for each in held:
            each.setblocking(False)
            each.connect_ex(("127.0.0.1", port))
        began = time.monotonic()
        runtime = Host(tmp_path / "1", f"http://127.0.0.1:{port}|trusted,{hostile.url}|trusted|read-only").miss()
        assert runtime.verdict() == "hit"
        assert time.monotonic() - began > 0.5
        assert "no connection within 0.6 s" in runtime.of("skipped")[0]
        for each in held:
            each.close()


def test_a_full_server_is_read_but_not_waited_for(hostile: Hostile, tmp_path: Path) -> None:
    seed(hostile, tmp_path)
    hostile.mood, hostile.methods = "full", "PUT"
    # After the failure, writes are passed over for three seconds, but reads are not.
    host = Host(tmp_path / "1", f"{hostile.url}|trusted", LAZYCK_REMOTE_TIMEOUT="30")
    new = "libx/gfx942-cc-1/new-0123456789abcdef.so"
    began = time.monotonic()
    runtime = host.miss(name=new)
    assert runtime.verdict() == "compile"
    assert time.monotonic() - began < 3
    host.make(runtime)
    assert not hostile.objects.keys() & {"/" + ENTRY.lease}
    runtime = host.miss()
    assert runtime.verdict() == "hit"


def test_passwords_and_tokens_go_to_the_server_and_into_no_message(hostile: Hostile, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("t0ken\n")
    token.chmod(0o600)
    host = Host(tmp_path / "1", f"{hostile.url}|trusted|token-file={token}")
    hostile.mood = "fail"
    runtime = host.miss("--only-fetch")
    assert runtime.verdict() == "miss"
    address = hostile.url.removeprefix("http://")
    other = Host(tmp_path / "2", f"http://user:s3cret@{address}/sub?sig=s3cret|trusted")
    runtime_2 = other.miss("--only-fetch")
    assert runtime_2.verdict() == "miss"
    assert hostile.authorizations == ["Bearer t0ken", "Basic dXNlcjpzM2NyZXQ="]
    assert hostile.asked[1] == ("GET", f"/sub/{ENTRY.record}?sig=s3cret")
    said = "".join(runtime.said + runtime_2.said)
    assert "status 500" in said
    assert "s3cret" not in said and "t0ken" not in said and str(token) not in said
    token.chmod(0o604)
    runtime = Host(tmp_path / "3", f"{hostile.url}|trusted|token-file={token}").miss("--only-fetch")
    assert runtime.verdict() == "miss"
    assert "others can read it" in runtime.of("skipped")[0]


@needs_redis
def test_a_redis_server_that_is_killed_and_started_again_while_a_lease_is_held(tmp_path: Path) -> None:
    with running(redis(tmp_path / "redis")) as server:
        one, two = (Host(tmp_path / n, f"{server.url}|trusted", LAZYCK_REMOTE_TIMEOUT="0.4") for n in "12")
        runtime = one.miss()
        assert runtime.verdict() == "compile"
        server.kill()
        waiting = two.miss()
        assert waiting.verdict() == "compile"  # there is no remote at this time
        waiting.die()
        server.start()
        time.sleep(6 * 0.4 * 1.25)  # the longest time that the tier is passed over, after failed renewals of the lease
        one.make(runtime)
        assert two.miss().verdict() == "hit"


@needs_nginx
def test_nginx_killed_in_the_middle_of_an_upload_leaves_nothing_false(tmp_path: Path) -> None:
    with running(nginx(tmp_path / "nginx")) as server:
        host = Host(tmp_path / "1", f"{server.url}|trusted")
        runtime = host.miss()
        assert runtime.verdict() == "compile"
        path = tmp_path / "big.so"
        path.write_bytes(entry_bytes(body=os.urandom(1 << 20) * 200))
        runtime.say(f"made {path}")
        wait_until(lambda: any(p.is_file() and p.stat().st_size for p in (server.root / "body").rglob("*")))
        server.kill()
        runtime.end()
        server.start()
        assert two_is_fine(Host(tmp_path / "2", f"{server.url}|trusted"), path.read_bytes())


def two_is_fine(host: Host, whole: bytes) -> bool:
    """Return whether the host gets the whole entry or nothing."""
    runtime = host.miss("--wait", "0")
    verdict = runtime.verdict()
    return verdict == "compile" or host.keep(runtime) == whole


def test_a_server_that_cannot_delete_and_tells_no_sizes_will_do(hostile: Hostile, tmp_path: Path) -> None:
    hostile.mood = "bazel"
    host = Host(tmp_path / "1", f"{hostile.url}|trusted")
    runtime = host.miss()
    assert runtime.verdict() == "compile"
    host.make(runtime)
    assert b"\nfree\n" in hostile.objects["/" + ENTRY.lease]
    assert not runtime.of("skipped")
    assert Host(tmp_path / "2", f"{hostile.url}|trusted").miss().verdict() == "hit"
    remote = Remote.from_environment(host.env, tmp_path)
    assert remote and not remote.lacking(ENTRY)
    digest = remote.put_contents(entry_file(tmp_path / "bundle"))
    assert remote.get_contents(digest, tmp_path / "got")


def test_a_redirect_is_followed_without_the_token_and_not_by_what_writes(hostile: Hostile, tmp_path: Path) -> None:
    with hostile_server() as other:
        seed(other, tmp_path)
        hostile.mood, hostile.elsewhere = "elsewhere", other.url
        token = tmp_path / "token"
        token.write_text("t0ken")
        token.chmod(0o600)
        host = Host(tmp_path / "1", f"{hostile.url}|trusted|token-file={token}")
        runtime = host.miss()
        assert runtime.verdict() == "hit"
        assert set(hostile.authorizations) == {"Bearer t0ken"}
        assert set(other.authorizations) == {""}
        host.keep(runtime)
        before = dict(other.objects)
        runtime = host.miss(name="libx/gfx942-cc-1/new-0123456789abcdef.so")
        assert runtime.verdict() == "compile"
        assert "answers a PUT with status 302" in runtime.of("skipped")[0]
        assert other.objects == before
