"""Keep track of a cluster's workers: which exist, which may work for this run, and which are
refused, with the reason."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lazyck.errors import FormatError
from lazyck.formats.manifest import Manifest
from lazyck.prebuild.farm.guard import describe
from lazyck.prebuild.farm.messages import (
    LARGEST_ANSWER,
    CompileOrder,
    T,
    WorkerQuery,
    WorkerReport,
    decode_message,
    encode_message,
)
from lazyck.prebuild.farm.worker import answer_query
from lazyck.runtime.builder import source_digest
from lazyck.visible import visible

_GATHER_SECONDS = 30  # results are small; if its worker is gone, one never comes
_VISIT_SECONDS = 900  # a worker may have to compile lazyck-rt first
_MOST_THREADS = 4096  # the limit for what the scheduler says about a worker


@dataclass
class PooledWorker:
    """A worker that may work: how many compiles it takes at a time, how many it has, and the groups
    whose precompiled preamble it has."""

    address: str
    host: str
    threads: int
    busy: int = 0
    preambles: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class _Asked:
    """A worker that was asked and has not answered yet."""

    future: Any
    threads: int
    since: float


def read_answer(future: Any, kind: type[T]) -> T | Exception:
    """Return the answer in a future that has ended, or what is wrong with it, for example that its
    worker is gone."""
    try:
        return decode_message(kind, future.result(timeout=_GATHER_SECONDS), LARGEST_ANSWER)
    except Exception as e:
        return e


@dataclass
class WorkerPool:
    """The workers of a run. `used` are the recipes that the run needs; other recipes of the
    manifest do not matter."""

    client: Any
    asked: WorkerQuery
    manifest: Manifest
    used: frozenset[int]
    jobs: int | None
    say: Callable[[str], None]
    members: dict[str, PooledWorker] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    asking: dict[str, _Asked] = field(default_factory=dict)

    def look(self) -> list[str]:
        """Ask the workers that are new, and return the addresses of members that have gone."""
        threads: Mapping[str, int] = self.client.nthreads()
        gone = [a for a in self.members if a not in threads]
        for address in gone:
            del self.members[address]
        self.asking = {a: asked for a, asked in self.asking.items() if a in threads}
        for address in threads:
            if address not in self.members and address not in self.refused and address not in self.asking:
                future = self.ask(answer_query, self.asked, f"lazyck-visit-{self.asked.run}-{address}", address)
                self.asking[address] = _Asked(future, threads[address], time.monotonic())
        return gone

    def ask(
        self, function: Callable[[bytes], bytes], message: WorkerQuery | CompileOrder, name: str, address: str
    ) -> Any:
        """Have a worker answer a message, and return the future, which has this name."""
        return self.client.submit(function, encode_message(message), key=name, workers=[address], pure=False)

    def hear(self) -> None:
        """Process the answers that have come so far."""
        for address, asked in list(self.asking.items()):
            answer: WorkerReport | Exception = TimeoutError(f"nothing within {_VISIT_SECONDS} s")
            if asked.future.status in ("finished", "error"):
                answer = read_answer(asked.future, WorkerReport)
            elif time.monotonic() - asked.since < _VISIT_SECONDS:
                continue
            del self.asking[address]
            problem = self._problem(answer)
            host = visible(answer.host) if isinstance(answer, WorkerReport) else ""
            if problem:
                self.refused[address] = problem
                self.say(f"refused worker {visible(address)}{f' ({host})' if host else ''}: {problem}")
            else:
                threads = min(max(1, asked.threads), _MOST_THREADS)
                self.members[address] = PooledWorker(address, host, self.jobs or threads)

    def _problem(self, answer: WorkerReport | Exception) -> str:
        if isinstance(answer, FormatError):
            return f"it does not answer as this lazyck does ({visible(answer.message)})"
        if isinstance(answer, Exception):
            why = describe(answer)
            if why.startswith(("ModuleNotFoundError", "AttributeError", "ImportError")):
                return f"it cannot run this lazyck's code ({why}): install the same lazyck[farm] there"
            return f"it does not answer: {why}"
        if answer.problem:
            return visible(answer.problem)
        if answer.runtime != source_digest():
            return "it runs another version of lazyck"
        for i in sorted(self.used):
            recipe = self.manifest.recipes[i]
            if i in answer.problems:
                return visible(answer.problems[i])
            if answer.identities.get(i) != recipe.toolchain_id:
                return visible(
                    f"its {recipe.toolchain} toolchain is {answer.identities.get(i)},"
                    f" but the library's is {recipe.toolchain_id}"
                )
        return ""

    def freest(self) -> PooledWorker | None:
        """Return the member with most free threads, or None if there are none."""
        free = (m for m in self.members.values() if m.busy < m.threads)
        return min(free, key=lambda m: (m.busy - m.threads, m.address), default=None)
