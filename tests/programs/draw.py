"""Draws programs: which traits there are, and hypothesis' strategies of them."""

import contextlib
import fnmatch
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from programs.known import KNOWN
from programs.options import compiler_options, has_embed, linker_options
from programs.program import CHANGES, COMPILERS, LOADS, ROWS, Program, Trait

MOST_TRAITS, MOST_BLOBS = 4, 3
# Aspects of which the whole program has one, or none.
WHOLE = {"load": "load/needed", "changes": "", "compiler": "compiler/g++"}


@dataclass(frozen=True)
class Choice:
    """Says what may be drawn: traits of the chosen aspects without those that are `left_out`."""

    aspects: tuple[str, ...] = ()  # all if empty
    left_out: tuple[str, ...] = tuple(row.pattern for row in KNOWN)
    compilers: tuple[str, ...] = tuple(COMPILERS)

    def offers(self, name: str) -> bool:
        chosen = not self.aspects or name.partition("/")[0] in self.aspects
        return chosen and not any(fnmatch.fnmatchcase(name, pattern) for pattern in self.left_out)

    def of(self, names: Collection[str]) -> list[str]:
        return [name for name in names if self.offers(name)]


def aspects() -> list[str]:
    """Return all names of aspects."""
    return sorted({name.partition("/")[0] for name in ROWS} | {"options", "linker-options", *WHOLE})


def traits(choice: Choice, compiler: str) -> dict[str, list[str]]:
    """Return the names of the traits that may be drawn, by aspect. The order is fixed, and what
    comes first is simpler."""
    rows = [name for name in ROWS if not name.startswith("data/embed") or has_embed(compiler)]
    names = [*rows, *(f"linker-options/{option}" for option in linker_options())]
    names += [f"options/{option}" for option in compiler_options(compiler)]
    found: dict[str, list[str]] = {}
    for name in choice.of(names):
        found.setdefault(name.partition("/")[0], []).append(name)
    return found


def programs(choice: Choice) -> st.SearchStrategy[Program]:
    """Return the strategy of all programs that `choice` offers. Each trait is of an aspect that is
    drawn first, because compilers have hundreds of options."""
    compilers = [name for name in choice.compilers if name == "g++" or choice.offers(f"compiler/{name}")]
    weighted = [*["g++"] * 6, *compilers]  # clang takes three times as long
    return st.sampled_from(weighted).flatmap(lambda compiler: _programs(choice, compiler))


def _programs(choice: Choice, compiler: str) -> st.SearchStrategy[Program]:
    by_aspect = traits(choice, compiler)
    ways = [st.sampled_from(names) for names in by_aspect.values()]
    one = st.builds(Trait, st.one_of(ways) if ways else st.nothing(), st.sampled_from(range(MOST_BLOBS)))
    most = MOST_TRAITS if ways else 0
    several = st.sampled_from([0, *[min(1, most)] * 9]).flatmap(
        lambda least: st.lists(one, min_size=least, max_size=most, unique_by=lambda each: each.name)
    )
    loads, changes = choice.of(LOADS), choice.of(CHANGES)
    # Half of the programs are loaded as most are, and half are not changed.
    load = st.one_of(st.just(WHOLE["load"]), st.sampled_from(loads or [WHOLE["load"]]))
    change = st.one_of(st.just(WHOLE["changes"]), st.sampled_from(changes or [WHOLE["changes"]]))
    blobs = st.sampled_from(range(1, MOST_BLOBS + 1))
    return st.builds(Program, st.just(compiler), blobs, several.map(tuple), load, change)


def drawn(choice: Choice, number: int, count: int) -> Sequence[Program]:
    """Return the `count` first programs that hypothesis draws with the seed `number`, each once."""
    found: dict[Program, None] = {}

    @_settings(count, Phase.generate)
    @seed(number)
    @given(programs(choice))
    def collect(program: Program) -> None:
        found[program] = None

    collect()
    return list(found)


def shrunk(choice: Choice, number: int, count: int, program: Program, fails: "Fails") -> Program:
    """Return the simplest program that hypothesis finds for which `fails` is true, beginning with
    one that `drawn` has returned for the same arguments."""
    best = program
    begun = False

    @_settings(count, Phase.generate, Phase.shrink)
    @seed(number)
    @given(programs(choice))
    def search(candidate: Program) -> None:
        nonlocal begun, best
        begun = begun or candidate == program
        if begun and fails(candidate):
            best = candidate
            raise _FoundError

    with contextlib.suppress(_FoundError):
        search()
    # Hypothesis may have used up its tries before it came to what can just be left out.
    while simpler := next((one for one in _simpler(best) if fails.also(one)), None):
        best = simpler
    return best


def _simpler(program: Program) -> Iterator[Program]:
    """Yield the programs with one thing less."""
    plain = Program()
    for i in range(len(program.traits)):
        yield replace(program, traits=program.traits[:i] + program.traits[i + 1 :])
    for name in ("change", "load", "blobs", "compiler"):
        if getattr(program, name) != getattr(plain, name):
            yield replace(program, **{name: getattr(plain, name)})


class _FoundError(Exception):
    """Says that a candidate still fails."""


class Fails:
    """Answers whether a program fails. Each is run once, at most `budget` of them; those beyond are
    said not to fail, so that the search ends."""

    def __init__(self, program: Program, run: Callable[[Program], bool], budget: int) -> None:
        self._answers = {program: True}
        self._run, self._budget = run, budget

    def __call__(self, program: Program) -> bool:
        if program not in self._answers:
            if self._budget == 0:
                return False
            self._budget -= 1
        return self.also(program)

    def also(self, program: Program) -> bool:
        """Answer beyond the budget."""
        if program not in self._answers:
            self._answers[program] = self._run(program)
        return self._answers[program]


def _settings(count: int, *phases: Phase) -> settings:
    return settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=phases,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
