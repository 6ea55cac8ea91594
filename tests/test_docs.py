"""The documents name what there is."""

from __future__ import annotations

import re

import click
from support import REPOSITORY

from lazyck import abi
from lazyck.cli import cli
from lazyck.toolchains import ALL

README = (REPOSITORY / "README.md").read_text()
DOCS = {p.name: p.read_text() for p in (REPOSITORY / "docs").glob("*.md")}


def test_every_environment_variable_is_in_the_table_and_in_the_readme() -> None:
    for name, variable in vars(abi).items():
        if name.startswith("ENV_"):
            assert f"`{variable}" in DOCS["environment.md"], variable
            assert variable in README, variable


def test_every_command_and_option_is_described() -> None:
    def options(group: click.Group) -> list[str]:
        found = []
        for name, command in group.commands.items():
            found += options(command) if isinstance(command, click.Group) else [name]
            found += [o for p in command.params if isinstance(p, click.Option) for o in p.opts if o.startswith("--")]
        return found

    for word in options(cli):
        assert word in DOCS["cli.md"], word


def test_links_between_documents_lead_somewhere() -> None:
    for name, text in {"../README.md": README, **DOCS}.items():
        here = REPOSITORY / "docs" / name
        for target in re.findall(r"\]\(([^)#]+)\)", text):
            if "://" not in target:
                assert (here.parent / target).exists(), f"{name}: {target}"


def test_reason_codes_of_the_shim_are_in_the_table() -> None:
    sources = "".join(p.read_text() for p in (REPOSITORY / "lazyck" / "interceptor").glob("*.c"))
    used = set(re.findall(r'return "([a-z]+(?:-[a-z]+)*)";', sources))
    used |= {rule.reason for toolchain in ALL for rule in toolchain.table.rules if rule.reason}
    assert len(used) > 20, used
    for code in used:
        assert f"`{code}`" in DOCS["interceptor.md"], code
