"""Test what must hold in every simulated fleet (benchmarks/fleet_model.py), whatever the figures
are."""

import sys
from dataclasses import replace
from functools import partial

import pytest
from support import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "benchmarks"))

import simpy
from fleet_link import Link
from fleet_model import Fleet, Late, Parameters, Policy, Result, World, units_of
from fleet_service import ServiceParameters
from fleet_tier import POISON, Spoiled
from fleet_units import Call, Source, blobs, kernel_calls, sources, upgraded

P = Parameters()
LEASES = Policy("leases", parallel=8)
IN_TURN = Policy("leases, in turn")
ALONE = Policy("no remote", has_remote=False)
LIBRARY = sources(3)
CALLS = kernel_calls(LIBRARY, 2)
UNITS = units_of(CALLS)
SEEDS = (1, 2, 3)


def simulated(
    policy: Policy, world: World, hosts: int = 12, seed: int = P.seed, start: float = P.start
) -> tuple[Fleet, Result]:
    fleet = Fleet(policy, hosts, replace(P, seed=seed, start=start), world)
    return fleet, fleet.run()


@pytest.mark.parametrize("start", (0.0, 2.0), ids=("at once", "within 2 s"))
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("policy", (LEASES, IN_TURN), ids=lambda p: p.name)
def test_with_leases_a_fleet_compiles_each_unit_once(policy: Policy, seed: int, start: float) -> None:
    fleet, result = simulated(policy, World(CALLS), seed=seed, start=start)
    assert fleet.compiled == dict.fromkeys((unit.key for unit in UNITS), 1)
    assert (result.compiles, result.taken_over) == (len(UNITS), 0)
    without, _ = simulated(replace(policy, has_leases=False), World(CALLS), seed=seed, start=start)
    assert without.compiled.total() > 2 * len(UNITS)


def test_a_first_call_by_kernel_compiles_its_host_unit_and_its_kernel() -> None:
    fleet, _ = simulated(ALONE, World(CALLS), hosts=1)
    assert set(fleet.compiled) == {f"source{i}.{part}@1" for i in range(3) for part in ("host", "kernel0", "kernel1")}


def test_after_five_kernels_of_a_file_a_host_compiles_the_rest_in_the_background() -> None:
    calls = kernel_calls(LIBRARY[:1], 5)
    fleet, result = simulated(ALONE, World(calls), hosts=1)
    assert (fleet.compiled["source0.whole@1"], result.background) == (1, 1)
    assert result.last < sum(unit.seconds for unit in units_of(calls)) * 1.1, "nobody waits for it"
    _, prefetched = simulated(replace(ALONE, parallel=8), World(calls), hosts=1)
    assert prefetched.background == 1
    fetched, _ = simulated(IN_TURN, World(calls, tuple(units_of(calls))), hosts=2)
    assert not fetched.compiled, "kernels that were fetched do not count"
    new = upgraded(calls, changed=1.0, same_text=1.0, seed=1)
    _, taken = simulated(IN_TURN, World(calls, tuple(units_of(calls)), upgraded=new), hosts=2)
    assert (taken.taken_over, taken.background) == (6, 0), "nor do those of the same text"


def test_a_whole_file_in_the_remote_answers_for_its_kernels() -> None:
    fleet, _ = simulated(IN_TURN, World(CALLS, tuple(source.whole for source in LIBRARY)))
    assert not fleet.compiled
    assert {key for key, _, _ in fleet.loaded} == {source.whole.key for source in LIBRARY}


@pytest.mark.parametrize("lasting", (False, True), ids=("once", "for ever"))
@pytest.mark.parametrize("near", (False, True), ids=("shared", "mirror"))
@pytest.mark.parametrize("unsigned", (False, True), ids=("wrong contents", "unsigned"))
@pytest.mark.parametrize("share", (0.3, 1.0))
def test_no_entry_of_a_poisoned_tier_is_loaded(share: float, unsigned: bool, near: bool, lasting: bool) -> None:
    world = World(CALLS, tuple(UNITS), spoiled=Spoiled(share, unsigned, lasting), has_near_tier=near)
    fleet, result = simulated(LEASES, world, hosts=3)
    assert result.refused > 0
    assert result.mixed == 0 and POISON not in {got for _, _, got in fleet.loaded}
    assert {key for key, _, _ in fleet.loaded} >= {unit.key for unit in UNITS}, "every host has all entries"


def test_unsigned_entries_are_replaced_by_the_first_host_and_cost_one_compile_each() -> None:
    fleet, result = simulated(LEASES, World(CALLS, tuple(UNITS), spoiled=Spoiled(1.0)))
    assert fleet.compiled == dict.fromkeys((unit.key for unit in UNITS), 1)
    assert {fleet.tiers[-1].read(unit).text for unit in UNITS} == {"1"}  # type: ignore[union-attr]
    near, near_result = simulated(LEASES, World(CALLS, tuple(UNITS), spoiled=Spoiled(1.0), has_near_tier=True))
    assert not near.compiled, "the next tier has them"
    assert near_result.refused == 12 * len(UNITS) and result.refused > 0


def test_a_near_tier_with_wrong_contents_does_not_hide_the_right_ones_of_the_next() -> None:
    world = World(CALLS, tuple(UNITS), spoiled=Spoiled(1.0, unsigned=False), has_near_tier=True)
    fleet, _ = simulated(LEASES, world, hosts=1)
    assert not fleet.compiled, "the next tier has them"


def test_wrong_contents_of_the_shared_tier_cost_one_compile_each() -> None:
    fleet, _ = simulated(LEASES, World(CALLS, tuple(UNITS), spoiled=Spoiled(1.0, unsigned=False)))
    assert fleet.compiled == dict.fromkeys((unit.key for unit in UNITS), 1)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("changed", "same_text"), ((1.0, 0.0), (1.0, 0.5), (0.5, 0.0), (0.0, 0.0)))
def test_a_half_upgraded_fleet_shares_no_entry_between_builds(changed: float, same_text: float, seed: int) -> None:
    new = upgraded(CALLS, changed, same_text, seed)
    fleet, result = simulated(LEASES, World(CALLS, tuple(UNITS), upgraded=new), seed=seed)
    assert all(wanted == got for _, wanted, got in fleet.loaded)
    assert result.mixed == 0
    changed_units = [unit for unit in units_of(new) if unit.digest == "2"]
    must = {unit.key for unit in changed_units if unit.text == "2"}
    assert fleet.compiled == dict.fromkeys(must, 1), "what has new code, once"
    assert result.taken_over == len(changed_units) - len(must)
    assert {u.key for u in UNITS} | {u.key for u in changed_units} <= {key for key, _, _ in fleet.loaded}


def test_the_profile_decides_what_is_late() -> None:
    pool = tuple(Call(source, k) for source in LIBRARY for k in (2, 3, 4))
    fleet, result = simulated(LEASES, World(CALLS, late=Late(pool, 4, 300.0)))
    assert result.late_calls == 12 * 4
    assert 4 <= result.late_compiles <= len(pool)
    assert set(fleet.compiled.values()) == {1}
    assert 0 < result.longest_late_wait < 60
    covered = World((*CALLS, *pool), late=Late(pool, 4, 300.0))
    _, none = simulated(LEASES, covered)
    assert (none.late_compiles, none.longest_late_wait) == (0, 0.0)


@pytest.mark.parametrize("seed", SEEDS)
def test_more_workers_make_hosts_ready_sooner_until_the_longest_compile(seed: int) -> None:
    longest = max(unit.seconds for unit in UNITS)
    times = []
    for workers in (1, 2, 3, 9, 20):
        _, result = simulated(LEASES, World(CALLS, service=ServiceParameters(workers, places=1)), seed=seed)
        times.append(result.last)
        assert result.compiles == len(UNITS)
    assert times[0] > sum(unit.seconds for unit in UNITS) * 0.9, "one place compiles one after the other"
    assert times[0] > times[1] > times[2] > longest * 0.9
    assert all(time >= longest * 0.9 for time in times)
    assert abs(times[-1] - times[-2]) < 0.1 * longest, "more workers than compiles do not help"


def test_a_service_executes_an_action_once_and_sends_each_worker_the_inputs_once() -> None:
    service = ServiceParameters(workers=2, places=4, inputs=1e6)
    _, result = simulated(ALONE, World(CALLS, service=service))
    assert result.compiles == len(UNITS), "although every host asks"
    entries = sum(unit.size for unit in UNITS)
    assert result.cas_bytes == pytest.approx(3 * 1e6 + entries + 12 * entries)  # once up, to each worker; up, to hosts


def test_without_a_service_nobody_is_ready_and_afterwards_all_are() -> None:
    _, result = simulated(LEASES, World(CALLS, service=ServiceParameters(8, up_at=100.0)))
    assert result.failed > 0
    assert 100 < result.median <= result.last < 100 + 2 * P.down + max(unit.seconds for unit in UNITS) * 1.2
    assert result.compiles == len(UNITS)


def test_a_host_that_stands_for_several_loads_the_remote_as_they_do() -> None:
    world = World(blobs([10.0, 8.0, 6.0, 4.0]))
    for policy in (LEASES, replace(LEASES, has_leases=False), ALONE):
        one = Fleet(policy, 120, replace(P, simulated=120), world).run()
        few = Fleet(policy, 120, replace(P, simulated=30), world).run()
        assert few.compiles == pytest.approx(one.compiles, rel=0.1)
        assert few.last == pytest.approx(one.last, rel=0.2)
        assert few.requests == pytest.approx(one.requests, rel=0.1)
        assert few.bytes == pytest.approx(one.bytes, rel=0.005 if policy is LEASES else 0.1)


def test_transfers_share_a_link_equally_and_none_is_faster_than_its_host() -> None:
    env = simpy.Environment()
    counts: dict[int, float] = {}
    ends: dict[str, float] = {}

    def end(name: str, _: object) -> None:
        ends[name] = env.now

    link = Link(env, 100.0, 40.0, counts)
    for name, size, weight in (("one", 100.0, 1), ("three", 100.0, 3)):
        link.transfer(size, weight)[1].callbacks.append(partial(end, name))
    env.run()
    assert ends == {"one": 4.0, "three": 4.0}  # 100 bytes a second for four hosts
    assert sum(counts.values()) == pytest.approx(400.0)
    link.transfer(80.0)
    env.run()
    assert env.now == pytest.approx(6.0)  # alone, at the host's 40


def test_a_blob_is_one_entry() -> None:
    (call,) = blobs([5.0])
    assert call == Call(Source(call.source.whole))
    assert units_of([call, call]) == [call.source.whole]
