"""Checks what a Python caller is told if a blob of an extension module does not compile."""

import json
import re
import subprocess
from pathlib import Path

_CODE = """
import json
{before}
import {module}, lazyck
said = {{}}
try:
    {bad}
except RuntimeError as e:
    said["call"] = str(e)
try:
    lazyck.load({module}.__file__).prefetch(["{blob}"]).wait()
except lazyck.CompileError as e:
    said["api"] = str(e)
print(json.dumps(said))
print({good})
"""


def calls_of(module: str, *, bad: str, blob: str, good: str, before: str = "") -> str:
    """Return Python code that calls `bad`, requests its `blob` by lazyck's own interface, and
    prints the result of `good`."""
    return _CODE.format(module=module, bad=bad, blob=blob, good=good, before=before)


def check_failure(done: subprocess.CompletedProcess[str], blob: str, error: str, good: str) -> None:
    """Check that the call raised RuntimeError, and the interface `lazyck.CompileError`.

    Both must have the runtime's whole message: the blob, the compiler's `error`, its log, and a
    command that reproduces the error. The module's other calls must work.
    """
    assert done.returncode == 0, done.stderr
    told, result = done.stdout.splitlines()
    assert result == good
    said = json.loads(told)
    assert said["call"] == said["api"]
    message = said["call"]
    assert f"cannot compile blob '{blob}'" in message
    assert error in message
    log = re.search(r"^  log: (.*)$", message, re.M)
    command = re.search(r"^  to reproduce: (.*)$", message, re.M)
    assert log and command, message
    assert error in Path(log[1]).read_text()
    again = subprocess.run(["sh", "-c", command[1]], capture_output=True, text=True)
    assert again.returncode != 0
    assert error in again.stdout + again.stderr
