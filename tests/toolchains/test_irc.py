"""Tests that lazyck-irc takes clang's options and writes clang's outputs."""

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from support.llvm_tools import irc, needs_llvmlite

pytestmark = needs_llvmlite
Irc = Callable[..., "subprocess.CompletedProcess[str]"]
TEXT = """
define i32 @dot(ptr %a, i32 %n) {
entry:
  %slot = alloca i32
  store i32 %n, ptr %slot
  %v = load i32, ptr %slot
  %w = mul i32 %v, 3
  ret i32 %w
}
"""


@pytest.fixture
def run(tmp_path: Path) -> Irc:
    (tmp_path / "m.ll").write_text(TEXT)

    def one(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([str(irc(tmp_path)), *words], cwd=tmp_path, capture_output=True, text=True)

    return one


def machine(path: Path) -> str:
    with path.open("rb") as f:
        return str(ELFFile(f)["e_machine"])


def test_objects_of_three_machines_from_the_same_ir(run: Irc, tmp_path: Path) -> None:
    wanted = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64", "riscv64": "EM_RISCV"}
    for name, number in wanted.items():
        done = run("-O2", f"--target={name}-linux-gnu", "-c", "m.ll", "-o", f"{name}.o")
        assert (done.returncode, done.stderr) == (0, "")
        assert machine(tmp_path / f"{name}.o") == number
    done = run("-O2", "--target=aarch64-linux-gnu", "-S", "m.ll", "-o", "-")
    assert "add\tw0, w1, w1, lsl #1" in done.stdout


def test_forms_of_output_and_their_names(run: Irc, tmp_path: Path) -> None:
    (tmp_path / "n.ll").write_text(TEXT.replace("@dot", "@other"))
    assert run("-O1", "-c", "m.ll", "n.ll", "-MD").returncode == 0
    assert (tmp_path / "n.d").read_text() == "n.o: n.ll\n"
    assert run("-c", "-emit-llvm", "m.ll").returncode == 0
    assert (tmp_path / "m.bc").read_bytes()[:2] == b"BC"
    assert "alloca" not in run("-O2", "-S", "-emit-llvm", "m.bc", "-o", "-").stdout
    for words in (["-O0"], ["-O2", "-Xclang", "-disable-llvm-passes"]):
        assert "alloca" in run(*words, "-S", "-emit-llvm", "m.bc", "-o", "-").stdout
    assert run("-c", "m.bc", "-o", "x.o", "-MF", "x dep", "-MT", "goal").returncode == 0
    assert (tmp_path / "x dep").read_text() == "goal: m.bc\n"
    assert run("-O2", "-fPIC", "-Wall", "-g", "-DX", "-I", "inc", "-march=native", "-c", "m.ll").returncode == 0
    assert run("-shared", "m.o", "-o", "libm.so", "-mcpu=native", "-Wl,-soname,x").returncode == 0
    assert (tmp_path / "libm.so").read_bytes()[16] == 3


def test_errors_name_file_and_line_and_leave_the_others(run: Irc, tmp_path: Path) -> None:
    (tmp_path / "bad.ll").write_text("define i32 @f(i32 %x) {\n  ret i33 %x\n}\n")
    done = run("-c", "bad.ll", "m.ll")
    assert done.returncode == 1
    assert done.stderr.startswith("bad.ll:2:11: error: '%x' defined with type 'i32' but expected 'i33'")
    assert (tmp_path / "m.o").exists() and not (tmp_path / "bad.o").exists()
    (tmp_path / "bad.bc").write_bytes(b"BC\xc0\xdegarbage")
    assert "bad.bc: error: Invalid bitcode" in run("-c", "bad.bc").stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-c", "m.ll", "-frobnicate", "-qqq"], "unknown option: -qqq"),
        (["-c", "no.ll"], "no.ll: No such file or directory"),
        (["-c", "m.ll", "-o", "no/m.o"], "unable to open output file 'no/m.o'"),
        (["-c", "m.ll", "m.ll", "-o", "m.o"], "multiple output files"),
        (["-c", "m.ll", "--target=pdp11"], 'No available targets are compatible with triple "pdp11"'),
        (["m.ll", "-o", "m"], "compile it first"),
        (["-c", "-flto", "m.ll"], "makes machine code only"),
        ([], "no input files"),
    ],
)
def test_what_it_does_not_do_is_an_error(words: list[str], said: str, run: Irc) -> None:
    done = run(*words)
    assert done.returncode == 1 and "error: " in done.stderr and said in done.stderr


def test_another_machine_s_module_is_compiled_for_this_one_with_a_warning(run: Irc, tmp_path: Path) -> None:
    (tmp_path / "o.ll").write_text('target triple = "riscv64-unknown-linux-gnu"\n' + TEXT)
    done = run("--target=aarch64-linux-gnu", "-c", "o.ll")
    assert done.returncode == 0 and "overriding the module target triple with aarch64-linux-gnu" in done.stderr
    assert machine(tmp_path / "o.o") == "EM_AARCH64"


def test_the_version_names_llvm_and_no_place(run: Irc) -> None:
    shown = run("--version").stdout
    assert "LLVM version " in shown and "/" not in shown


def test_an_interrupted_compile_ends_as_a_compiler_does(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "slow.ll")
    running = subprocess.Popen(
        [str(irc(tmp_path)), "-c", "slow.ll"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore SIGINT
    )
    with (tmp_path / "slow.ll").open("w"):  # this waits until lazyck-irc reads
        running.send_signal(signal.SIGINT)
        said = running.communicate(timeout=60)[1]
    assert (running.returncode, said) == (-signal.SIGINT, "")
