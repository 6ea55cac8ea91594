"""Read what a project's tests left: one word for each test, whatever the test driver."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

from world.project import Results

PASSED, FAILED, SKIPPED, ABSENT = "passed", "failed", "skipped", "absent"
COMMAND = "(the command's status)"

Tests = dict[str, str]


def read_results(results: Results, places: tuple[Path, ...], output: str, status: int) -> Tests:
    """Return a word for each test by its name, and one for the command's own exit status."""
    tests = {COMMAND: PASSED if status == 0 else f"{FAILED} ({status})"}
    for place in places:
        for pattern in results.junit:
            for path in sorted(place.glob(pattern)):
                tests.update(_junit(path))
        for pattern in results.trs:
            for path in sorted(place.glob(pattern)):
                tests[str(path.relative_to(place).with_suffix(""))] = _trs(path.read_text())
    if results.lines:
        for match in re.finditer(results.lines, output, re.MULTILINE):
            tests[match["name"]] = PASSED if match["passed"] else FAILED
    return tests


def _junit(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the tests of a file in JUnit's format, as ctest, meson, pytest and googletest write
    it."""
    try:
        root = ElementTree.parse(path).getroot()
    except ElementTree.ParseError:
        yield f"{path.stem}: its results", FAILED  # the program ended while it wrote them
        return
    for case in root.iter("testcase"):
        word = PASSED
        if case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
            word = SKIPPED
        if case.find("failure") is not None or case.find("error") is not None or case.get("status") == "fail":
            word = FAILED
        yield f"{path.stem}: {case.get('classname', '')}.{case.get('name')}", word


def _trs(text: str) -> str:
    """Return the word for one of automake's tests."""
    found = re.search(r"^:global-test-result: (\S+)|^:test-result: (\S+)", text, re.MULTILINE)
    word = (found[1] or found[2]) if found else "ERROR"
    return {"PASS": PASSED, "XFAIL": PASSED, "SKIP": SKIPPED}.get(word, FAILED)


def differences(
    ahead: Mapping[str, str], lazy: Mapping[str, str], varying: Mapping[str, Sequence[str]] | None = None
) -> list[str]:
    """Describe the tests whose result differs from the one ahead of time, or that ran in only one
    of both builds. `varying` holds results that tests had in further runs ahead of time."""
    return [
        f"{name}: {ahead.get(name, ABSENT)} ahead of time, {lazy.get(name, ABSENT)} lazily"
        for name in dict.fromkeys([*ahead, *lazy])
        if lazy.get(name, ABSENT) not in (ahead.get(name, ABSENT), *(varying or {}).get(name, ()))
    ]


def count(tests: Mapping[str, str]) -> str:
    """Say how many tests passed, failed and were skipped."""
    words = [word for name, word in tests.items() if name != COMMAND] or list(tests.values())
    failed = sum(word.startswith(FAILED) for word in words)
    skipped = words.count(SKIPPED)
    extra = [f"{failed} failed"] * bool(failed) + [f"{skipped} skipped"] * bool(skipped)
    return ", ".join([str(words.count(PASSED)), *extra])
