"""Tests that small generated programs behave as ahead of time, and that the generator would see a
difference: `run.py` is the command that does this for hours."""

import fnmatch
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import REPOSITORY

from programs.draw import Choice, Fails, drawn, shrunk, traits
from programs.known import KNOWN
from programs.options import compiler_options, linker_options
from programs.program import CHANGES, COMPILERS, LOADS, ROWS, Program, Trait, plant, write
from programs.run import PER_ROUND, Counts, Finding, find, write_case
from programs.workshop import SEEN, Difference, Outcome, Workshop

SEED, PROGRAMS = 48, 16


def tamper(lazy: Path) -> None:
    """Edit the headers of a lazy copy: one that a blob includes returns another number."""
    for header in lazy.rglob("h*.h"):
        header.write_text(header.read_text().replace("return 10", "return 70"))


@pytest.mark.parametrize("number", range(SEED, SEED + 4))
def test_generated_programs_behave_as_ahead_of_time(number: int, tmp_path: Path) -> None:
    choice = Choice()
    workshop = Workshop(tmp_path / "shop", choice.left_out)
    programs = drawn(choice, number, PROGRAMS)
    outcomes = [o for i in range(0, len(programs), 8) for o in workshop.try_all(programs[i : i + 8])]
    workshop.close()
    assert not [(o.program, o.differences) for o in outcomes if o.differences]
    ran = [o for o in outcomes if not o.uninteresting]
    assert len(ran) > len(programs) / 2, [o.uninteresting for o in outcomes]
    assert sum(o.lazy > 0 for o in ran) > len(ran) / 2, [o.eager for o in ran]


def test_a_broken_lazy_library_is_found_and_shrunk_to_a_case_that_fails(tmp_path: Path) -> None:
    choice = Choice(aspects=("headers", "changes"), compilers=("g++",))
    tampered = {name for name, row in ROWS.items() if "inc%/h%.h" in row.files}
    first = next(p for p in drawn(choice, SEED, PER_ROUND) if len(p.traits) > 2 and tampered & {*p.names()})
    workshop = Workshop(tmp_path / "shop", choice.left_out, tamper)
    outcome, equal = workshop.try_all([first, Program()])
    assert [d.kind for d in outcome.differences] == ["cold: output"]
    assert equal == Outcome(Program(), lazy=1)
    finding = find(choice, SEED, first, outcome.differences[0], workshop)
    workshop.close()
    simplest = finding.program
    assert finding.is_repeatable and (simplest.blobs, len(simplest.traits), simplest.change) == (1, 1, "")
    assert finding.covers(simplest, outcome.differences[0]) and not finding.covers(Program(), outcome.differences[0])
    write_case(finding, tmp_path / "case")
    real = tmp_path / "lazyck"
    real.write_text(f'#!/bin/sh\nPYTHONPATH={REPOSITORY} exec {sys.executable} -m lazyck "$@"\n')
    broken = tmp_path / "broken"
    broken.write_text(f"#!/bin/sh\nfind . -name 'h*.h' | xargs sed -i 's/return 10/return 70/'\nexec {real} \"$@\"\n")
    said = {}
    for command in (real, broken):
        command.chmod(0o755)
        env = {**os.environ, "LAZYCK": str(command)}
        done = subprocess.run([tmp_path / "case" / "case"], env=env, capture_output=True, text=True)
        said[command] = done.stdout.partition(":")[0], done.returncode
    assert said == {real: ("PASS", 0), broken: ("FAIL", 1)}


def test_what_does_not_matter_is_left_out_even_without_tries_left() -> None:
    program = next(p for p in drawn(Choice(), SEED, PER_ROUND) if len(p.traits) > 2 and len(p.names()) > 4)
    name = program.traits[1].name
    fails = Fails(program, lambda candidate: name in candidate.names(), budget=0)
    assert shrunk(Choice(), SEED, PER_ROUND, program, fails).names() == (name,)


def test_a_difference_that_is_gone_alone_is_reported_as_such(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path / "shop")
    difference = Difference("cold", "output", "1", "2")
    finding = find(Choice(), SEED, Program(), difference, workshop)
    workshop.close()
    assert finding == Finding(Program(), "output", difference, Program(), is_repeatable=False)


def test_what_does_not_build_ahead_of_time_is_uninteresting(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path / "shop")
    wrong = Program(traits=(Trait("options/--no-such-option"),))
    crashes = Program(traits=(Trait("options/-DLATER=*(int*)0"),))
    outcomes = workshop.try_all([wrong, crashes])
    workshop.close()
    assert [o.uninteresting for o in outcomes] == ["does not build ahead of time", "does not run ahead of time"]
    counts = Counts()
    for outcome in outcomes:
        counts.add(outcome)
    assert counts.lines(60)[:2] == [
        "0 programs ran, 0% with a lazy blob; 0 a minute",
        "2 of 2 were uninteresting: does not build ahead of time 1, does not run ahead of time 1",
    ]


def test_what_each_file_has_itself_may_be_missing_and_an_ifunc_of_lld_is_a_function(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path / "shop")
    implicit = Program(traits=(Trait("templates/implicit"),))
    chosen = Program(traits=(Trait("symbols/ifunc"), Trait("linker/lld")))
    assert [o.differences for o in workshop.try_all([implicit, chosen])] == [(), ()]
    workshop.close()


def test_equal_seeds_draw_equal_programs_with_every_aspect(tmp_path: Path) -> None:
    choice = Choice(left_out=())
    once = drawn(choice, SEED, 200)
    assert list(once) == list(drawn(choice, SEED, 200)) != list(drawn(choice, SEED + 1, 200))
    seen = {name.partition("/")[0] for program in once for name in program.names()}
    assert seen == {*traits(choice, "g++"), "load", "changes", "compiler"}
    for way in ("one", "two"):
        write(plant(once[-1], "p0"), tmp_path / way)
    assert subprocess.run(["diff", "-r", "one", "two"], cwd=tmp_path).returncode == 0


def test_options_are_those_that_the_tools_list() -> None:
    assert {"-Os", "-fstack-usage", "-march=native"} <= {*compiler_options("g++")}
    assert {"-ffast-math", "-ftime-trace"} <= {*compiler_options("clang++-19")}
    assert {"-z now", "--as-needed", "-Bsymbolic"} <= {*linker_options()}


def test_known_differences_name_traits_that_there_are() -> None:
    names = [*ROWS, *LOADS, *CHANGES, *(f"seen/{what}" for what in SEEN), *(f"compiler/{name}" for name in COMPILERS)]
    names += [f"options/{option}" for compiler in COMPILERS for option in compiler_options(compiler)]
    names += [f"linker-options/{option}" for option in linker_options()]
    for row in KNOWN:
        assert fnmatch.filter(names, row.pattern), row
        assert row.reason and row.issue in (48, 49), row
