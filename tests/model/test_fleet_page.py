"""Test that the tables of docs/scale.md are those that the simulation makes, from costs that other
pages measured."""

import json
import math
import sys

import pytest
from support import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "benchmarks"))

import fleet_simulation as simulation
from fleet_model import Result
from fleet_tables import HOSTS, MORE_HOSTS, TABLES, Table
from fleet_units import MEASURED, READING, SAME_TEXT

PAGE = simulation.PAGE.read_text()
by_table = pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)


def shown(name: str) -> str:
    return simulation.part_of_page(PAGE, name)[1]


@by_table
def test_the_page_shows_the_recorded_results(table: Table) -> None:
    assert shown(table.name) == table.render(simulation.read_record()[table.name])


@by_table
def test_the_simulation_still_makes_the_recorded_results(table: Table) -> None:
    """The row of each table with the fewest requests is made again."""
    recorded = simulation.read_record()[table.name]
    assert list(recorded) == list(table.rows)
    label = min(recorded, key=lambda label: recorded[label][0].requests or math.inf)
    assert recorded[label][0] == table.simulate(label, recorded[label][0].hosts)


def test_each_question_is_answered_for_100_to_10000_hosts() -> None:
    for table in TABLES:
        for label, results in simulation.read_record()[table.name].items():
            hosts = [r.hosts for r in results]
            asked = set(MORE_HOSTS) if table.finds_limit else set(table.hosts)
            assert set(hosts) <= asked and (table.finds_limit or hosts == list(table.hosts)), (table.name, label)
    assert {"cold", "misses", "upgrade", "service"} <= {table.name for table in TABLES if table.hosts == HOSTS}


def test_nothing_bad_was_loaded_in_any_row() -> None:
    rows = [r for found in simulation.read_record().values() for results in found.values() for r in results]
    assert rows and not any(r.mixed for r in rows)


def test_real_runs_stand_beside_the_model() -> None:
    runs = json.loads(simulation.REAL_RECORD.read_text())
    assert shown(simulation.REAL) == simulation.compare(runs)
    assert all(run["errors"] == 0 for run in runs)


def test_costs_are_those_that_other_pages_measured() -> None:
    kernels = (REPOSITORY / "docs/kernels.md").read_text()
    for cost in MEASURED:
        row = f"| {cost.source} | {cost.kernels} | {cost.whole} | {cost.host} ("
        (line,) = (line for line in kernels.splitlines() if line.startswith(row))
        assert line.split("|")[5].split()[0] == f"{cost.kernel}"
    keys = (REPOSITORY / "docs/key.md").read_text().replace("\n", " ")
    assert pytest.approx(11 / 18) == SAME_TEXT and "| 11 of 18 |" in keys
    assert pytest.approx(1 - (0.36 + 0.49) / 2) == READING and "saves 0.36 to 0.49 of its CPU time" in keys


def test_a_table_goes_between_its_marks_and_leaves_the_rest() -> None:
    text = "a\n<!-- fleet x: begin -->\n\nold\n\n<!-- fleet x: end -->\nb\n"
    assert simulation.with_table(text, "x", "new") == text.replace("old", "new")
    with pytest.raises(ValueError, match="no place for the table y"):
        simulation.with_table(text, "y", "new")


def test_a_limit_is_the_first_number_of_hosts_at_which_the_last_rank_is_late() -> None:
    class Fake(Table):
        def simulate(self, label: str, hosts: int) -> Result:
            return Result(hosts=hosts, last=hosts / 100 if label == "slow" else 1.0)

    table = Fake("t", "what", {"slow": None, "fast": None}, {}, finds_limit=True)  # type: ignore[dict-item]
    found = table.run((100, 500, 1_000, 2_000, 5_000))
    assert [r.hosts for r in found["slow"]] == [100, 2_000]
    assert [r.hosts for r in found["fast"]] == [100, 5_000]
    assert table.render(found).splitlines()[2:] == ["| 2,000 | slow |", "| not at 5,000 | fast |"]
