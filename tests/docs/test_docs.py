"""Tests that the documents name what exists, and that the references are complete."""

import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import click
import pytest
from support import REPOSITORY

import lazyck
from lazyck import abi, library
from lazyck.interceptor.reasons import SAYS
from lazyck.postbuild.reasons import ReasonKind
from lazyck.toolchains import ALL

README = (REPOSITORY / "README.md").read_text()
FOR_DEVELOPERS = {name: (REPOSITORY / name).read_text() for name in ("ARCHITECTURE.md", "CONTRIBUTING.md")}


def load_reference() -> ModuleType:
    """Load scripts/docs_reference.py, which belongs to no package."""
    spec = importlib.util.spec_from_file_location("docs_reference", REPOSITORY / "scripts" / "docs_reference.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look the module up there
    spec.loader.exec_module(module)
    return module


reference = load_reference()
DOCS = {p.name: p.read_text() for p in (REPOSITORY / "docs").glob("*.md")}


def test_the_readme_is_read_in_a_minute() -> None:
    lines = README.splitlines()
    assert len(lines) <= 60
    assert max(map(len, lines)) <= 100


def prose_of(page: str) -> Iterator[str]:
    """Yield the lines of a Markdown page that an author wraps: no tables, headings, code or
    generated parts."""
    fence = ""
    for line in re.sub(r"<!-- (\w+): begin -->.*?<!-- \1: end -->", "", page, flags=re.DOTALL).splitlines():
        if (mark := re.match(r"\s*(```+|~~~)", line)) and fence in ("", mark[1]):
            fence = "" if fence else mark[1]
        elif not fence and not re.match(r"    |\s*(\||#|<|!\[)", line):
            yield line


def test_prose_ends_at_100_columns() -> None:
    found = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True).stdout
    known = [Path(name) for name in found.splitlines() if (REPOSITORY / name).is_file()]
    for name in known or [p.relative_to(REPOSITORY) for p in REPOSITORY.glob("docs/*.md")]:
        text = (REPOSITORY / name).read_text(errors="replace")
        lines = list(prose_of(text)) if name.suffix == ".md" else []
        if name.suffix in (".c", ".h", ".cpp", ".hpp", ".cu", ".cuh", ".S", ".hip"):
            lines = re.findall(r"^[ \t]*(?://|/\*|\* ).*", text, re.MULTILINE)
        long = [line for line in lines if len(line) > 100 and " " in line.strip()]
        assert not long, f"{name}: {long[0]}"  # comments of Python are ruff's to judge (W505)


def test_the_figures_of_the_readme_are_the_measured_ones() -> None:
    measured = DOCS["projects.md"].partition("## Composable Kernel")[2]
    files, minutes, hours = re.findall(r"deferring (\d+) of|files: (\d+) s wall|: ([\d.]+) core-hours", measured)
    calls = dict(re.findall(r"\| fwd d128, (first|second) process \| ([\d.]+) \|", measured))
    text = " ".join(README.split())
    for claim in (
        f"{int(minutes[0]):,} generated files",
        f"cost {float(hours[2]):.0f} core-hours",
        f"one kernel's compile ({float(calls['first']):.0f} s)",
        f"of any later process {1000 * float(calls['second']):.0f} ms",
    ):
        assert claim in text, claim
    assert "in three minutes on two cores" in text and 150 <= int(files[1]) <= 200
    first = re.search(r"compiling the runtime with g\+\+, once per user \| ([\d.]+) s", DOCS["performance.md"])
    assert first is not None and f"[{float(first[1]):.0f} CPU seconds]" in text


def test_every_variable_of_the_table_is_one() -> None:
    known = {variable for name, variable in vars(abi).items() if name.startswith("ENV_")}
    rows = [line.split("|")[1] for line in DOCS["environment.md"].splitlines() if line.startswith("| `")]
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert listed == known


def test_the_runtime_reads_no_variable_by_its_text() -> None:
    for path in sorted((REPOSITORY / "lazyck" / "runtime" / "src").rglob("*.cpp")):
        assert not re.search(r'"LAZYCK_[A-Z_]+"', path.read_text()), path


def test_every_command_has_its_place_in_the_reference() -> None:
    marks = [tuple(m[1].split()[1:]) for m in reference.MARK.finditer(DOCS["cli.md"])]
    commands = [path for path, command in reference.commands() if not path or not isinstance(command, click.Group)]
    assert sorted(marks) == sorted(commands)
    headings = set(re.findall(r"^##+ (lazyck.*)$", DOCS["cli.md"], re.MULTILINE))
    assert {" ".join(("lazyck", *path)) for path in commands} <= headings


def test_the_reference_has_every_option_of_a_command() -> None:
    for path, command in reference.commands():
        text = reference.render_command(path)
        assert text.startswith(f"```text\n{' '.join(('lazyck', *path))}")
        for option in (o for p in command.params if isinstance(p, click.Option) for o in p.opts):
            assert option in text, (path, option)


def test_the_reference_has_every_declaration_of_the_c_interface() -> None:
    header = (reference.SOURCES / "lazyck.h").read_text()
    code = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
    declared = [name for d in reference.read_header(header) for name in d.names]
    assert set(declared) == {n for n in re.findall(r"\blazyck_\w+", code)}
    assert len(declared) == len(set(declared)) > 20
    assert all(d.comment for d in reference.read_header(header) if d.names != ("lazyck_job",))
    rendered = reference.expand(DOCS["c-api.md"])
    assert all(f"`{name}`" in rendered for name in declared)


def test_the_python_reference_is_of_all_that_the_package_offers() -> None:
    assert "::: lazyck\n" in DOCS["python-api.md"]
    own = {name for name, each in vars(library).items() if getattr(each, "__module__", "") == "lazyck"}
    assert own - {"_each"} == set(lazyck.__all__)
    assert sorted(lazyck.__all__) == lazyck.__all__
    for name in lazyck.__all__:
        assert getattr(lazyck, name).__doc__, name
    for owner in (lazyck.Library, lazyck.Prefetch):
        for name, member in vars(owner).items():
            assert name.startswith("_") or member.__doc__, name


def test_the_page_on_eager_sources_has_every_reason_with_its_advice() -> None:
    rows = [line for line in reference.expand(DOCS["eager.md"]).splitlines() if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == [kind.name for kind in ReasonKind]
    assert all(len(row.replace("\\|", "").split("|")) == 5 for row in rows)


def test_a_mark_that_means_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="nonsense"):
        reference.expand("<!-- generated: nonsense -->")


def test_links_out_of_the_documents_lead_to_their_place_on_the_site() -> None:
    assert reference.lead("[a](../SECURITY.md#x)", "cli.md") == "[a](repository/SECURITY.md#x)"
    assert reference.lead("[a](docs/limits.md)", "repository/README.md") == "[a](../limits.md)"
    assert reference.lead("[a](../../docs/cli.md)", "repository/examples/aiter/README.md") == "[a](../../../cli.md)"
    assert reference.lead("`[&](int x)` [a](key.md)", "cli.md") == "`[&](int x)` [a](key.md)"


def test_links_between_documents_lead_somewhere() -> None:
    top = {f"../{name}": text for name, text in {"README.md": README, **FOR_DEVELOPERS}.items()}
    for name, text in {**top, **DOCS}.items():
        here = REPOSITORY / "docs" / name
        for target in re.findall(r"\]\(([^)#]+)\)", text):
            if "://" not in target:
                assert (here.parent / target).exists(), f"{name}: {target}"


def test_files_that_developers_are_led_to_are_there() -> None:
    assert len(FOR_DEVELOPERS["ARCHITECTURE.md"].splitlines()) <= 80
    package = REPOSITORY / "lazyck"
    for page, text in FOR_DEVELOPERS.items():
        names = re.findall(r"`([\w./*-]+(?:\.(?:py|cpp|c|h|S|md|sh)|/))`", text)
        assert names
        for shown in set(names):
            name = re.sub("^rt/", "runtime/src/", shown)
            found = [p for base in (REPOSITORY, package) for p in base.glob(name)]
            found += package.glob(f"**/{name}")
            assert found, (page, shown)


def test_each_reason_code_of_the_shim_has_words() -> None:
    used = {text for name, text in vars(abi).items() if name.startswith("WHY_")}
    rules = [rule for toolchain in ALL for rule in toolchain.table.rules if rule.role is not abi.Role.WORDS]
    assert used >= {rule.reason for rule in rules} - {""}
    assert used == set(SAYS)
