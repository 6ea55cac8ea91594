"""Tests `lazyck profile`: profiles of runs are merged, shown, compared, and cleared of blobs that
are gone."""

import json
import os
import random
import stat
import subprocess
from pathlib import Path

import pytest
from support import HERE, Lazyck

from lazyck.errors import FormatError
from lazyck.files import private_directory
from lazyck.formats.c_header import render_header
from lazyck.formats.manifest import BlobRecord, Manifest, Recipe, encode
from lazyck.history import profile
from lazyck.prebuild.blob_names import read_list
from lazyck.runtime.builder import LINK_FLAGS, OBJECTS, SOURCES, compile_objects
from lazyck.settings.environment import tools_dir


def row(
    blob: str, order: int, calls: int = 0, seconds: float = 0, kib: int = 0, rank: str = "", process: str = "h:1:1",
    library: str = "libfmha", archs: str = "gfx942",
) -> str:  # fmt: skip
    return f"{blob}\t{library}\t{archs}\t{order}\t{calls}\t{seconds:.1f}\t{kib}\t{rank}\t{process}\t1700000000\n"


@pytest.fixture
def ranks(tmp_path: Path) -> list[Path]:
    """Write the profiles of two ranks of a run: rank 0 compiled, and rank 1 found its second blob
    in the cache."""
    zero, one = tmp_path / "rank0", tmp_path / "rank1"
    zero.write_text(
        f"{profile.HEADER}\n"
        + row("fwd", 1, 0, 21.5, 900_000, "0")
        + row("bwd", 2, 0, 60, 1_000_000, "0")
        + row("fwd", 1, 512, 21.5, 900_000, "0")  # a row from the end of the process
    )
    one.write_text(
        f"{profile.HEADER}\n" + row("bwd", 1, 7, 0, 0, "1", "h:2:1") + row("extra", 2, 1, 5, 9, "1", "h:2:1")
    )
    return [zero, one]


def test_merge_keeps_one_line_a_blob_with_the_most_that_any_rank_says(
    lazyck: Lazyck, ranks: list[Path], tmp_path: Path
) -> None:
    merged = tmp_path / "merged"
    done = lazyck("profile", "merge", *ranks, "-o", merged)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    rows = [line.split("\t") for line in merged.read_text().splitlines()[1:]]
    assert [r[:8] for r in rows] == [
        ["bwd", "libfmha", "gfx942", "1", "7", "60.0", "1000000", "0-1"],
        ["fwd", "libfmha", "gfx942", "1", "512", "21.5", "900000", "0"],
        ["extra", "libfmha", "gfx942", "2", "1", "5.0", "9", "1"],
    ]
    assert all(len(r) == profile.COLUMNS for r in rows)


def test_merge_does_not_depend_on_the_order_and_merges_merged_ones(
    lazyck: Lazyck, ranks: list[Path], tmp_path: Path
) -> None:
    forward, backward = lazyck("profile", "merge", *ranks), lazyck("profile", "merge", *reversed(ranks))
    assert forward.stdout == backward.stdout != ""
    (tmp_path / "merged").write_text(forward.stdout)
    assert lazyck("profile", "merge", tmp_path / "merged", *ranks).stdout == forward.stdout


def test_archs_and_libraries_have_lines_of_their_own(tmp_path: Path) -> None:
    text = row("b", 1, archs="gfx942") + row("b", 2, archs="gfx950") + row("b", 3, library="other")
    merged = profile.merge(profile.decode(text.encode(), "p").uses)
    assert [(u.library, u.archs) for u in merged] == [("libfmha", "gfx942"), ("libfmha", "gfx950"), ("other", "gfx942")]


def test_a_plain_list_of_names_is_a_profile(lazyck: Lazyck, tmp_path: Path) -> None:
    (tmp_path / "names").write_text("# mine\nsecond\nfirst\tgfx942\n\nlast")
    uses = profile.read_profile(tmp_path / "names").uses
    assert [(u.blob, u.library, u.order) for u in uses] == [("second", "", 1), ("first", "", 2), ("last", "", 3)]
    done = lazyck("profile", "merge", tmp_path / "names")
    assert [line.split("\t")[0] for line in done.stdout.splitlines()[1:]] == ["second", "first", "last"]


def test_a_merged_profile_is_a_blob_list_of_each_of_its_libraries(tmp_path: Path) -> None:
    text = row("a", 1, library="libone") + row("b", 2, library="libtwo") + row("c", 3, library="libone")
    (tmp_path / "p").write_bytes(profile.encode(profile.merge(profile.decode(text.encode(), "p").uses)))
    assert read_list(str(tmp_path / "p"), None, "libone") == ["a", "c"]  # type: ignore[arg-type]
    assert read_list(str(tmp_path / "p"), None) == ["a", "b", "c"]  # type: ignore[arg-type]


def test_lines_that_a_crash_cut_short_are_passed_over_and_counted(
    lazyck: Lazyck, ranks: list[Path], tmp_path: Path
) -> None:
    whole = ranks[0].read_text()
    ranks[0].write_text(whole + row("new", 3)[:-4])
    done = lazyck("profile", "show", ranks[0])
    assert done.returncode == 0
    assert f"{ranks[0]}: skipped 1 line cut short" in done.stderr
    assert "new" not in done.stdout
    ranks[0].write_text(whole + row("new", 3)[:-30] + row("other", 4) + row("late", 5))  # rows after a torn one
    assert profile.read_profile(ranks[0]).torn == 1
    assert {u.blob for u in profile.read_profile(ranks[0]).uses} == {"fwd", "bwd", "late"}
    assert read_list(str(ranks[0]), None, "libfmha") == ["fwd", "bwd", "fwd", "late"]  # type: ignore[arg-type]


def test_no_cut_makes_a_profile_unreadable(ranks: list[Path]) -> None:
    data = ranks[0].read_bytes() + b"\xff\xfe" + row("n", 9).encode()
    whole = {u.blob for u in profile.decode(data, "p").uses}
    for end in range(len(profile.HEADER) + 1, len(data)):
        cut = profile.decode(data[:end], "p")
        assert {u.blob for u in cut.uses} <= whole
    r = random.Random(1)
    for _ in range(300):
        noise = bytes(r.choice(b"\t\t\t\n09az#.-,\xff") for _ in range(200))
        uses = profile.merge(profile.decode(noise, "p").uses)
        assert profile.merge(profile.decode(profile.encode(uses), "p").uses) == uses


def test_show_prints_a_table_with_totals_and_json(lazyck: Lazyck, ranks: list[Path]) -> None:
    done = lazyck("profile", "show", *ranks)
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["order", "calls", "compile", "memory", "ranks", "blob", "archs", "library"]
    assert lines[1].split() == ["1", "7", "60.0", "s", "977", "MB", "0-1", "bwd", "gfx942", "libfmha"]
    assert lines[-1] == "3 blobs of 1 library, 520 calls, 86.5 s of compiles, largest 977 MB, 2 ranks"
    as_json = json.loads(lazyck("profile", "show", *ranks, "--json").stdout)
    assert as_json["blobs"][0]["ranks"] == [0, 1]
    assert as_json["totals"] == {
        "blobs": 3, "libraries": 1, "calls": 520, "seconds": 86.5, "peak_kib": 1_000_000, "ranks": 2,
    }  # fmt: skip


def test_diff_says_what_only_one_used_and_ends_with_status_1(lazyck: Lazyck, ranks: list[Path], tmp_path: Path) -> None:
    done = lazyck("profile", "diff", *ranks)
    assert (done.returncode, done.stdout) == (1, "< fwd\tlibfmha\n> extra\tlibfmha\n")
    same = lazyck("profile", "diff", ranks[0], ranks[0])
    assert (same.returncode, same.stdout) == (0, "")
    (tmp_path / "names").write_text("bwd\nfwd\n")  # a bare name may be of any library
    assert lazyck("profile", "diff", ranks[0], tmp_path / "names").returncode == 0
    assert lazyck("profile", "diff", tmp_path / "names", ranks[0]).returncode == 0


def manifest_file(path: Path, *names: str) -> Path:
    recipe = Recipe("host", "id", "", (), ("c++",), ("c++",), ())
    blobs = tuple(BlobRecord(n, f"lib/tree/{n}.cpp", 0, "0" * 64, (f"s_{n}",)) for n in names)
    path.write_bytes(encode(Manifest("libfmha", "libfmha.so", "", "", (), (recipe,), blobs)))
    return path


def test_prune_drops_what_the_library_does_not_have_any_more(lazyck: Lazyck, ranks: list[Path], tmp_path: Path) -> None:
    manifest = manifest_file(tmp_path / "manifest", "fwd", "extra")
    ranks[0].write_text(ranks[0].read_text() + row("foreign", 1, library="libother") + "torn\t")
    ranks[0].chmod(0o640)
    link = tmp_path / "link"
    link.symlink_to(ranks[0])
    done = lazyck("profile", "prune", "--manifest", manifest, link, ranks[1])
    assert done.returncode == 0, done.stderr
    assert f"{link}: dropped 1 blob\n" in done.stderr
    assert [u.blob for u in profile.read_profile(ranks[0]).uses] == ["fwd", "foreign"]
    assert [u.blob for u in profile.read_profile(ranks[1]).uses] == ["extra"]
    assert ranks[0].read_text().startswith(profile.HEADER)
    assert link.is_symlink()
    assert stat.S_IMODE(ranks[0].stat().st_mode) == 0o640


def test_prune_into_another_file_leaves_the_profile_alone(lazyck: Lazyck, ranks: list[Path], tmp_path: Path) -> None:
    manifest = manifest_file(tmp_path / "manifest", "bwd")
    (tmp_path / "names").write_text("# kept\nbwd.cpp\ngone\n")
    before = ranks[0].read_bytes()
    done = lazyck("profile", "prune", "--manifest", manifest, ranks[0], tmp_path / "names", "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert ranks[0].read_bytes() == before
    assert [u.blob for u in profile.read_profile(tmp_path / "out").uses] == ["bwd", "bwd.cpp"]


@pytest.mark.parametrize("verb", ["merge", "show"])
def test_a_file_that_is_no_profile_is_a_clear_error(lazyck: Lazyck, tmp_path: Path, verb: str) -> None:
    (tmp_path / "binary").write_bytes(b"\x7fELF\0\0")
    (tmp_path / "newer").write_text("# lazyck profile 2: blob\nfwd\n")
    for name, problem in (("binary", "not a profile"), ("newer", "version 2"), ("absent", "No such file")):
        done = lazyck("profile", verb, tmp_path / name)
        assert done.returncode == 1
        assert str(tmp_path / name) in done.stderr
        assert problem in done.stderr
        assert "Traceback" not in done.stderr


def test_names_that_would_colour_a_terminal_are_shown_as_text(lazyck: Lazyck, tmp_path: Path) -> None:
    (tmp_path / "p").write_text(row("a\x1b[31m", 1))
    for done in (lazyck("profile", "show", tmp_path / "p"), lazyck("profile", "diff", tmp_path / "p", "/dev/null")):
        assert "a\\x1b[31m" in done.stdout
        assert "\x1b" not in done.stdout


def test_huge_ranges_of_ranks_are_not_taken(tmp_path: Path) -> None:
    with pytest.raises(FormatError):
        profile.read_profile(tmp_path)
    line = row("b", 1, rank="0-99999999999")
    assert profile.decode((row("a", 1) + line).encode(), "p").torn == 1


def test_what_the_runtime_reads_of_a_merged_profile(lazyck: Lazyck, ranks: list[Path], tmp_path: Path) -> None:
    """The runtime's own decoder reads the merged profile: merging must not change what a prefetch
    does."""
    objects = compile_objects(private_directory(tools_dir(os.environ)) / OBJECTS, [HERE.cxx])
    objects = [o for o in objects if not o.stem.startswith("stub_")]  # only a library has stubs
    (tmp_path / "lazyck_abi.h").write_text(render_header())
    (tmp_path / "main.cpp").write_text(
        '#include <cstdio>\n#include "history/profile.h"\nint main(int, char** v) {\n'
        "  for (const auto& r : lazyck::rt::read_profile(v[1], v[2]))\n"
        '    std::printf("%s %u %lu %.1f %ld\\n", r.blob.c_str(), r.order, r.calls, r.seconds, r.peak_kib);\n}\n'
    )
    subprocess.run(
        ["g++", "-std=c++17", "-iquote", SOURCES, "-iquote", tmp_path, tmp_path / "main.cpp", *objects,
         "-o", tmp_path / "reader", *LINK_FLAGS], check=True,
    )  # fmt: skip
    merged = tmp_path / "merged"
    lazyck("profile", "merge", *ranks, "-o", merged)
    read = subprocess.run([tmp_path / "reader", merged, "libfmha"], capture_output=True, text=True, check=True).stdout
    assert read.splitlines() == ["bwd 1 7 60.0 1000000", "fwd 1 512 21.5 900000", "extra 2 1 5.0 9"]
