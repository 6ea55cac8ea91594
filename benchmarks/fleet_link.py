"""Model a network link that transfers share equally, for simulations in SimPy."""

import heapq

import simpy


class Link:
    """Shares the bytes of one direction equally among transfers, of which none is faster than
    `host_rate`. A transfer stands for `weight` equal ones of as many hosts.

    `self._given` is what each transfer under way has received since the beginning, so that a
    transfer ends when `self._given` has grown by its size. `counts` gets the bytes of each second.
    """

    def __init__(self, env: simpy.Environment, rate: float, host_rate: float, counts: dict[int, float]) -> None:
        self._env, self._full, self._host_rate, self._counts = env, rate, host_rate, counts
        self._given = 0.0
        self._at = 0.0
        self._ends: list[tuple[float, int, int, simpy.Event]] = []
        self._left: set[int] = set()  # transfers that were given up
        self._running = 0  # the weights of those under way
        self._number = 0
        self._turn = 0

    def transfer(self, size: float, weight: int = 1) -> tuple[int, simpy.Event]:
        """Begin a transfer; return its number and the event of its end."""
        self._advance()
        self._number += 1
        done = self._env.event()
        heapq.heappush(self._ends, (self._given + size, self._number, weight, done))
        self._running += weight
        self._arm()
        return self._number, done

    def give_up(self, number: int) -> None:
        """Stop a transfer."""
        self._advance()
        self._left.add(number)
        self._running -= next(weight for _, n, weight, _ in self._ends if n == number)
        self._arm()

    def _rate(self) -> float:
        return min(self._host_rate, self._full / max(1, self._running))

    def _advance(self) -> None:
        now = self._env.now
        if self._running and now > self._at:
            rate = self._rate()
            self._given += rate * (now - self._at)
            moment = self._at
            while moment < now:
                until = min(now, int(moment) + 1.0)
                self._counts[int(moment)] = self._counts.get(int(moment), 0.0) + rate * self._running * (until - moment)
                moment = until
        self._at = now

    def _arm(self) -> None:
        """Schedule the next end of a transfer; earlier schedules become void."""
        while self._ends and self._ends[0][1] in self._left:
            self._left.discard(heapq.heappop(self._ends)[1])
        self._turn += 1
        if self._ends:
            wait = max(0.0, (self._ends[0][0] - self._given) / self._rate())
            turn = self._turn
            self._env.timeout(wait).callbacks.append(lambda _: self._end(turn))

    def _end(self, turn: int) -> None:
        if turn != self._turn:
            return
        self._advance()
        first = True  # the transfer whose end this is; rounding may leave it a little short
        while self._ends and (first or self._ends[0][0] <= self._given + 1e-6):
            first = False
            _, number, weight, done = heapq.heappop(self._ends)
            if number in self._left:
                self._left.discard(number)
            else:
                self._running -= weight
                done.succeed()
        self._arm()
