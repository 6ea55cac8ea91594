"""Tests `lazyck profile merge --share`: which blobs many runs have used."""

from fractions import Fraction
from pathlib import Path

import pytest
from support import Lazyck

from lazyck.errors import LazyckError, UsageError
from lazyck.history import profile, shares
from lazyck.history.profile import Use
from lazyck.history.shares import RecordedRun


def use(blob: str, seconds: float = 0, *, library: str = "libfmha", archs: str = "gfx942", process: str = "") -> Use:
    return Use(blob, library, archs, order=1, seconds=seconds, process=process)


def run(name: str, *uses: Use | str, weight: Fraction = Fraction(1)) -> RecordedRun:
    return RecordedRun(name, tuple(use(u) if isinstance(u, str) else u for u in uses), weight)


def profile_of(where: str, *uses: Use) -> profile.Profile:
    return profile.decode(profile.encode(uses), where)


def write(path: Path, *uses: Use) -> Path:
    path.write_bytes(profile.encode(uses))
    return path


# -- which runs there are --------------------------------------------------------------------------


def test_each_of_several_files_is_a_run() -> None:
    a = profile_of("a", use("fwd", process="h:1:1"), use("bwd", process="h:2:1"))
    b = profile_of("b", use("fwd", process="merged"))
    runs = shares.runs_of([a, b])
    assert [(r.name, sorted(u.blob for u in r.uses)) for r in runs] == [("a", ["bwd", "fwd"]), ("b", ["fwd"])]


def test_a_single_file_is_split_into_its_processes() -> None:
    lines = (use("fwd", 3, process="h:1:1"), use("fwd", 0, process="h:2:1"), use("bwd", process="h:2:1"))
    runs = shares.runs_of([profile_of("all", *lines)])
    assert [(r.name, sorted(u.blob for u in r.uses)) for r in runs] == [("h:1:1", ["fwd"]), ("h:2:1", ["bwd", "fwd"])]


@pytest.mark.parametrize("text", [profile.encode([use("a", process="h:1:1"), use("b")]), b"a\nb\n"])
def test_a_file_without_processes_cannot_be_split(text: bytes) -> None:
    with pytest.raises(LazyckError, match=r"all: .*cannot be split into runs") as e:
        shares.runs_of([profile.decode(text, "all")])
    assert "the file of each run" in e.value.hint


# -- what many runs used ---------------------------------------------------------------------------


def test_a_blob_is_kept_if_at_least_that_share_of_the_runs_used_it() -> None:
    runs = [run(str(i), "all", *(["some"] if i < 3 else []), *(["one"] if i == 0 else [])) for i in range(10)]
    names = {share: [u.blob for u in shares.common(runs, Fraction(share))] for share in ("0", "0.1", "0.3", "1")}
    assert names == {"0": ["all", "one", "some"], "0.1": ["all", "one", "some"], "0.3": ["all", "some"], "1": ["all"]}
    assert [u.blob for u in shares.common(runs, Fraction("0.301"))] == ["all"]


def test_a_run_counts_as_its_weight() -> None:
    runs = [run("a", "x", weight=Fraction(3)), run("b", "y"), run("c", "y")]
    assert [u.blob for u in shares.common(runs, Fraction("0.5"))] == ["x"]
    assert [u.blob for u in shares.common(runs, Fraction("0.4"))] == ["x", "y"]


def test_common_blobs_are_merged_as_without_a_share() -> None:
    runs = [
        RecordedRun("a", (Use("x", "l", "", 4, 2, 1.5),)),
        RecordedRun("b", (Use("x", "l", "", 2, 9, 0.5), Use("x", order=1))),
    ]
    assert shares.common(runs, Fraction(1)) == [Use("x", "l", "", 2, 9, 1.5, process="merged")]


@pytest.mark.parametrize(("text", "value"), [("0", 0), ("1", 1), ("1.0", 1), ("0.1", Fraction(1, 10)), (".25", 0.25)])
def test_shares_are_exact(text: str, value: float) -> None:
    assert shares.parse_share(text) == value


@pytest.mark.parametrize("text", ["", "-0.1", "1.01", "10%", "nan", "1e-3", "half", "1/3", "٠"])
def test_what_is_no_share_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="--share ") as e:
        shares.parse_share(text)
    assert repr(text) in e.value.message
    assert "0.1" in e.value.hint


def test_weights_belong_to_their_files() -> None:
    files = [Path("a"), Path("dir/b=1"), Path("c")]
    assert shares.parse_weights(["dir/b=1=2.5", "./c=4"], files) == [1, Fraction(5, 2), 4]


@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        (["d=2"], "'d=2': d is none of the files"),
        (["2"], "'2': not FILE=NUMBER"),
        (["=2"], "'=2': not FILE=NUMBER"),
        (["a=0"], "'a=0': not a positive number"),
        (["a=-1"], "'a=-1': not a positive number"),
        (["a=many"], "'a=many': not a positive number"),
        (["a="], "'a=': not a positive number"),
        (["a=1", "./a=2"], "'./a=2': a has a weight already"),
    ],
)
def test_what_is_no_weight_is_a_usage_error(texts: list[str], problem: str) -> None:
    with pytest.raises(UsageError) as e:
        shares.parse_weights(texts, [Path("a"), Path("b")])
    assert e.value.message == f"--weight {problem}"
    assert e.value.hint


def test_the_weight_of_an_only_file_would_change_nothing() -> None:
    with pytest.raises(UsageError, match="changes nothing"):
        shares.parse_weights(["a=2"], [Path("a")])


# -- the commands ----------------------------------------------------------------------------------


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """Write the profiles of three runs: two used the same blob, and the third used two more."""
    return [
        write(tmp_path / "one", use("fwd", 30, process="h:1:1")),
        write(tmp_path / "two", use("fwd", process="h:2:1")),
        write(tmp_path / "three", *(use(b, s, process="h:3:1") for b, s in (("fwd", 0), ("bwd", 12.5), ("opt", 0)))),
    ]


def test_a_merged_file_is_a_clear_error(lazyck: Lazyck, runs: list[Path], tmp_path: Path) -> None:
    lazyck("profile", "merge", *runs, "-o", tmp_path / "merged")
    done = lazyck("profile", "merge", "--share", "0.5", tmp_path / "merged")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{tmp_path / 'merged'}: a line of" in done.stderr
    assert "cannot be split into runs" in done.stderr
    assert "hint: give the file of each run" in done.stderr


def test_a_file_given_twice_would_count_twice(lazyck: Lazyck, runs: list[Path]) -> None:
    again = runs[0].parent / "again"
    again.symlink_to(runs[0])
    done = lazyck("profile", "merge", "--share", "0.5", *runs, again)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{again}: the same file as {runs[0]}" in done.stderr
    assert lazyck("profile", "merge", *runs, again).returncode == 0


def test_merge_with_a_share_keeps_what_many_runs_used(lazyck: Lazyck, runs: list[Path], tmp_path: Path) -> None:
    def blobs(*words: str | Path) -> list[str]:
        done = lazyck("profile", "merge", *words)
        assert (done.returncode, done.stderr) == (0, "")
        return [line.split("\t")[0] for line in done.stdout.splitlines()[1:]]

    assert blobs(*runs) == blobs("--share", "0", *runs) == ["bwd", "fwd", "opt"]
    assert blobs("--share", "0.5", *runs) == ["fwd"]
    assert blobs("--share", "0.5", "--weight", f"{runs[2]}=2", *runs) == ["bwd", "fwd", "opt"]
    together = tmp_path / "all"
    together.write_bytes(b"".join(path.read_bytes() for path in runs))
    assert blobs("--share", "0.5", together) == ["fwd"]


@pytest.mark.parametrize(
    ("words", "problem", "hint"),
    [
        (["--share", "10%"], "--share '10%': not a number from 0 to 1", "such as 0.1"),
        (["--share", "0.1", "--weight", "four=2"], "--weight 'four=2': four is none of the files", "hint: "),
        (["--share", "0.1", "--weight", "one=no"], "--weight 'one=no': not a positive number", "hint: "),
        (["--weight", "one=2"], "--weight needs --share", "give --share"),
    ],
)  # fmt: skip
def test_wrong_shares_and_weights_are_usage_errors(
    lazyck: Lazyck, runs: list[Path], words: list[str], problem: str, hint: str
) -> None:
    done = lazyck("profile", "merge", *words, "one", "two", "-o", "out", cwd=runs[0].parent)
    assert (done.returncode, done.stdout) == (2, "")
    assert problem in done.stderr and hint in done.stderr
    assert not (runs[0].parent / "out").exists()
