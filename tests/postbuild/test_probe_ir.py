"""Test the probe of LLVM IR: how many compilers it starts, and what it does with modules that it
cannot read."""

import subprocess
from pathlib import Path

import pytest
from support.llvm_tools import irc, needs_llvmlite
from support.probe_bench import NO_CACHE

from lazyck.postbuild.probe.probe import probe
from lazyck.postbuild.reasons import ReasonKind
from lazyck.toolchains.command import CompileCommand, Invocation


def blobs(at: Path, count: int, compiler: Path, suffix: str = ".ll") -> list[CompileCommand]:
    """Write `count` modules below `at`, each of which defines one function. Return their compile
    commands."""
    commands = []
    for i in range(count):
        source = at / f"m{i}.ll"
        source.write_text(f"define i32 @f{i}(i32 %x) {{\n  %y = add i32 %x, {i}\n  ret i32 %y\n}}\n")
        name = str(source.with_suffix(suffix))
        argv = (str(compiler), "-O2", "-fPIC", "-c", name, "-o", f"{name}.o")
        commands.append(CompileCommand(Invocation("clang", "llvm", str(at), argv, 1, ()), name, f"{name}.o"))
    return commands


def counting(program: Path, log: Path) -> Path:
    """Write a script that counts its starts and runs `program`."""
    script = program.parent / "counted" / program.name
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\necho started >> {log}\nexec {program} "$@"\n')
    script.chmod(0o755)
    return script


def test_text_is_probed_without_any_compiler(tmp_path: Path) -> None:
    done = probe(blobs(tmp_path, 300, Path("/nonexistent/clang")), tmp_path / "work", NO_CACHE, jobs=2)
    assert [p.symbols for p in done.probed] == [(f"f{i}",) for i in range(300)]
    assert not done.eager and all(p.headers == frozenset() for p in done.probed)


@needs_llvmlite
def test_bitcode_is_probed_many_files_at_a_time(tmp_path: Path) -> None:
    program = irc(tmp_path)
    made = blobs(tmp_path, 150, counting(program, tmp_path / "starts"), ".bc")
    sources = [f"m{i}.ll" for i in range(150)]
    subprocess.run([program, "-c", "-emit-llvm", *sources], cwd=tmp_path, check=True)
    done = probe(made, tmp_path / "work", NO_CACHE, jobs=1)
    assert [p.symbols for p in done.probed] == [(f"f{i}",) for i in range(150)]
    assert len((tmp_path / "starts").read_text().split()) == 3


@needs_llvmlite
@pytest.mark.parametrize("suffix", [".ll", ".bc"])
def test_a_module_that_cannot_be_read_is_the_compiler_s_to_refuse(suffix: str, tmp_path: Path) -> None:
    program = irc(tmp_path)
    made = blobs(tmp_path, 3, program, suffix)
    if suffix == ".bc":
        subprocess.run([program, "-c", "-emit-llvm", "m0.ll", "m2.ll"], cwd=tmp_path, check=True)
        (tmp_path / "m1.bc").write_bytes(b"BC\xc0\xdenonsense")
    else:
        (tmp_path / "m1.ll").write_text("define i32 @f1(i32 %x) {\n")
    done = probe(made, tmp_path / "work", NO_CACHE, jobs=1)
    assert [p.symbols for p in done.probed] == [("f0",), ("f2",)]
    assert [reason.kind for reason in done.eager.values()] == [ReasonKind.NOT_COMPILED]
    assert f"m1{suffix}" in next(iter(done.eager.values())).about
