"""Record the claims of a stage. Each claim is written at once, so that a run that is cut short
still counts."""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

SEEN, MISSED, BLIND = "seen", "not so", "not seen"


@dataclass(frozen=True)
class Claim:
    """Describes one thing that was checked. It is as claimed (`SEEN`), is not (`MISSED`), or cannot
    be checked here (`BLIND`). `detail` has figures or the reason."""

    text: str
    state: str
    detail: str = ""


class Report:
    """Writes a stage's claims to a file, one JSON object a line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._begun = time.monotonic()

    def saw(self, text: str, detail: object = "") -> None:
        """Record that a thing is as claimed."""
        self._write(Claim(text, SEEN, str(detail)))

    def missed(self, text: str, detail: object = "") -> None:
        """Record that a thing is not as claimed."""
        self._write(Claim(text, MISSED, str(detail)))

    def blind(self, text: str, why: str) -> None:
        """Record that a thing cannot be checked here, and why."""
        self._write(Claim(text, BLIND, why))

    def check(self, text: str, is_so: bool, detail: object = "") -> bool:
        """Record whether a thing is as claimed, and return `is_so`."""
        (self.saw if is_so else self.missed)(text, detail)
        return is_so

    def _write(self, claim: Claim) -> None:
        with self._path.open("a") as out:
            out.write(json.dumps(asdict(claim)) + "\n")
        seconds = time.monotonic() - self._begun
        detail = f" ({claim.detail.splitlines()[0][:200]})" if claim.detail else ""
        print(f"{self._path.stem}: {seconds:.0f} s: {claim.state}: {claim.text}{detail}", flush=True)


def read(path: Path) -> list[Claim]:
    """Return the claims that were written so far. A line without its newline is still being
    written, and is left out."""
    lines = path.read_text().splitlines(keepends=True) if path.is_file() else []
    return [Claim(**json.loads(line)) for line in lines if line.endswith("\n")]
