"""Tests the attention example's generator and its build description. No GPU compiler is needed."""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "attention"

# This stands in for hipcc: it logs its arguments, one per line, and creates the output.
RECORDING_COMPILER = """#!/bin/sh
printf '%s\\n' "$@" --end-- >> "$COMPILER_LOG"
while [ "$#" -gt 1 ]; do
    case "$1" in
        -o) : > "$2" ;;
        -MF) echo "x.o:" > "$2" ;;
    esac
    shift
done
"""


def run_script(name: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLE / name), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def generate(*arguments: str | Path) -> str:
    result = run_script("generate.py", *arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout


def modification_times(directory: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in directory.rglob("*") if path.is_file()}


def test_at_least_300_blobs_are_written_one_per_listed_variant(tmp_path: Path) -> None:
    names = generate("--list", "--output-dir", tmp_path).split()
    blobs = sorted(path.stem for path in (tmp_path / "blob").iterdir())
    assert blobs == sorted(names)
    assert len(blobs) >= 300
    assert len({path.read_text() for path in (tmp_path / "blob").iterdir()}) == len(blobs)


def test_variants_cover_every_axis() -> None:
    names = [name.split("_")[1:] for name in generate("--list").split()]
    assert [sorted(set(axis)) for axis in zip(*names, strict=True)] == [
        ["bwd", "fwd"],
        ["d128", "d256", "d32", "d64", "d96"],
        ["bf16", "fp16", "fp32"],
        ["batch", "group"],
        ["causal", "nomask", "window"],
        ["alibi", "nobias"],
    ]


def test_forward_blob_defines_one_function_and_backward_blob_three(tmp_path: Path) -> None:
    generate("--output-dir", tmp_path, "--filter", "*_d64_fp16_batch_causal_nobias")
    forward = (tmp_path / "blob" / "attn_fwd_d64_fp16_batch_causal_nobias.cpp").read_text()
    backward = (tmp_path / "blob" / "attn_bwd_d64_fp16_batch_causal_nobias.cpp").read_text()
    assert forward.count("template <>") == 1
    assert backward.count("template <>") == 3
    assert "using trait_0 =" in forward
    assert "using trait_0 =" in backward


def test_second_run_writes_nothing(tmp_path: Path) -> None:
    generate("--output-dir", tmp_path, "--filter", "*d32*")
    before = modification_times(tmp_path)
    generate("--output-dir", tmp_path, "--filter", "*d32*")
    assert modification_times(tmp_path) == before


def test_changed_blob_is_written_again_and_others_are_left_alone(tmp_path: Path) -> None:
    generate("--output-dir", tmp_path, "--filter", "attn_fwd_d32_fp32*")
    before = modification_times(tmp_path)
    changed = tmp_path / "blob" / "attn_fwd_d32_fp32_batch_nomask_nobias.cpp"
    text = changed.read_text()
    changed.write_text("stale")
    generate("--output-dir", tmp_path, "--filter", "attn_fwd_d32_fp32*")
    assert changed.read_text() == text
    after = modification_times(tmp_path)
    assert {path for path in after if after[path] != before[path]} <= {changed}


def test_filter_limits_blobs_and_dispatchers(tmp_path: Path) -> None:
    generate(
        "--output-dir", tmp_path, "--filter", "attn_fwd_d32_fp32_batch_*", "--filter", "attn_bwd_d64_bf16_group_c*"
    )
    assert len(list((tmp_path / "blob").glob("attn_fwd_*"))) == 6
    assert len(list((tmp_path / "blob").glob("attn_bwd_*"))) == 2
    assert (tmp_path / "attn_fwd_api.cpp").read_text().count("using trait_ =") == 6
    assert "attn_data_type::fp16" not in (tmp_path / "attn_fwd_api.cpp").read_text()


def test_blobs_of_an_earlier_filter_are_removed(tmp_path: Path) -> None:
    generate("--output-dir", tmp_path, "--filter", "*d32_fp32*")
    generate("--output-dir", tmp_path, "--filter", "*d64_fp32*")
    assert not list((tmp_path / "blob").glob("*d32*"))


def test_direction_selects_one_direction_and_leaves_the_other_dispatcher_empty(tmp_path: Path) -> None:
    generate("--output-dir", tmp_path, "--direction", "fwd")
    assert {path.name.split("_")[1] for path in (tmp_path / "blob").iterdir()} == {"fwd"}
    assert "trait_" not in (tmp_path / "attn_bwd_api.cpp").read_text()


def test_filter_that_matches_nothing_is_an_error(tmp_path: Path) -> None:
    result = run_script("generate.py", "--output-dir", tmp_path, "--filter", "*d48*")
    assert result.returncode != 0
    assert "*d48*" in result.stderr


def test_build_takes_the_compiler_from_rocm_path_when_ninja_runs(tmp_path: Path) -> None:
    build = tmp_path / "a build"
    compiler = tmp_path / "my rocm" / "bin" / "hipcc"
    compiler.parent.mkdir(parents=True)
    compiler.write_text(RECORDING_COMPILER)
    compiler.chmod(compiler.stat().st_mode | stat.S_IXUSR)
    result = run_script(
        "configure.py", "--build-dir", build, "--gpu-archs", "gfx942,gfx90a", "--filter", "*d32_fp32_batch_causal_alibi"
    )
    assert result.returncode == 0, result.stderr

    log = tmp_path / "log"
    environment = os.environ | {"ROCM_PATH": str(tmp_path / "my rocm"), "COMPILER_LOG": str(log)}
    ninja = subprocess.run(
        ["ninja", "-C", str(build), "-j1"], env=environment, capture_output=True, text=True, check=False
    )
    assert ninja.returncode == 0, ninja.stdout
    commands = [text.splitlines() for text in log.read_text().split("--end--\n") if text]
    compiles, (link,) = commands[:-1], commands[-1:]
    assert all(command.count("-c") == 1 and command.count("-o") == 1 for command in compiles)
    sources = [Path(argument) for command in compiles for argument in command if argument.endswith(".cpp")]
    assert len(sources) == len(compiles)
    assert sorted(path.name for path in sources if path.parent == build.resolve() / "blob") == [
        "attn_bwd_d32_fp32_batch_causal_alibi.cpp",
        "attn_fwd_d32_fp32_batch_causal_alibi.cpp",
    ]
    assert all({"--offload-arch=gfx942", "--offload-arch=gfx90a"} <= set(command) for command in commands)
    assert link[link.index("-o") + 1] == "libattention.so"


def test_configuring_again_leaves_nothing_to_build(tmp_path: Path) -> None:
    compiler = tmp_path / "bin" / "hipcc"
    compiler.parent.mkdir()
    compiler.write_text(RECORDING_COMPILER)
    compiler.chmod(compiler.stat().st_mode | stat.S_IXUSR)
    environment = os.environ | {"ROCM_PATH": str(tmp_path), "COMPILER_LOG": str(tmp_path / "log")}
    outputs = []
    for _ in range(2):
        run_script("configure.py", "--build-dir", tmp_path / "build", "--filter", "attn_fwd_d32_fp32*")
        ninja = subprocess.run(
            ["ninja", "-C", str(tmp_path / "build")], env=environment, capture_output=True, text=True, check=False
        )
        outputs.append(ninja.stdout)
    assert "no work to do" in outputs[1]


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler")
def test_public_header_is_plain_c(tmp_path: Path) -> None:
    source = tmp_path / "user.c"
    source.write_text('#include "attention.h"\nint use(void) { return attention_forward(0); }\n')
    flags = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", f"-I{EXAMPLE / 'include'}"]
    subprocess.run(["gcc", *flags, str(source)], check=True)


def test_library_and_its_build_know_nothing_of_being_lazy() -> None:
    # Wrapping this build proves something only if the build was not made for that. The demo beside
    # it may name lazyck.
    files = [EXAMPLE / name for name in ("generate.py", "configure.py", "attention.py")]
    files += [path for folder in ("include", "src") for path in (EXAMPLE / folder).rglob("*") if path.is_file()]
    assert len(files) > 3
    assert [path for path in files if "lazyck" in path.read_text().lower()] == []
