"""Types the tutorial into a fresh Debian, as a newcomer would, and puts the transcript into it.

    PYTHONPATH=tests:. python tests/support/newcomer.py DIR [--page docs/tutorial.md]  (as root)

DIR becomes a Debian 12 of `debootstrap --variant=minbase`. Only what the tutorial asks for is
installed there. Mirrors, proxies and certificates of this machine are not taken over: if the Debian
needs some, put them into DIR beforehand. Everything that the page shows as typed is typed there, in
order. If a command fails, the script ends with status 1.
"""

import argparse
import contextlib
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from support import REPOSITORY
from support.doc_pages import PAGES, outputs_of, read_page, script_of

BEGIN, END = "<!-- transcript: begin -->", "<!-- transcript: end -->"
PACKAGES = ("git", "python3-venv", "g++", "make")
INSTALL = f"apt-get update -q && apt-get install -q -y --no-install-recommends {' '.join(PACKAGES)}"
_LONGEST = 12  # the most lines of an output that are shown


def debian(root: Path) -> None:
    """Make a Debian in `root` unless there is one."""
    if not (root / "usr/bin/apt").exists():
        subprocess.run(["debootstrap", "--variant=minbase", "bookworm", str(root)], check=True, stdout=sys.stderr)
    for name in ("resolv.conf", "hosts"):
        with contextlib.suppress(OSError):
            shutil.copy(Path("/etc") / name, root / "etc" / name)


@contextlib.contextmanager
def mounted(root: Path) -> Iterator[None]:
    """Mount /proc and /dev in the Debian for the duration of the `with` block."""
    places = (("proc", "proc"), ("devtmpfs", "dev"))
    for kind, place in places:
        subprocess.run(["mount", "-t", kind, kind, str(root / place)], check=True)
    try:
        yield
    finally:
        for _, place in reversed(places):
            subprocess.run(["umount", str(root / place)], check=True)


def typed(root: Path, line: str) -> tuple[int, str]:
    """Run a shell line as root in the Debian, and return its status and output."""
    env = {"HOME": "/root", "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "TERM": "dumb"}
    argv = ["chroot", str(root), "bash", "-lc", f"cd && {line}"]
    done = subprocess.run(
        argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    return done.returncode, done.stdout


def shown(text: str) -> list[str]:
    """Return the lines of an output for the transcript. A long output loses its middle, and the
    home becomes `~`."""
    lines = [line.rstrip() for line in text.replace("/root", "~").strip("\n").split("\n")] if text.strip() else []
    if len(lines) <= _LONGEST:
        return lines
    return [*lines[: _LONGEST // 2], f"… {len(lines) - _LONGEST} lines …", *lines[-_LONGEST // 2 :]]


def transcript(root: Path, page: str) -> tuple[bool, str]:
    """Type the page's commands. Return whether all succeeded, and the transcript: commands and
    outputs with the minutes and seconds since the beginning."""
    began = time.monotonic()
    lines: list[str] = []

    def tell(command: str, output: str, at: float) -> None:
        stamp = f"[{int(at) // 60}:{int(at) % 60:02}]"
        first, *more = command.rstrip("\n").split("\n")
        lines.extend([f"{stamp} $ {first}", *(f"{'':>{len(stamp)}} > {line}" for line in more), *shown(output)])

    status, said = typed(root, INSTALL)
    tell(INSTALL, "\n".join(said.strip().split("\n")[-2:]), 0)
    if status != 0:
        return False, "\n".join(lines)
    checkout = root / "root/lazyck"
    shutil.rmtree(checkout, ignore_errors=True)
    checkout.mkdir()
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=REPOSITORY, check=True, stdout=subprocess.PIPE)
    subprocess.run(["tar", "-x", "-C", str(checkout)], input=archive.stdout, check=True)
    stage = root / "root/.shown"
    script, steps = script_of(read_page(page), stage, Path("/root/.shown"))
    script = re.sub(r"^(step\(\).*?%s)(.*?\"\$1\")", r'\1 %s\2 "$(date +%s)"', script, flags=re.MULTILINE)
    (stage / "script").write_text(script)
    since = time.time() - (time.monotonic() - began)
    status, said = typed(root, "bash /root/.shown/script")
    times = [float(t) - since for t in re.findall(r"^\x1elazyck-step \d+ (\d+)$", said, re.MULTILINE)]
    outputs = outputs_of(said)
    for step, output, at in zip(steps, outputs, times, strict=False):
        tell(step.command, output, at)
    is_whole = status == 0 and len(outputs) == len(steps) + 1
    lines.append(
        f"[{int(times[-1]) // 60}:{int(times[-1]) % 60:02}] done" if is_whole else f"ended with status {status}"
    )
    return is_whole, "\n".join(lines)


def main() -> None:
    """Run the script. The module's docstring describes it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("root", type=Path, metavar="DIR")
    parser.add_argument(
        "--page", default="docs/tutorial.md", choices=[name for name in PAGES if name.startswith("docs/")]
    )
    options = parser.parse_args()
    debian(options.root)
    with mounted(options.root):
        is_whole, text = transcript(options.root, options.page)
    print(text)
    file = PAGES[options.page]
    before, mark, rest = file.read_text().partition(BEGIN)
    if mark and is_whole:
        after = rest.partition(END)[2]
        file.write_text(f"{before}{BEGIN}\n\n```text\n{text}\n```\n\n{END}{after}")
    sys.exit(0 if is_whole else 1)


if __name__ == "__main__":
    main()
