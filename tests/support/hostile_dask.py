"""Makes a real worker or scheduler of dask hostile, as a preload: what it sends runs code where it
is unpickled.

HOSTILE says how. HOSTILE_MARKER names the file to which that code appends the command line of its
process.
"""

import os
import pickle
from typing import Any

from distributed import worker_state_machine
from distributed.comm.core import Comm
from distributed.core import Status
from distributed.protocol import pickle as dask_pickle
from distributed.protocol.serialize import Serialized, ToPickle, serialize

from lazyck.prebuild.farm import worker as farm_worker

HOW = os.environ["HOSTILE"]
CODE = f"import sys; open({os.environ['HOSTILE_MARKER']!r}, 'a').write(' '.join(sys.orig_argv) + chr(10))"


class Evil(Exception):
    """Runs CODE when it is unpickled."""

    def __reduce__(self) -> Any:
        return exec, (CODE,)


EVIL = pickle.dumps(Evil())  # dask changes the pickling of exceptions that a task raises


def evil_data(keys: Any) -> dict[str, Any]:
    """Return results that are pickled, no matter which serializers were requested."""
    return {"status": "OK", "data": {k: Serialized(*serialize(Evil(), serializers=["pickle"])) for k in keys}}


def _raise_evil(*_: object) -> None:
    raise Evil


class _TypesThatRun:
    """Stands in for the module `pickle` where a worker names the type of a result."""

    def __getattr__(self, name: str) -> Any:
        return (lambda *_: EVIL) if name == "dumps" else getattr(pickle, name)


async def _answer_with_evil(*_: object, keys: Any = (), **__: object) -> dict[str, Any]:
    return evil_data(keys)


def make_worker_hostile(own: Any) -> None:
    """Change a worker before it registers with the scheduler."""
    if HOW == "error":
        for name in ("visit", "make", "answer_visit", "answer_order"):
            setattr(farm_worker, name, _raise_evil)
        honest = dask_pickle.dumps
        dask_pickle.dumps = lambda x, **named: EVIL if isinstance(x, Evil) else honest(x, **named)
    elif HOW == "result":
        own.handlers["get_data"] = _answer_with_evil
    elif HOW == "type":
        worker_state_machine.pickle = _TypesThatRun()
    elif HOW == "warning":
        original = own.__class__.execute

        async def execute(self: Any, *words: Any, **named: Any) -> Any:
            self.log_event("warn", {"message": EVIL, "category": EVIL})
            return await original(self, *words, **named)

        own.__class__.execute = execute
    elif HOW == "broadcast":

        async def run(*_: object, **__: object) -> dict[str, Any]:
            return {"status": "error", "exception": EVIL, "traceback": EVIL}

        own.handlers["run"] = run


def make_scheduler_hostile(own: Any) -> None:
    """Change a scheduler before it listens."""
    if HOW == "handshake":
        honest = Comm.handshake_info
        Comm.handshake_info = lambda self: {**honest(self), "odd": ToPickle(Evil())}
    elif HOW == "reply":

        def identity(*_: object, **__: object) -> dict[str, Any]:
            return {"odd": ToPickle(Evil()), **own.identity()}

        own.handlers["identity"] = identity
    elif HOW == "stream":
        add = own.add_client

        async def add_client(comm: Any, client: str, **named: Any) -> None:
            own.loop.call_later(0.5, lambda: own.client_comms[client].send({"op": "odd", "odd": ToPickle(Evil())}))
            await add(comm, client, **named)

        own.handlers["register-client"] = add_client
    elif HOW == "gather":
        own.handlers["gather"] = _answer_with_evil
    elif HOW == "terminal":
        add = own.add_client

        async def add_client(comm: Any, client: str, **named: Any) -> None:
            for topic in ("print", "warn"):
                event = (0.0, "\x1b]0;owned\x07")
                message = {"op": "event", "topic": topic, "event": event}
                own.loop.call_later(0.5, lambda m=message: own.client_comms[client].send(m))
            await add(comm, client, **named)

        own.handlers["register-client"] = add_client


def dask_setup(own: Any) -> None:
    """Make this worker or scheduler hostile. dask calls this function."""
    assert own.status in (Status.init, Status.created, Status.running)
    (make_worker_hostile if hasattr(own, "nanny") else make_scheduler_hostile)(own)
