"""Tests `lazyck profile coverage` and `lazyck profile merge --share`: what a new run may meet that
no recorded run has used, and which blobs many runs have used."""

import json
from fractions import Fraction
from pathlib import Path

import pytest
from support import Lazyck

from lazyck.errors import LazyckError, UsageError
from lazyck.history import coverage, profile
from lazyck.history.coverage import RecordedRun
from lazyck.history.profile import Use


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
    runs = coverage.runs_of([a, b])
    assert [(r.name, sorted(u.blob for u in r.uses)) for r in runs] == [("a", ["bwd", "fwd"]), ("b", ["fwd"])]


def test_a_single_file_is_split_into_its_processes() -> None:
    lines = (use("fwd", 3, process="h:1:1"), use("fwd", 0, process="h:2:1"), use("bwd", process="h:2:1"))
    runs = coverage.runs_of([profile_of("all", *lines)])
    assert [(r.name, sorted(u.blob for u in r.uses)) for r in runs] == [("h:1:1", ["fwd"]), ("h:2:1", ["bwd", "fwd"])]


@pytest.mark.parametrize("text", [profile.encode([use("a", process="h:1:1"), use("b")]), b"a\nb\n"])
def test_a_file_without_processes_cannot_be_split(text: bytes) -> None:
    with pytest.raises(LazyckError, match=r"all: .*cannot be split into runs") as e:
        coverage.runs_of([profile.decode(text, "all")])
    assert "the file of each run" in e.value.hint


# -- leaving one out -------------------------------------------------------------------------------


def test_what_only_one_run_used_is_new_to_it_most_seconds_first() -> None:
    found = coverage.measure([run("a", "x", use("y", 2), use("z", 5)), run("b", "x"), run("c", "x", "w")])
    assert (found.runs, found.covered) == (3, 1)
    assert [(n.run, [u.blob for u in n.uses]) for n in found.news] == [("a", ["z", "y"]), ("c", ["w"])]


def test_seconds_that_were_not_recorded_are_unknown_and_not_zero() -> None:
    found = coverage.measure([run("a", use("x", 2), use("y", 5.5), "z"), run("b", "w")])
    assert [(n.seconds, n.unknown) for n in found.news] == [(7.5, 1), (0, 1)]
    text = coverage.render(found)
    assert "3  7.5 s, 1 unknown  a" in text
    assert "1           unknown  b" in text
    assert "unknown  w" in text
    assert "with 7.5 s of compiles as recorded (unknown for 2 blobs, as after a cache hit):" in text
    assert "2 new blobs, of unknown compile time" in coverage.render(coverage.measure([run("a", "x"), run("b", "y")]))
    known = coverage.render(coverage.measure([run("a", use("x", 1)), run("b", use("y", 2))]))
    assert "2 new blobs, with 3.0 s of compiles as recorded:" in known and "unknown" not in known


def test_the_runs_with_the_longest_compiles_come_first() -> None:
    found = coverage.measure([run("a", use("x", 1)), run("b", "y"), run("c", use("z", 9))])
    assert [n.run for n in found.news] == ["c", "a", "b"]


def test_a_blob_that_several_processes_of_a_run_used_counts_once() -> None:
    ranks = (use("x", 2, process="h:1:1"), use("x", 3, process="h:2:1"))
    found = coverage.measure(coverage.runs_of([profile_of("a", *ranks), profile_of("b", use("y", process="h:3:1"))]))
    assert [(n.run, len(n.uses), n.seconds) for n in found.news] == [("a", 1, 3), ("b", 1, 0)]


def test_a_blob_for_another_arch_or_of_another_library_is_new() -> None:
    found = coverage.measure([run("a", "x"), run("b", use("x", archs="gfx950")), run("c", use("x", library="other"))])
    assert found.covered == 0


def test_a_name_in_a_plain_list_is_that_blob_in_any_library() -> None:
    bare = use("x", library="", archs="")
    assert coverage.measure([run("a", bare), run("b", "x")]).covered == 2
    assert coverage.measure([run("a", bare), run("b", "y")]).covered == 0


def test_one_run_can_be_compared_with_nothing() -> None:
    for uses, count in (([use("x", process="h:1:1")], "1 run"), ([], "0 runs")):
        with pytest.raises(LazyckError, match=f"all: {count} .*at least two") as e:
            coverage.runs_to_compare([profile_of("all", *uses)])
        assert "LAZYCK_RECORD" in e.value.hint


def test_the_text_is_limited_and_says_how_much_more_there_is() -> None:
    many = [run(f"run{i:02}", *(use(f"b{i:02}.{k}", 60 - i) for k in range(2))) for i in range(40)]
    lines = coverage.render(coverage.measure(many)).splitlines()
    assert [line.split()[-1] for line in lines if line.split()[0] == "2"] == [
        f"run{i:02}" for i in range(coverage.MOST_RUNS)
    ]
    assert f"{40 - coverage.MOST_RUNS} more runs; --json prints all of them" in lines
    assert f"{80 - coverage.MOST_BLOBS} more blobs; --json prints all of them" in lines
    assert sum("libfmha" in line for line in lines) == coverage.MOST_BLOBS
    short = coverage.render(coverage.measure([run("a", "x"), run("b", "x")]))
    assert "--json" not in short and "new blobs" not in short


# -- what many runs used ---------------------------------------------------------------------------


def test_a_blob_is_kept_if_at_least_that_share_of_the_runs_used_it() -> None:
    runs = [run(str(i), "all", *(["some"] if i < 3 else []), *(["one"] if i == 0 else [])) for i in range(10)]
    names = {share: [u.blob for u in coverage.common(runs, Fraction(share))] for share in ("0", "0.1", "0.3", "1")}
    assert names == {"0": ["all", "one", "some"], "0.1": ["all", "one", "some"], "0.3": ["all", "some"], "1": ["all"]}
    assert [u.blob for u in coverage.common(runs, Fraction("0.301"))] == ["all"]


def test_a_run_counts_as_its_weight() -> None:
    runs = [run("a", "x", weight=Fraction(3)), run("b", "y"), run("c", "y")]
    assert [u.blob for u in coverage.common(runs, Fraction("0.5"))] == ["x"]
    assert [u.blob for u in coverage.common(runs, Fraction("0.4"))] == ["x", "y"]


def test_common_blobs_are_merged_as_without_a_share() -> None:
    runs = [
        RecordedRun("a", (Use("x", "l", "", 4, 2, 1.5),)),
        RecordedRun("b", (Use("x", "l", "", 2, 9, 0.5), Use("x", order=1))),
    ]
    assert coverage.common(runs, Fraction(1)) == [Use("x", "l", "", 2, 9, 1.5, process="merged")]


@pytest.mark.parametrize(("text", "value"), [("0", 0), ("1", 1), ("1.0", 1), ("0.1", Fraction(1, 10)), (".25", 0.25)])
def test_shares_are_exact(text: str, value: float) -> None:
    assert coverage.parse_share(text) == value


@pytest.mark.parametrize("text", ["", "-0.1", "1.01", "10%", "nan", "1e-3", "half", "1/3", "٠"])
def test_what_is_no_share_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="--share ") as e:
        coverage.parse_share(text)
    assert repr(text) in e.value.message
    assert "0.1" in e.value.hint


def test_weights_belong_to_their_files() -> None:
    files = [Path("a"), Path("dir/b=1"), Path("c")]
    assert coverage.parse_weights(["dir/b=1=2.5", "./c=4"], files) == [1, Fraction(5, 2), 4]


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
        coverage.parse_weights(texts, [Path("a"), Path("b")])
    assert e.value.message == f"--weight {problem}"
    assert e.value.hint


def test_the_weight_of_an_only_file_would_change_nothing() -> None:
    with pytest.raises(UsageError, match="changes nothing"):
        coverage.parse_weights(["a=2"], [Path("a")])


# -- the commands ----------------------------------------------------------------------------------


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """Write the profiles of three runs: two used the same blob, and the third used two more."""
    return [
        write(tmp_path / "one", use("fwd", 30, process="h:1:1")),
        write(tmp_path / "two", use("fwd", process="h:2:1")),
        write(tmp_path / "three", *(use(b, s, process="h:3:1") for b, s in (("fwd", 0), ("bwd", 12.5), ("opt", 0)))),
    ]


def test_coverage_says_what_a_new_run_may_meet(lazyck: Lazyck, runs: list[Path]) -> None:
    done = lazyck("profile", "coverage", *runs)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == (
        "2 of 3 runs (66.7 %) used only blobs that other runs used, too, and would have met nothing new."
    )
    assert lines[1] == (
        "1 run would have met 2 new blobs, with 12.5 s of compiles as recorded "
        "(unknown for 1 blob, as after a cache hit):"
    )
    assert [line.split() for line in lines[3:4]] == [["2", "12.5", "s,", "1", "unknown", str(runs[2])]]
    assert [line.split() for line in lines[5:7]] == [
        ["12.5", "s", "bwd", "gfx942", "libfmha", str(runs[2])],
        ["unknown", "opt", "gfx942", "libfmha", str(runs[2])],
    ]
    assert not lines[7:]


def test_coverage_as_json_has_every_blob(lazyck: Lazyck, runs: list[Path]) -> None:
    done = json.loads(lazyck("profile", "coverage", "--json", *runs).stdout)
    where = {"library": "libfmha", "archs": "gfx942"}
    blobs = [{"blob": "bwd", **where, "seconds": 12.5}, {"blob": "opt", **where, "seconds": None}]
    new = [{"run": str(runs[2]), "seconds": 12.5, "unknown": 1, "blobs": blobs}]
    assert done == {"runs": 3, "covered": 2, "new": new}


def test_coverage_of_one_file_is_that_of_its_processes(lazyck: Lazyck, runs: list[Path], tmp_path: Path) -> None:
    together = tmp_path / "all"
    together.write_bytes(b"".join(path.read_bytes() for path in runs))
    done = lazyck("profile", "coverage", together)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"Each process in {together} counts as a run."
    assert lines[1].startswith("2 of 3 runs ")
    assert lines[4].endswith(" h:3:1")


@pytest.mark.parametrize("words", [("coverage",), ("merge", "--share", "0.5")])
def test_a_merged_file_is_a_clear_error(lazyck: Lazyck, runs: list[Path], tmp_path: Path, words: list[str]) -> None:
    lazyck("profile", "merge", *runs, "-o", tmp_path / "merged")
    done = lazyck("profile", *words, tmp_path / "merged")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{tmp_path / 'merged'}: a line of" in done.stderr
    assert "cannot be split into runs" in done.stderr
    assert "hint: give the file of each run" in done.stderr


def test_coverage_of_one_run_says_what_to_do(lazyck: Lazyck, runs: list[Path]) -> None:
    done = lazyck("profile", "coverage", runs[0])
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{runs[0]}: 1 run found" in done.stderr and "hint: record more runs" in done.stderr


@pytest.mark.parametrize("words", [("coverage",), ("merge", "--share", "0.5")])
def test_a_file_given_twice_would_count_twice(lazyck: Lazyck, runs: list[Path], words: list[str]) -> None:
    again = runs[0].parent / "again"
    again.symlink_to(runs[0])
    done = lazyck("profile", *words, *runs, again)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{again}: the same file as {runs[0]}" in done.stderr
    assert lazyck("profile", "merge", *runs, again).returncode == 0


def test_a_run_without_blobs_counts_with_a_warning(lazyck: Lazyck, runs: list[Path], tmp_path: Path) -> None:
    done = lazyck("profile", "coverage", *runs, write(tmp_path / "none"))
    assert done.stdout.startswith("3 of 4 runs ")
    assert "no blobs" not in lazyck("profile", "coverage", tmp_path / "none").stderr
    assert f"{tmp_path / 'none'}: no blobs in it; it counts as a run that used none" in done.stderr


def test_names_in_the_coverage_are_safe_to_print(lazyck: Lazyck, runs: list[Path], tmp_path: Path) -> None:
    odd = write(tmp_path / "odd\x1b", use("a\x1b[31m", library="l\x1b", archs="g\x1b", process="h\x1b:1:1"))
    done = lazyck("profile", "coverage", *runs, odd)
    assert "a\\x1b[31m" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr
    both = tmp_path / "both\x1b"
    both.write_bytes(odd.read_bytes() + runs[0].read_bytes())
    assert "\x1b" not in lazyck("profile", "coverage", both).stdout


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
