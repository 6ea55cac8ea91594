"""Tests that the commands, the runtime and the report's page agree on how users write and read
sizes, ages and times."""

import os
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest
from support import HERE, REPOSITORY
from support.bundles import make_bundle
from support.shown_sizes import SHOWN

from lazyck.errors import UsageError
from lazyck.formats.c_header import render_header
from lazyck.prebuild.reapi.action import compile_seconds
from lazyck.quantities import parse_age, parse_size, seconds_of, show_seconds, show_size, size_of
from lazyck.runtime.builder import SOURCES
from lazyck.settings.environment import seconds
from lazyck.settings.variables import BY_NAME

# Each text has its size in bytes, or None if it is no size.
SIZES: dict[str, int | None] = {
    "0": 0, "0.0": 0, "0G": 0, "7B": 7, "7 b": 7, "1.5k": 1536, "800000K": 800_000 << 10, "512MB": 512 << 20,
    "20G": 20 << 30, "20GB": 20 << 30, "20GiB": 20 << 30, "20 GB": 20 << 30, "20gib": 20 << 30, ".5G": 512 << 20,
    "1.G": 1 << 30, "2TiB": 2 << 40, "900T": 900 << 40, "1.1G": 1181116006, "4095.9B": 4095,
    "": None, "G": None, "20": None, "0x1G": None, "-1G": None, "1e9": None, "1X": None, "1GG": None, "1iB": None,
    "1Gi": None, "1 000K": None, " 1G": None, "1G ": None, "0 ": None, "1  G": None, "1.2.3G": None, "١G": None,
    "1000T": None, "9" * 400 + "G": None, "20 gigs": None, "1\u212a": None,
}  # fmt: skip
# Each text has its number of seconds, or None if it is none.
SECONDS: dict[str, float | None] = {
    "0": 0, "90": 90, "0.5": 0.5, ".5": 0.5, "5.": 5, "007": 7, "12345678": 12345678, "1000000000": 1e9,
    "": None, ".": None, "1000000001": None, "9" * 400: None, "-1": None, "+1": None, " 1": None, "1 ": None,
    "10s": None, "1e3": None, "inf": None, "nan": None, "1_000": None, "1.2.3": None, "0,5": None, "١": None,
}  # fmt: skip


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a program that reads sizes (`read TEXT…`) or seconds (`seconds TEXT…`), or writes sizes
    (`show N…`), as the runtime does."""
    where = tmp_path_factory.mktemp("sizes")
    (where / "lazyck_abi.h").write_text(render_header())
    (where / "main.cpp").write_text(
        '#include <cstdio>\n#include <cstdlib>\n#include <string>\n#include "base/text.h"\n'
        "using namespace lazyck::rt;\n"
        "int main(int argc, char** argv) {\n"
        "    const std::string verb = argv[1];\n"
        "    for (int i = 2; i < argc; ++i) {\n"
        '        if (verb == "show") {\n'
        "            std::puts(size_text(std::atof(argv[i])).c_str());\n"
        "            continue;\n"
        "        }\n"
        '        const auto value = verb == "read" ? size_in(argv[i]) : seconds_in(argv[i]);\n'
        "        const double whole = value ? static_cast<double>(static_cast<long>(*value)) : 0;\n"
        '        if (value) std::printf("%.1f\\n", verb == "read" ? whole : *value);\n'
        '        else std::puts("None");\n'
        "    }\n"
        "}\n"
    )
    sources = [str(where / "main.cpp"), *(str(SOURCES / "base" / name) for name in ("hash.cpp", "text.cpp"))]
    argv = [HERE.cxx, "-std=c++17", "-iquote", str(SOURCES), "-I", str(where), *sources, "-o", str(where / "ask")]
    subprocess.run(argv, check=True)
    return where / "ask"


def read_by(asked: Path, verb: str, texts: Iterable[str]) -> dict[str, float | None]:
    """Return what the runtime reads in each text."""
    said = subprocess.run([str(asked), verb, *texts], capture_output=True, text=True, check=True).stdout.splitlines()
    return {text: None if line == "None" else float(line) for text, line in zip(texts, said, strict=True)}


def test_commands_and_the_runtime_read_the_same_sizes(asked: Path) -> None:
    assert read_by(asked, "read", SIZES) == SIZES
    assert {text: size_of(text) for text in SIZES} == SIZES
    assert parse_size("1.5GB", "x") == 3 << 29
    with pytest.raises(UsageError, match="x '20': not a size"):
        parse_size("20", "x")


def test_commands_and_the_runtime_read_the_same_times(asked: Path) -> None:
    assert read_by(asked, "seconds", SECONDS) == SECONDS
    assert {text: seconds_of(text) for text in SECONDS} == SECONDS
    for text, value in SECONDS.items():  # wherever a command reads one
        env = {name: text for name in ("LAZYCK_REMOTE_TIMEOUT", "LAZYCK_COMPILE_TIMEOUT")}
        assert compile_seconds(env) == (value or 0.0)
        assert (BY_NAME["LAZYCK_LOCK_TIMEOUT"].problem(text) == "") == (value is not None or not text)
        try:
            assert seconds(env, "LAZYCK_REMOTE_TIMEOUT", 7) == (value if text else 7)
        except UsageError:
            assert not value


def test_commands_and_the_runtime_show_sizes_alike_and_read_what_they_show(asked: Path) -> None:
    argv = [str(asked), "show", *map(str, SHOWN)]
    assert subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines() == [*SHOWN.values()]
    assert {n: show_size(n) for n in SHOWN} == SHOWN
    for n, text in SHOWN.items():
        assert n == 0 or n >= 1000 << 40 or abs((size_of(text) or 0) / n - 1) < 0.06


def test_the_runtime_takes_a_size_from_the_environment_in_kib_rounded_up(tmp_path: Path, rt_tool: Path) -> None:
    bundle = make_bundle(tmp_path / "b", ["one", "two", "three"])
    for blob, size, kib in (("one", "1.5 GiB", 3 << 19), ("two", "1B", 1), ("three", "0", 0)):
        env = {**os.environ, "LAZYCK_MEM_PER_JOB": size}
        subprocess.run([rt_tool, "compile", "--quiet", "--from", bundle.file, blob], env=env, check=True)
        (slot,) = (tmp_path / "lazyck-cache" / ".slots").glob("*/slot-0")
        assert slot.read_text().split()[0] == str(kib)


def test_sizes_are_put_into_words_in_one_place_of_each_language() -> None:
    unit = re.compile(r"""(?<!"")[}"] ?[kKMGT]i?B\b""")  # a unit behind a value: "{n} MB", + " MB"
    files = [p for p in (REPOSITORY / "lazyck").rglob("*") if p.suffix in (".py", ".js", ".cpp", ".h", ".c")]
    found = {p.name for p in files for line in p.read_text().splitlines() if unit.search(line.partition("//")[0])}
    assert found == {"text.cpp", "page.js"}


def test_ages_and_times_as_users_write_and_read_them() -> None:
    ages = {"90s": 90, "5m": 300, "12h": 43200, "30d": 2592000, "2w": 1209600, "1.5H": 5400}
    assert {text: parse_age(text, "x") for text in ages} == ages
    for bad in ("", "-1d", "30", "1e9", "1X", "1 000", "9" * 40):
        with pytest.raises(UsageError):
            parse_age(bad, "x")
    assert [show_seconds(s) for s in (0.44, 99.9, 100, 3599, 7500, 273600)] == [
        "0.4 s", "99.9 s", "1 m 40 s", "59 m 59 s", "2 h 05 m", "3 d 04 h",
    ]  # fmt: skip
