"""Tests that imports go one way: each module may import only what stands below it."""

import ast
import re
from pathlib import Path

from support import REPOSITORY

PACKAGE = REPOSITORY / "lazyck"
# The modules for programs stand on everything, and nothing stands on them.
PUBLIC = ("__init__", "__main__", "pytest", "setuptools", "telemetry", "torch")
RANKS = {
    "machines": -1, "visible": -1,
    "errors": 0, "abi": 0,
    "directory": 1, "quantities": 1,
    "settings": 2,
    "files": 3, "proc": 3, "terminal": 3,
    "waiting": 4, "toolchains": 4,
    "formats": 5, "history": 6,
    "remote": 7, "runtime": 7, "library": 7, "units": 7,
    "postbuild": 8, "prebuild": 9, "interceptor": 9,
    "report": 10, "pack": 10, "cache": 10, "check": 10,
    "commands": 11,
    "cli": 12,
}  # fmt: skip
WITHIN_RANK = {("runtime", "units"), ("terminal", "proc")}


# The rooms of the runtime's sources. Beside them are only the headers for programs.
ROOMS = ("machine", "base", "platform", "bundle", "history", "cache", "compile", "store", "library", "entrance")
SOURCES = PACKAGE / "runtime" / "src"


def area(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def imported(file: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "lazyck":
            if node.module == "lazyck":
                found |= {f"lazyck.{a.name}" for a in node.names if a.name in RANKS}
            else:
                found.add(node.module)
        elif isinstance(node, ast.Import):
            found |= {a.name for a in node.names if a.name.startswith("lazyck.")}
    return found


def test_every_module_imports_only_what_stands_below_it() -> None:
    wrong = []
    files = [f for f in PACKAGE.rglob("*.py") if f.parent != PACKAGE or f.stem not in PUBLIC]
    assert len(files) > 30
    for file in files:
        here = file.relative_to(PACKAGE).with_suffix("").parts[0]
        for module in imported(file):
            there = area(module)
            if here == there or (there, here) in WITHIN_RANK:
                continue
            if RANKS[there] >= RANKS[here]:
                wrong.append(f"{file.relative_to(REPOSITORY)} imports {module}")
    assert not wrong


def test_every_room_of_the_runtime_includes_only_what_stands_below_it() -> None:
    wrong = []
    files = [f for f in SOURCES.rglob("*") if f.is_file() and f.parent != SOURCES]
    assert len(files) > 50
    for file in files:
        here = ROOMS.index(file.parent.name)
        for name in re.findall(r'#include "(.+)"', file.read_text()):
            room, _, header = name.rpartition("/")
            if room and (ROOMS.index(room) > here or not (SOURCES / room / header).is_file()):
                wrong.append(f"{file.relative_to(SOURCES)} includes {name}")
            assert room or header in ("lazyck.h", "error.hpp", "lazyck_abi.h"), (file, name)
    assert not wrong


def test_only_proc_starts_processes_and_only_settings_read_the_environment() -> None:
    owners = {
        "subprocess": {"proc.py"},
        "os.environ": {"environment.py"},
        "os.getenv": set(),
        "os.system": set(),
        "ctypes": {"c_interface.py", "library.py", "process.py", "__init__.py"},
    }
    wrong = []
    for file in PACKAGE.rglob("*.py"):
        text = file.read_text()
        for word, allowed in owners.items():
            if word in text and file.name not in allowed:
                wrong.append(f"{file.relative_to(REPOSITORY)} uses {word}")
    assert not wrong


def test_torch_and_setuptools_are_imported_by_the_modules_of_their_names_alone() -> None:
    found = []
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
            found += [(file.relative_to(REPOSITORY).as_posix(), name.partition(".")[0]) for name in names]
    imports = {(file, name) for file, name in found if name in ("torch", "setuptools", "distutils", "pytest")}
    wanted = {(f"lazyck/{name}.py", name) for name in ("torch", "setuptools", "pytest")}
    assert imports == wanted


def test_no_test_module_imports_another() -> None:
    tests = REPOSITORY / "tests"
    modules = sorted(tests.rglob("test_*.py"))
    assert len(modules) > 150
    names = {path.stem for path in modules}
    wrong = []
    for path in tests.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            found = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            found += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            wrong += [f"{path.name} imports {name}" for name in found if name.rpartition(".")[2] in names]
    assert not wrong
