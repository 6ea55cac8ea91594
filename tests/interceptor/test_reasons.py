"""Tests every reason code by a call of the real shim."""

# ruff: noqa: F401, F811
import shlex

import pytest
from support.command_forms import DEFERRED, PASSED
from support.shim_project import Project, built_shim, fake, host, make_project


@pytest.mark.parametrize(("line", "reason"), PASSED)
def test_runs_the_real_compiler_unchanged(fake: Project, line: str, reason: str) -> None:
    argv = shlex.split(line)
    said = fake.ok(*argv).splitlines()
    assert said[0] == f"REAL {argv[0]}"
    assert said[1:] == (argv[1:] or [""])
    assert (fake.last.action, fake.last.reason, fake.last.tool) == ("pass", reason, argv[0])
    assert not (fake.dir / "k.o").exists()


@pytest.mark.parametrize("line", DEFERRED)
def test_defers_a_blob(fake: Project, line: str) -> None:
    fake.write("opts", "--use_fast_math\n")
    argv = shlex.split(line)
    assert fake.ok(*argv) == ""
    assert (fake.last.action, fake.last.reason) == ("defer", "blob")
    record = fake.compile("k.o")
    assert record.output == str(fake.dir / "k.o")
    assert record.source.startswith(str(fake.dir / "blob" / "")) and record.call.tool == argv[0]


@pytest.mark.parametrize(
    "place",
    ["CMakeFiles/CMakeScratch/TryCompile-x", "CMakeFiles/CMakeTmp", "CMakeFiles/3.25/CompilerIdCXX", "meson-private/t"],
)
def test_feature_probes_are_passed_even_below_a_blob_directory(fake: Project, place: str) -> None:
    fake.write(f"blob/{place}/t.cpp", "\n")
    fake.ok("c++", "-c", f"blob/{place}/t.cpp", "-o", "t.o")
    assert fake.last.reason == "try-compile"
    fake.write("blob/conftest.cpp", "\n")
    fake.ok("c++", "-c", "blob/conftest.cpp", "-o", "conftest.o")
    assert fake.last.reason == "try-compile"


def test_options_in_variables_count(fake: Project) -> None:
    fake.ok("nvcc", "-c", "blob/k.cu", "-o", "k.o", NVCC_APPEND_FLAGS="-O3 -rdc=true")
    assert fake.last.reason == "relocatable-device-code"
    fake.ok("nvcc", "-c", "blob/k.cu", "-o", "k.o", NVCC_PREPEND_FLAGS="--dryrun")
    assert fake.last.reason == "dry-run"
    fake.ok("nvcc", "-c", "blob/k.cu", "-o", "k.o", NVCC_APPEND_FLAGS="-rdc true")
    assert fake.last.reason == "relocatable-device-code"
    for flags in ("-Xcompiler --coverage", "-Xcompiler=-O2,--coverage"):
        fake.ok("nvcc", "-c", "blob/k.cu", "-o", "k.o", NVCC_APPEND_FLAGS=flags)
        assert fake.last.reason == "profiling"
    for flags, reason in (("-optf opts", "response-file"), ("-MD -MF x.d", "unsupported-option")):
        fake.ok("nvcc", "-c", "blob/k.cu", "-o", "k.o", NVCC_APPEND_FLAGS=flags)
        assert fake.last.reason == reason
    fake.ok("nvcc", "-c", "blob/k.cu", "-o", "k.o", NVCC_APPEND_FLAGS="-O3")
    assert fake.last.action == "defer"
    assert fake.compile("k.o").call.env[:-1] == (("NVCC_APPEND_FLAGS", "-O3"),)


@pytest.mark.parametrize("word", ["-P", "-C", "-CC", "--comments", "--comments-in-macros", "--no-line-commands"])
def test_options_that_change_preprocessed_text_are_not_deferred(fake: Project, word: str) -> None:
    fake.ok("hipcc", word, "-c", "blob/k.cpp", "-o", "k.o")
    assert fake.last.reason == "unsupported-option"


def test_options_files_are_read_as_nvcc_reads_them(fake: Project) -> None:
    # nvcc 12.4 and 13.0 show by --dryrun that ' is a character like any other, and that an escaped
    # " or backslash disappears.
    fake.write("opts", """-DA="e f" -DB=it's "-DC=a b" -DD=a\\ b -DE=\\"s\\" -DF=a\\\\b -I"/x y"\n""")
    fake.ok("nvcc", "-c", "blob/k.cu", "-o", "k.o", "--options-file", "opts")
    words = list(fake.compile("k.o").call.argv)
    assert words[-7:] == ["-DA=e f", "-DB=it's", "-DC=a b", "-DD=a b", "-DE=s", "-DF=ab", "-I/x y"]


def test_a_missing_directory_is_an_error_like_a_compiler_s(fake: Project) -> None:
    done = fake.run("hipcc", "-c", "blob/k.cpp", "-o", "nowhere/k.o")
    assert done.returncode == 1
    assert done.stderr == "hipcc: error: unable to open output file 'nowhere/k.o': 'No such file or directory'\n"
    assert (fake.last.action, fake.last.reason) == ("fail", "cannot-write")


def test_a_deleted_working_directory_is_left_to_the_compiler(fake: Project) -> None:
    fake.ok("sh", "-c", "mkdir gone && cd gone && rmdir ../gone && c++ -c x.cpp -o x.o")
    assert fake.last.reason == "no-cwd"


@pytest.mark.parametrize(
    ("line", "toolchain"),
    [
        ("c++ -c blob/k.cpp -o k.o", "host"),
        ("hipcc -c blob/k.cpp -o k.o", "rocm"),
        ("nvcc -c blob/k.cu -o k.o", "cuda"),
        ("clang++ -x hip -c blob/k.cpp -o k.o", "rocm"),
        ("clang++ -c blob/k.hip -o k.o", "rocm"),
    ],
)
def test_a_record_names_the_toolchain_whose_recipes_it_follows(fake: Project, line: str, toolchain: str) -> None:
    fake.ok(*shlex.split(line))
    assert fake.compile("k.o").call.toolchain == toolchain


def test_globs_are_shell_patterns_on_the_absolute_path(fake: Project) -> None:
    fake.write("blob/deep/er/k.cpp", "\n")
    fake.ok("c++", "-c", "../project/blob/deep/er/k.cpp", "-o", "k.o")
    assert fake.last.source == str(fake.dir / "blob/deep/er/k.cpp")
    assert fake.last.action == "defer"


def test_a_link_into_a_blob_directory_is_seen_through(fake: Project) -> None:
    (fake.dir / "link.cpp").symlink_to("blob/k.cpp")
    fake.ok("c++", "-c", "link.cpp", "-o", "k.o")
    assert fake.last.action == "defer"


def test_dots_after_a_link_follow_the_file_system(fake: Project) -> None:
    (fake.dir / "elsewhere").mkdir()
    (fake.dir / "elsewhere/to").symlink_to(fake.dir / "blob")
    fake.ok("c++", "-c", "elsewhere/to/../blob/k.cpp", "-o", "k.o")
    assert fake.last.source == str(fake.dir / "blob/k.cpp")
