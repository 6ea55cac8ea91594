"""A Python that has imported lazyck already: a program to call in place of the interpreter.

Imports take most of the time of a small lazy link. The program (`warm_python.c`) has a server fork
a process with its words and streams, and is what the shims start for a link, too.
"""

import atexit
import gc
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from pathlib import Path
from typing import NoReturn

from support import REPOSITORY, wait_until
from support.command_server import _import_most


class WarmPython:
    """Starts the server. `program` is to be called as `python -m lazyck …` or `python -I -c …`."""

    def __init__(self, place: Path) -> None:
        place.mkdir(parents=True, exist_ok=True)
        self.program, path = place / "python", place / "socket"
        source = Path(__file__).with_suffix(".c")
        path.unlink(missing_ok=True)
        subprocess.run(["cc", "-O1", f'-DSOCKET="{path}"', source, "-o", self.program], check=True)
        code = "from programs.warm_python import serve; serve()"
        env = {**os.environ, "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'tests'}"}
        self._server = subprocess.Popen(
            [sys.executable, "-c", code, path, self.program], env=env, stdin=subprocess.PIPE
        )
        wait_until(path.exists, process=self._server)

    def close(self) -> None:
        self._server.communicate()


def serve() -> NoReturn:
    """Fork a process for each request, until the one that has started this one is gone."""
    _import_most()
    gc.disable()
    gc.freeze()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(sys.argv[1])
    sys.executable = sys.argv[2]
    listener.listen(64)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while listener in select.select([listener, sys.stdin], [], [])[0]:
        client, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            _answer(client)
        client.close()
    sys.exit(0)


def _answer(client: socket.socket) -> NoReturn:
    """Run what the client asks for in another process, and tell the client its status."""
    _, streams, _, _ = socket.recv_fds(client, 1, 3)
    said = b""
    while part := client.recv(1 << 16):
        said += part
    texts = [os.fsdecode(text) for text in said.split(b"\0")[:-1]]
    count = int(texts[0])
    words, directory, variables = texts[2 : count + 1], texts[count + 1], texts[count + 2 :]
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if (pid := os.fork()) == 0:
        client.close()
        for i, stream in enumerate(streams):
            os.dup2(stream, i)
            os.close(stream)
        os.chdir(directory)
        os.environ.clear()
        os.environ.update(variable.partition("=")[::2] for variable in variables)
        _leave(_become(words))
    for stream in streams:
        os.close(stream)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    client.sendall(bytes([status % 256]))
    os._exit(0)


def _become(words: list[str]) -> int:
    """Do what the interpreter would do with `words`, and return its status."""
    try:
        if words[:2] == ["-I", "-c"]:
            sys.argv = ["-c", *words[3:]]
            exec(words[2], {"__name__": "__main__"})
            return 0
        assert words[:2] == ["-m", "lazyck"], words
        sys.argv = [str(REPOSITORY / "lazyck" / "__main__.py"), *words[2:]]
        from lazyck.cli import main

        main()
    except SystemExit as e:
        if isinstance(e.code, str):
            print(e.code, file=sys.stderr)
        return e.code if isinstance(e.code, int) else e.code is not None
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _leave(status: int) -> NoReturn:
    """End as the interpreter does, but without its last step: to free every object would copy all
    the memory that is shared with the server."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
