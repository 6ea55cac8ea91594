"""Test what LAZYCK_REMOTE may contain, and how messages name tiers."""

import pytest

from lazyck.errors import UsageError
from lazyck.remote.tiers import Times, parse_tiers, read_times


def test_tiers_with_their_attributes_in_order() -> None:
    text = "/mnt/x | trusted, https://u:p%40@h:81/c/?sig=1|read-only|token-file=/t,s3://b/p|endpoint=http://[::1]:9/,"
    tiers = parse_tiers(text)
    assert [t.label for t in tiers] == ["/mnt/x", "https://h:81/c", "s3://b/p"]
    assert [t.scheme for t in tiers] == ["file", "https", "s3"]
    assert [t.is_trusted for t in tiers] == [True, False, False]
    assert [t.is_read_only for t in tiers] == [False, True, False]
    assert (tiers[1].token_file, tiers[2].endpoint) == ("/t", "http://[::1]:9/")
    assert parse_tiers(" ") == ()


@pytest.mark.parametrize(
    "text",
    [
        "cache.example.org/x", "relative", "http://", "http:/u:secret@h/x", "s3:/u:secret@b", "file://h/x", "/a/../b",
        "ftp://u:secret@h/x", "http://h:port/", "http://h/a b", "http://[::1", "http://h|trust",
        "/x|token-file=/secret", "http://h|token-file=secret", "s3://b|endpoint=secret", ",".join(["/x"] * 9), "http://h/\x1b[1m",
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_without_its_secrets(text: str) -> None:
    with pytest.raises(UsageError, match="LAZYCK_REMOTE") as e:
        parse_tiers(text)
    assert "secret" not in e.value.render()


def test_all_times_follow_one_setting() -> None:
    assert read_times({}) == Times(10.0)
    times = read_times({"LAZYCK_REMOTE_TIMEOUT": "1"})
    assert (times.connect, times.idle, times.down, times.lease) == (1, 1, 6, 1.5)
    assert (Times().connect, Times().down, Times().lease) == (2, 60, 15)
    assert Times().whole(100 << 20) == 2 + 10 + 400
    with pytest.raises(UsageError, match="LAZYCK_REMOTE_TIMEOUT"):
        read_times({"LAZYCK_REMOTE_TIMEOUT": "0"})
