"""Tests the deferred object: other tools accept it, its record says what was asked, and its depfile
is valid."""

# ruff: noqa: F401, F811
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from support import AARCH64, RISCV64, Machine, machine_params
from support.shim_project import (
    SYSTEM_PATH,
    MakeProject,
    Project,
    built_shim,
    clean_env,
    fake,
    host,
    make_project,
    records_of,
    script,
)

from lazyck import abi


@pytest.fixture
def deferred(host: Project) -> Project:
    host.ok("g++", "-O2", "-c", "blob/k.cpp", "-o", "k.o")
    return host


def test_the_mark_is_in_the_elf_identification(deferred: Project) -> None:
    head = (deferred.dir / "k.o").read_bytes()[:16]
    assert head[:4] == b"\x7fELF" and head[9:16] == abi.OBJECT_MARK


def test_the_record_holds_the_call(deferred: Project) -> None:
    record = deferred.compile("k.o")
    assert record.source == str(deferred.dir / "blob/k.cpp")
    assert record.call.argv == ("/usr/bin/g++", "-O2", "-c", "blob/k.cpp", "-o", "k.o")
    assert (record.call.prefix, record.call.cwd, record.call.tool) == (1, str(deferred.dir), "g++")


@pytest.mark.parametrize(
    "line",
    ["ar rcs k.a k.o", "ar rcsT thin.a k.o", "nm k.o", "readelf -a k.o", "strip -o s.o k.o", "objcopy k.o c.o",
     "ld -r k.o k.o -o r.o", "size k.o", "objdump -x k.o"],
)  # fmt: skip
def test_binutils_take_it_without_a_word(deferred: Project, line: str) -> None:
    done = deferred.run(*shlex.split(line))
    assert (done.returncode, done.stderr) == (0, "")


LINKERS = [
    pytest.param(name, marks=pytest.mark.skipif(not shutil.which(f"ld.{name}"), reason=f"ld.{name} is not installed"))
    for name in ("bfd", "gold", "lld", "mold")
]
# These are ways in which a build may link the object. Each would make a broken library if the
# object were empty.
LINKS = [
    "-shared m.o k.o",
    "-shared -Wl,--gc-sections m.o k.o",
    "-shared -Wl,-s m.o s.o",
    "-shared -nostdlib m.o r.o",
    "-shared m.o -Wl,--whole-archive k.a -Wl,--no-whole-archive",
    "-shared -Wl,--whole-archive m.o thin.a -Wl,--no-whole-archive",
    "-shared -flto l.o k.o",
    "m.o k.o",
    "-no-pie m.o k.o",
    "-Wl,--gc-sections -flto l.o k.o",
    "-Wl,--unresolved-symbols=ignore-in-object-files m.o k.o",
]


@pytest.fixture
def real(deferred: Project) -> Project:
    """Make the deferred object in all its shapes, and real objects: `m.o`, and `l.o` for LTO."""
    deferred.write("m.cpp", "int main() { return 0; }\n")
    deferred.ok("g++", "-fPIC", "-ffunction-sections", "-c", "m.cpp", "-o", "m.o")
    deferred.ok("g++", "-fPIC", "-flto", "-c", "m.cpp", "-o", "l.o")
    for line in ("strip --strip-unneeded -o s.o k.o", "ld -r k.o k.o -o r.o", "ar rcs k.a k.o", "ar rcsT thin.a k.o"):
        deferred.ok(*line.split())
    return deferred


@pytest.mark.parametrize("linker", LINKERS)
def test_a_link_without_the_shims_fails_and_says_what_to_do(real: Project, linker: str) -> None:
    for line in LINKS:
        if linker == "mold" and "ignore" in line:
            continue  # mold obeys this option
        done = real.run("/usr/bin/g++", f"-fuse-ld={linker}", *line.split(), "-o", "out", PATH=SYSTEM_PATH)
        assert done.returncode != 0, line
        assert abi.DEFERRED_SYMBOL in done.stderr, line
        assert not (real.dir / "out").exists(), line


@pytest.mark.parametrize("machine", machine_params(AARCH64, RISCV64))
def test_a_cross_link_without_the_shims_fails_too(real: Project, machine: Machine) -> None:
    for name in ("k", "m"):
        real.ok(machine.cxx, "-fPIC", "-c", f"{'blob/' * (name == 'k')}{name}.cpp", "-o", f"{name}.o")
    done = real.run(f"/usr/bin/{machine.cxx}", "-shared", "m.o", "k.o", "-o", "out", PATH=SYSTEM_PATH)
    assert done.returncode != 0
    assert abi.DEFERRED_SYMBOL in done.stderr
    assert "relocation" not in done.stderr


@pytest.mark.parametrize("linker", LINKERS)
def test_joining_it_goes_by_without_a_word(deferred: Project, linker: str) -> None:
    done = deferred.run(f"ld.{linker}", "-r", "k.o", "k.o", "-o", "r.o")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(records_of(deferred.dir / "r.o")) == 2


def test_a_record_survives_strip_and_objcopy(deferred: Project) -> None:
    deferred.ok("strip", "-o", "s.o", "k.o")
    deferred.ok("objcopy", "s.o", "c.o")
    assert records_of(deferred.dir / "c.o") == [deferred.compile("k.o")]


@pytest.mark.parametrize("name", ["a b.cpp", "qu'o\"te.cpp", "new\nline.cpp", "$HOME #1.cpp", "ü\udcff.cpp", "-x.cpp"])
def test_odd_names_survive(host: Project, name: str) -> None:
    source = host.dir / "blob" / name
    source.write_text("\n")
    define = "-DTEXT=\"a 'b' \\ \n\t$x\""
    host.ok("g++", define, "-c", f"blob/{name}", "-o", f"{name.lstrip('-')}.o")
    (host.dir / f"{name.lstrip('-')}.o").rename(host.dir / "plain.o")
    record = host.compile("plain.o")
    assert (record.source, record.call.argv[1]) == (str(source), define)
    assert host.last.source == str(source)


def test_a_response_file_is_expanded_nested_and_quoted(host: Project) -> None:
    host.write("inner.rsp", '-DA=\'x y\'  "-DB=\\"q\\""\n\t-DC=a\\ b')
    host.write("outer.rsp", "@inner.rsp '@missing'\n-c blob/k.cpp -DEMPTY=\"\" ''")
    host.run("g++", "-DFIRST", "@outer.rsp", "-o", "k.o")
    assert host.last.reason == "several-sources"  # `@missing` and the empty word are taken as they are
    host.write("outer.rsp", "@inner.rsp\n-c blob/k.cpp -DEMPTY=\"\" -D '@missing'")
    host.ok("g++", "-DFIRST", "@outer.rsp", "-o", "k.o")
    assert host.compile("k.o").call.argv[1:] == (
        "-DFIRST", "-DA=x y", '-DB="q"', "-DC=a b", "-c", "blob/k.cpp", "-DEMPTY=", "-D", "@missing", "-o", "k.o",
    )  # fmt: skip


def test_a_response_file_that_names_itself_is_left_to_the_compiler(fake: Project) -> None:
    fake.write("loop.rsp", "@loop.rsp")
    fake.ok("c++", "@loop.rsp", "-c", "blob/k.cpp", "-o", "k.o")
    assert fake.last.reason == "response-file"


def test_a_response_pipe_is_left_for_the_compiler_to_read(tmp_path: Path, make_project: MakeProject) -> None:
    script(tmp_path / "bin/c++", 'cat "${1#@}"\n')
    project = make_project(clean_env(PATH=f"{tmp_path}/bin:{SYSTEM_PATH}"), toolchain="host")
    assert project.ok("bash", "-c", "c++ @<(echo -c blob/k.cpp -o k.o)") == "-c blob/k.cpp -o k.o\n"
    assert project.last.reason == "response-file"


def test_options_file_of_nvcc_is_expanded(fake: Project) -> None:
    fake.write("a.txt", "-DA -c blob/k.cu")
    fake.write("b.txt", "-o k.o")
    fake.ok("nvcc", "--options-file", "a.txt,b.txt")
    assert fake.compile("k.o").call.argv[1:] == ("-DA", "-c", "blob/k.cu", "-o", "k.o")


def test_flag_carrying_variables_and_path_are_recorded(host: Project) -> None:
    path = os.pathsep.join(("/own bin", *host.interception.bin_dirs, "/usr/bin", "/bin"))
    host.ok("g++", "-c", "blob/k.cpp", "-o", "k.o", CPLUS_INCLUDE_PATH="/some where", UNRELATED="1", PATH=path)
    expected = (("CPLUS_INCLUDE_PATH", "/some where"), ("PATH", "/own bin:/usr/bin:/bin"))
    assert host.compile("k.o").call.env == expected


def test_an_object_is_replaced_whole_and_respects_umask(host: Project) -> None:
    (host.dir / "k.o").write_text("old")
    host.ok("sh", "-c", "umask 027; g++ -c blob/k.cpp -o k.o")
    assert (host.dir / "k.o").stat().st_mode & 0o777 == 0o640
    assert not list(host.dir.glob(".lazyck*"))


# -- depfiles --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "file", "rule"),
    [
        ("-MD -o k.o", "k.d", "k.o: blob/k.cpp\n"),
        ("-MMD -MF x.d -o k.o", "x.d", "k.o: blob/k.cpp\n"),
        ("-Wp,-MMD,w.d -o o\\ ut.x/other.o", "w.d", "k.o: blob/k.cpp\n"),
        ("-MD -MFx.d -MTtarget -o k.o", "x.d", "target: blob/k.cpp\n"),
        ("-MD -MT 'a b' -MQ 'a b$#' -o k.o", "k.d", "a b a\\ b$$\\#: blob/k.cpp\n"),
        ("-Wp,-MD,x.d -o k.o", "x.d", "k.o: blob/k.cpp\n"),
        ("-MD -o 'o ut.x/k'", "o ut.x/k.d", "o\\ ut.x/k: blob/k.cpp\n"),
        ("-MD -o .o", ".d", ".o: blob/k.cpp\n"),
        ("-MD -o 'o ut.x/.o'", "o ut.x/.d", "o\\ ut.x/.o: blob/k.cpp\n"),
    ],
)
def test_a_depfile_names_the_source(host: Project, options: str, file: str, rule: str) -> None:
    (host.dir / "o ut.x").mkdir()
    host.ok("g++", *shlex.split(options), "-c", "blob/k.cpp")
    assert (host.dir / file).read_text() == rule
    assert host.last.action == "defer"


def test_a_rule_goes_to_standard_output_if_it_is_asked_there(host: Project) -> None:
    assert host.ok("g++", "-MMD", "-MF", "-", "-c", "blob/k.cpp", "-o", "k.o") == "k.o: blob/k.cpp\n"
    assert host.last.action == "defer"
    assert not (host.dir / "-").exists()


@pytest.mark.parametrize("variable", ["DEPENDENCIES_OUTPUT", "SUNPRO_DEPENDENCIES"])
def test_a_variable_that_names_a_file_for_rules_is_the_compiler_s(host: Project, variable: str) -> None:
    host.ok("g++", "-c", "blob/k.cpp", "-o", "k.o", **{variable: "v.d t.o"})
    assert (host.last.action, host.last.reason) == ("pass", "other-output")
    assert (host.dir / "v.d").read_text().startswith("t.o: ")


def test_a_path_that_leads_out_of_a_linked_directory_is_followed_as_by_the_kernel(host: Project) -> None:
    (host.dir / "deep" / "blob").mkdir(parents=True)
    (host.dir / "deep" / "far").mkdir()
    (host.dir / "deep" / "blob" / "k.cpp").write_text("int deep;\n")
    (host.dir / "link").symlink_to("deep/far")
    host.ok("g++", "-c", "link/../blob/k.cpp", "-o", "k.o")
    assert host.compile("k.o").source == str(host.dir / "deep" / "blob" / "k.cpp")


def test_no_depfile_without_being_asked(host: Project) -> None:
    host.ok("g++", "-MP", "-MF", "x.d", "-c", "blob/k.cpp", "-o", "k.o")
    assert not (host.dir / "x.d").exists()


def test_ninja_rebuilds_when_the_source_changes(host: Project) -> None:
    host.write(
        "build.ninja",
        "rule cxx\n  command = g++ -MD -MF $out.d -c $in -o $out\n  depfile = $out.d\n  deps = gcc\n"
        "build k.o: cxx blob/k.cpp\n",
    )
    host.ok("ninja")
    assert "no work to do" in host.ok("ninja")
    os.utime(host.dir / "blob/k.cpp")
    host.ok("ninja")
    assert [line.action for line in host.log] == ["defer", "defer"]


def test_64_parallel_jobs_lose_nothing(host: Project) -> None:
    count = 400
    for i in range(count):
        host.write(f"blob/many {i}.cpp", "\n")
    host.write("go", "".join(f"{i}\0" for i in range(count)))
    command = "xargs -0 -P64 -I{} g++ -DN={} -MD -c 'blob/many {}.cpp' -o 'm{}.o' < go"
    subprocess.run(["sh", "-c", command], cwd=host.dir, env=host.interception.env, check=True)
    host.ok("sh", "-c", "ar rcs all.a m*.o && ld -r m*.o -o all.o")
    found = records_of(host.dir / "all.o")
    assert sorted(r.call.argv[1] for r in found) == sorted(f"-DN={i}" for i in range(count))
    lines = host.log
    assert len(lines) == count and {line.action for line in lines} == {"defer"}
    assert len({line.output for line in lines}) == count
    assert not list(Path(host.dir).glob(".lazyck*"))


MACHINES = {"x86_64": 62, "aarch64": 183, "riscv64": 243}
FLAGS = {"riscv64": 4}  # floating-point arguments are in registers for doubles


@pytest.mark.parametrize(
    ("answer", "words", "machine"),
    [
        ("x86_64-linux-gnu", "", "x86_64"),
        ("aarch64-linux-gnu", "", "aarch64"),
        ("amd64-unknown-linux", "", "x86_64"),
        ("arm64-unknown-linux", "", "aarch64"),
        ("x86_64-linux-gnu", "--target=aarch64-linux-gnu", "aarch64"),
        ("aarch64-linux-gnu", "-target x86_64-pc-linux-gnu", "x86_64"),
        ("riscv64-unknown-linux-gnu", "", "riscv64"),
        ("error: no such option", "", os.uname().machine),
    ],
)
def test_the_object_is_for_the_machine_of_its_compiler(
    tmp_path: Path, make_project: MakeProject, answer: str, words: str, machine: str
) -> None:
    script(tmp_path / "fake" / "g++", f"echo '{answer}'\n")
    project = make_project(clean_env(PATH=f"{tmp_path}/fake:{SYSTEM_PATH}", CXX="g++"), toolchain="host")
    project.write("blob/k.cpp", "\n")
    project.ok("g++", *words.split(), "-c", "blob/k.cpp", "-o", "k.o")
    head = (project.dir / "k.o").read_bytes()[:64]
    assert int.from_bytes(head[18:20], "little") == MACHINES[machine]
    assert int.from_bytes(head[48:52], "little") == FLAGS.get(machine, 0)
    assert project.last.reason == "blob"


def test_a_compiler_for_a_machine_without_stubs_is_left_alone(tmp_path: Path, make_project: MakeProject) -> None:
    script(tmp_path / "fake" / "g++", 'echo "powerpc64-linux-gnu"\n')
    project = make_project(clean_env(PATH=f"{tmp_path}/fake:{SYSTEM_PATH}", CXX="g++"), toolchain="host")
    project.write("blob/k.cpp", "\n")
    assert project.ok("g++", "-c", "blob/k.cpp", "-o", "k.o") == "powerpc64-linux-gnu\n"
    assert (project.last.action, project.last.reason) == ("pass", "other-machine")
