"""The workers of a cluster: which are there, which may work for this run, and which are refused, with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lazyck.manifest import Manifest
from lazyck.prebuild.farm.orders import Report, Visit
from lazyck.prebuild.farm.worker import visit
from lazyck.runtime.build import source_digest
from lazyck.visible import visible

_VISIT_SECONDS = 900  # a worker may have to compile lazyck-rt first


@dataclass
class Member:
    """A worker that may work, how many compiles it takes at a time, and how many it has."""

    address: str
    host: str
    places: int
    busy: int = 0


@dataclass
class Crew:
    """Keeps account of them. `used` are the recipes that the run needs: what else a manifest has does not matter."""

    client: Any
    asked: Visit
    manifest: Manifest
    used: frozenset[int]
    jobs: int | None
    say: Callable[[str], None]
    members: dict[str, Member] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    def look(self) -> list[str]:
        """See who has come, and ask them; the addresses of members that have gone."""
        threads: Mapping[str, int] = self.client.nthreads()
        gone = [a for a in self.members if a not in threads]
        for address in gone:
            del self.members[address]
        new = [a for a in threads if a not in self.members and a not in self.refused]
        if new:
            self._ask(new, threads)
        return gone

    def _ask(self, addresses: Sequence[str], threads: Mapping[str, int]) -> None:
        answers = self.client.run(visit, self.asked, workers=list(addresses), on_error="return")
        for address in addresses:
            answer = answers.get(address)
            if answer is None:
                continue  # it has gone meanwhile
            problem = self._problem(answer)
            if problem:
                self.refused[address] = problem
                host = f" ({visible(answer.host)})" if isinstance(answer, Report) else ""
                self.say(f"refused worker {address}{host}: {problem}")
            else:
                places = self.jobs or max(1, threads[address])
                self.members[address] = Member(address, answer.host, places)

    def _problem(self, answer: object) -> str:
        if isinstance(answer, ModuleNotFoundError | AttributeError | ImportError):
            return f"it cannot run this lazyck's code ({answer}): install the same lazyck[farm] there"
        if not isinstance(answer, Report):
            return visible(f"it does not answer: {answer!r}"[:300])
        if answer.problem:
            return visible(answer.problem)
        if answer.runtime != source_digest():
            return "it has another version of lazyck"
        for i in sorted(self.used):
            recipe = self.manifest.recipes[i]
            if i in answer.problems:
                return visible(answer.problems[i])
            if answer.identities.get(i) != recipe.toolchain_id:
                return visible(
                    f"its {recipe.toolchain} toolchain is {answer.identities.get(i)},"
                    f" and the library's {recipe.toolchain_id}"
                )
        return ""

    @property
    def places(self) -> int:
        """How many compiles can run at the same time."""
        return sum(m.places for m in self.members.values())

    def free(self) -> Iterable[Member]:
        """Members with a place to give, those with most first."""
        found = [m for m in self.members.values() if m.busy < m.places]
        return sorted(found, key=lambda m: (m.busy - m.places, m.address))
