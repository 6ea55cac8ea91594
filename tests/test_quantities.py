"""Tests that the commands, the runtime and the report's page agree on how users write and read
sizes, ages and times."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from bundles import make_bundle
from shown_sizes import SHOWN
from support import HERE, REPOSITORY

from _lazyck.errors import UsageError
from _lazyck.quantities import parse_age, parse_size, show_seconds, show_size, size_of
from _lazyck.runtime.objects import SOURCES

# Each text has its size in bytes, or None if it is no size.
SIZES: dict[str, int | None] = {
    "0": 0, "0.0": 0, "0G": 0, "7B": 7, "7 b": 7, "1.5k": 1536, "800000K": 800_000 << 10, "512MB": 512 << 20,
    "20G": 20 << 30, "20GB": 20 << 30, "20GiB": 20 << 30, "20 GB": 20 << 30, "20gib": 20 << 30, ".5G": 512 << 20,
    "1.G": 1 << 30, "2TiB": 2 << 40, "900T": 900 << 40, "1.1G": 1181116006, "4095.9B": 4095,
    "": None, "G": None, "20": None, "0x1G": None, "-1G": None, "1e9": None, "1X": None, "1GG": None, "1iB": None,
    "1Gi": None, "1 000K": None, " 1G": None, "1G ": None, "0 ": None, "1  G": None, "1.2.3G": None, "١G": None,
    "1000T": None, "9" * 400 + "G": None, "20 gigs": None, "1\u212a": None,
}  # fmt: skip


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a program that reads sizes (`read TEXT…`) or writes them (`show N…`) as the runtime
    does."""
    where = tmp_path_factory.mktemp("sizes")
    (where / "main.cpp").write_text(
        '#include <cstdio>\n#include <cstdlib>\n#include <string>\n#include "base/numbers.h"\n'
        "int main(int argc, char** argv) {\n"
        "    for (int i = 2; i < argc; ++i) {\n"
        '        const auto size = argv[1] == std::string("read") ? lazyck::rt::size_in(argv[i]) : std::nullopt;\n'
        '        if (argv[1] == std::string("show")) std::puts(lazyck::rt::size_text(std::atof(argv[i])).c_str());\n'
        '        else if (size) std::printf("%.0f\\n", static_cast<double>(static_cast<long>(*size)));\n'
        '        else std::puts("None");\n'
        "    }\n"
        "}\n"
    )
    sources = [str(where / "main.cpp"), str(SOURCES / "base/numbers.cpp")]
    argv = [HERE.cxx, "-std=c++17", "-iquote", str(SOURCES), *sources, "-o", str(where / "ask")]
    subprocess.run(argv, check=True)
    return where / "ask"


def test_commands_and_the_runtime_read_the_same_sizes(asked: Path) -> None:
    said = subprocess.run([str(asked), "read", *SIZES], capture_output=True, text=True, check=True).stdout.splitlines()
    assert dict(zip(SIZES, said, strict=True)) == {text: str(size) for text, size in SIZES.items()}
    assert {text: size_of(text) for text in SIZES} == SIZES
    assert parse_size("1.5GB", "x") == 3 << 29
    with pytest.raises(UsageError, match="x '20': not a size"):
        parse_size("20", "x")


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
    files = [p for p in (REPOSITORY / "_lazyck").rglob("*") if p.suffix in (".py", ".js", ".cpp", ".h", ".c")]
    found = {p.name for p in files for line in p.read_text().splitlines() if unit.search(line.partition("//")[0])}
    assert found == {"numbers.cpp", "page.js"}


def test_ages_and_times_as_users_write_and_read_them() -> None:
    ages = {"90s": 90, "5m": 300, "12h": 43200, "30d": 2592000, "2w": 1209600, "1.5H": 5400}
    assert {text: parse_age(text, "x") for text in ages} == ages
    for bad in ("", "-1d", "30", "1e9", "1X", "1 000", "9" * 40):
        with pytest.raises(UsageError):
            parse_age(bad, "x")
    assert [show_seconds(s) for s in (0.44, 99.9, 100, 3599, 7500, 273600)] == [
        "0.4 s", "99.9 s", "1 m 40 s", "59 m 59 s", "2 h 05 m", "3 d 04 h",
    ]  # fmt: skip
