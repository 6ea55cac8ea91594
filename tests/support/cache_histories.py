"""Runs `lazyck cache`, and writes the history that a cache has of its events."""

import json
from collections.abc import Mapping
from pathlib import Path

from support import Lazyck


def said(lazyck: Lazyck, *words: str | Path, status: int = 0, env: Mapping[str, str] | None = None) -> str:
    done = lazyck("cache", *words, env=env)
    assert done.returncode == status, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


def write_history(cache: Path, *lines: dict[str, object] | str) -> None:
    (cache / ".history").mkdir(parents=True, exist_ok=True)
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    (cache / ".history" / "host").write_text(text)


def event(kind: str, blob: str, s: float, what: str = "", **more: object) -> dict[str, object]:
    return {"t": 1.7e9, "s": s, "kind": kind, "library": "lib", "blob": blob, "arch": "gfx942", "what": what, **more}
