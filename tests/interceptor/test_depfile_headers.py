"""Tests the headers in a deferred blob's depfile: they include all that the compiler itself would
name."""

# ruff: noqa: F401, F811
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from support.include_forms import IS_COMPUTED, IS_INCLUDE, IS_NO_INCLUDE
from support.shim_project import MakeProject, Project, built_shim, clean_env, fake, host, make_project, script


def prerequisites(rule: str) -> list[str]:
    """Return the prerequisites of a depfile's first rule, without the source."""
    first = rule.replace("\\\n", " ").split("\n", 1)[0]
    return [word.replace("\0", " ") for word in first.split(": ", 1)[1].replace("\\ ", "\0").split()][1:]


def headers(project: Project, *options: str, tool: str = "g++", depend: str = "-MD", **env: str) -> list[str]:
    """Return the headers that the depfile of `blob/k.cpp` names."""
    project.ok(tool, *options, depend, "-MF", "k.d", "-c", "blob/k.cpp", "-o", "k.o", **env)
    assert project.last.action == "defer"
    return prerequisites((project.dir / "k.d").read_text())


def test_a_header_beside_the_source_and_what_it_includes(host: Project) -> None:
    host.write("blob/k.cpp", '#include "a.h"\n')
    host.write("blob/a.h", '#include "../inc/b.h"\n#include <vector>\n')
    host.write("inc/b.h", '#include "c.h"\n')
    host.write("inc/c.h", "\n")
    assert headers(host) == ["blob/a.h", "blob/../inc/b.h", "blob/../inc/c.h"]


@pytest.mark.parametrize("line", IS_INCLUDE)
def test_ways_to_write_an_include(host: Project, line: str) -> None:
    (host.dir / "blob/k.cpp").write_text(line)
    host.write("blob/x.h", "\n")
    assert headers(host) == ["blob/x.h"]


@pytest.mark.parametrize("line", IS_NO_INCLUDE)
def test_what_is_no_include(host: Project, line: str) -> None:
    (host.dir / "blob/k.cpp").write_text(line)
    host.write("blob/x.h", "\n")
    assert headers(host) == []


@pytest.mark.parametrize("text", IS_COMPUTED)
def test_where_a_macro_names_a_header_the_compiler_is_asked(host: Project, text: str) -> None:
    host.write("blob/k.cpp", text)
    host.write("blob/x.h", '#include "below.h"\n')
    host.write("blob/below.h", "\n")
    host.write("blob/way.h", '#define WAY "x.h"\n')
    found = headers(host, "-Iblob", depend="-MMD")
    assert found[-2:] == ["blob/x.h", "blob/below.h"]
    host.ok("g++", "-Iblob", "-MM", "-MF", "real.d", "blob/k.cpp")
    assert found == prerequisites((host.dir / "real.d").read_text())
    assert "/usr/include/stdc-predef.h" in headers(host, "-Iblob")


def test_the_compiler_is_heard_if_the_build_tool_ignores_the_end_of_its_children(host: Project) -> None:
    host.write("blob/k.cpp", '#define WAY "x.h"\n#include WAY\n')
    host.write("blob/x.h", "\n")
    host.ok("env", "--ignore-signal=CHLD", "g++", "-MMD", "-c", "blob/k.cpp", "-o", "k.o")
    assert prerequisites((host.dir / "k.d").read_text()) == ["blob/x.h"]


def test_blobs_with_equal_directives_are_asked_about_once(make_project: MakeProject, tmp_path: Path) -> None:
    script(tmp_path / "fake" / "bin" / "g++", f'echo "$@" >> {tmp_path}/calls\nexec /usr/bin/g++ "$@"\n')
    project = make_project(clean_env(PATH=f"{tmp_path}/fake/bin:/usr/bin:/bin"), toolchain="host")

    def asked(text: str, *options: str, name: str = "k", **env: str) -> tuple[int, list[str]]:
        (tmp_path / "calls").unlink(missing_ok=True)
        project.write(f"blob/{name}.cpp", text)
        words = ("-MMD", "-MF", f"{name}.d", "-c", f"blob/{name}.cpp", "-o", f"{name}.o")
        project.ok("g++", *options, *words, **env)
        calls = (tmp_path / "calls").read_text().splitlines() if (tmp_path / "calls").exists() else []
        rule = (project.dir / f"{name}.d").read_text()
        return sum("-MM" in call for call in calls), prerequisites(rule)

    project.write("blob/x.h", '#define WAY "y.h"\n#include WAY\n')
    project.write("blob/y.h", "#if N == 2\n#include <z.h>\n#endif\n")
    project.write("inc/z.h", "\n")
    first = '#include "x.h"\nint f() { return 1; }\n'
    assert asked(first) == (1, ["blob/x.h", "blob/y.h"])
    assert asked(first) == (0, ["blob/x.h", "blob/y.h"])
    assert asked(first.replace("f()", "g()"), name="other") == (0, ["blob/x.h", "blob/y.h"])
    with_macro = "#define N \\\n  2\n" + first
    assert asked(with_macro, "-Iinc") == (1, ["blob/x.h", "blob/y.h", "inc/z.h"])
    assert asked(with_macro.replace("2", "1"), "-Iinc") == (1, ["blob/x.h", "blob/y.h"])
    assert asked(first, "-Iinc", "-DN=2") == (1, ["blob/x.h", "blob/y.h", "inc/z.h"])
    assert asked(first, "-DN=2", CPATH="inc") == (1, ["blob/x.h", "blob/y.h", "inc/z.h"])
    assert asked(first, "-DN=2", CPATH="inc") == (0, ["blob/x.h", "blob/y.h", "inc/z.h"])
    project.write("blob/y.h", "#pragma once\n")
    assert asked(first, "-DN=2", CPATH="inc") == (1, ["blob/x.h", "blob/y.h"])
    told_apart = first + "static int n = __COUNTER__;\n"
    assert [asked(told_apart)[0] for _ in range(2)] == [1, 1]


def test_what_the_compiler_was_asked_is_written_as_any_other_rule(host: Project) -> None:
    host.write("blob/k.cpp", '#define X "a b#$.h"\n#include X\n')
    host.write("blob/a b#$.h", "\n")
    words = ("-MMD", "-MP", "-MT", "x", "-MQ", "y z", "-Iblob", "-DZ=1", "-o", "k.o", "-c", "blob/k.cpp")
    host.ok("g++", *words)
    assert (host.dir / "k.d").read_text() == "x y\\ z: blob/k.cpp \\\n blob/a\\ b\\#$$.h\nblob/a\\ b\\#$$.h:\n"
    assert host.last.action == "defer"


def test_rules_of_all_passes_are_read_however_their_targets_end(make_project: MakeProject, tmp_path: Path) -> None:
    rules = "k.o: blob/k.cpp \\\\\\n a.h\\n\\nk.o : blob/k.cpp \\\\\\n    a.h b\\\\ c.h\\n"
    script(tmp_path / "fake" / "bin" / "g++", f"printf '{rules}'\n")
    project = make_project(clean_env(PATH=f"{tmp_path}/fake/bin:/usr/bin:/bin"), toolchain="host")
    project.write("blob/k.cpp", "#include MACRO\n")
    assert headers(project) == ["a.h", "b c.h"]


def test_a_compiler_that_fails_when_it_is_asked_hinders_nothing(host: Project) -> None:
    host.write("blob/k.cpp", '#include "x.h"\n#include NOTHING\n')
    host.write("blob/x.h", "\n")
    assert headers(host) == ["blob/x.h"]


@pytest.mark.parametrize(
    "words",
    [
        "-Wp,-I,inc",
        "-Wp,-Iinc",
        "-Xpreprocessor -I -Xpreprocessor inc",
        "-iprefix ./ -iwithprefix inc",
        "-iprefix ./ -iwithprefixbefore inc",
        "-I=/inc --sysroot=.",
    ],
)
def test_where_options_lead_to_headers_in_another_way_the_compiler_is_asked(host: Project, words: str) -> None:
    host.write("blob/k.cpp", "#include <x.h>\n")
    host.write("inc/x.h", "\n")
    found = headers(host, *words.split())
    assert [os.path.normpath(h) for h in found if not h.startswith("/usr")] == ["inc/x.h"]


def test_an_empty_item_of_a_variable_is_the_working_directory(host: Project) -> None:
    host.write("blob/k.cpp", "#include <x.h>\n")
    host.write("x.h", "\n")
    for value in (":/none", "/none::/none", "/none:"):
        assert headers(host, CPATH=value) == ["x.h"]
    assert headers(host, CPATH="") == []


ORDERS = [
    # options, environment, and what `#include "x.h"` and `#include <y.h>` find
    ("-I one -I two", {}, ["one/x.h", "one/y.h"]),
    ("-Itwo -Ione", {}, ["two/x.h", "two/y.h"]),
    ("-iquote one -Itwo", {}, ["one/x.h", "two/y.h"]),
    ("-isystem one -I two", {}, ["two/x.h", "two/y.h"]),
    ("-idirafter one -isystem two", {}, ["two/x.h", "two/y.h"]),
    ("-idirafterone", {"CPATH": "two"}, ["two/x.h", "two/y.h"]),
    ("-Ione", {"CPATH": "two"}, ["one/x.h", "one/y.h"]),
    ("-isystem one", {"CPATH": "/none:two"}, ["two/x.h", "two/y.h"]),
    ("-isystem one", {"CPLUS_INCLUDE_PATH": "two"}, ["one/x.h", "one/y.h"]),
    ("", {"CPLUS_INCLUDE_PATH": "two:one"}, ["two/x.h", "two/y.h"]),
    ("", {"C_INCLUDE_PATH": "two"}, []),
    ("--include-directory=one", {}, ["one/x.h", "one/y.h"]),
    ("-I ./one/", {}, ["one/x.h", "one/y.h"]),
    ("-Imissing -Ifile -Ione", {}, ["one/x.h", "one/y.h"]),
    ("-Idirectory -Ione", {}, ["one/x.h", "one/y.h"]),
]


@pytest.mark.parametrize(("options", "env", "expected"), ORDERS)
def test_directories_in_the_compiler_s_order(
    host: Project, options: str, env: dict[str, str], expected: list[str]
) -> None:
    host.write("blob/k.cpp", '#if __has_include("x.h")\n#include "x.h"\n#include <y.h>\n#endif\n')
    for name in ("one/x.h", "one/y.h", "two/x.h", "two/y.h", "directory/x.h/z", "directory/y.h/z"):
        host.write(name, "\n")
    host.write("file", "\n")
    words = shlex.split(options)
    assert headers(host, *words, **env) == expected
    host.ok("g++", *words, "-M", "-MF", "real.d", "blob/k.cpp", **env)
    real = prerequisites((host.dir / "real.d").read_text())
    assert [os.path.normpath(h) for h in real if not h.startswith("/usr")] == expected


def test_forced_headers_and_their_own_includes(host: Project) -> None:
    for name in ("forced.h", "inc/more.h", "inc/below.h"):
        host.write(name, "#pragma once\n")
    host.write("inc/more.h", '#include "below.h"\n')
    words = ("-include", "forced.h", "-Iinc", "-include", "more.h", "-imacros", "inc/below.h")
    assert headers(host, *words) == ["forced.h", "inc/more.h", "inc/below.h"]


def test_include_next_goes_on_behind_the_directory_it_was_found_in(host: Project) -> None:
    host.write("blob/k.cpp", "#include <x.h>\n")
    for name in ("one", "two", "three"):
        host.write(f"{name}/x.h", "#include_next <x.h>\n")
    host.write("three/x.h", "\n")
    assert headers(host, "-Ione", "-Itwo", "-Ithree") == ["one/x.h", "two/x.h", "three/x.h"]


def test_without_system_headers_for_mmd(host: Project) -> None:
    host.write("blob/k.cpp", "#include <sys.h>\n#include <own.h>\n")
    host.write("sys/sys.h", '#include "below.h"\n#include "both.h"\n')
    for name in ("sys/below.h", "sys/both.h", "own/own.h"):
        host.write(name, "\n")
    host.write("own/own.h", '#include "../sys/both.h"\n')
    words = ("-isystem", "sys", "-Iown")
    everything = ["own/../sys/both.h", "own/own.h", "sys/below.h", "sys/both.h", "sys/sys.h"]
    assert sorted({os.path.normpath(h) for h in headers(host, *words)}) == sorted({*map(os.path.normpath, everything)})
    assert [os.path.normpath(h) for h in headers(host, *words, depend="-MMD")] == ["own/own.h", "sys/both.h"]
    assert headers(host, *words, "-MMD", depend="-MD") == headers(host, *words)  # the last option wins
    host.ok("g++", *words, "-Wp,-MMD,w.d", "-c", "blob/k.cpp", "-o", "k.o")
    assert [os.path.normpath(h) for h in prerequisites((host.dir / "w.d").read_text())] == ["own/own.h", "sys/both.h"]


def test_phony_targets(host: Project) -> None:
    host.write("blob/k.cpp", '#include "a b.h"\n#include "c$.h"\n')
    host.write("blob/a b.h", "\n")
    host.write("blob/c$.h", "\n")
    host.ok("g++", "-MD", "-MP", "-MT", "x", "-MQ", "y z", "-c", "blob/k.cpp", "-o", "k.o")
    expected = "x y\\ z: blob/k.cpp \\\n blob/a\\ b.h \\\n blob/c$$.h\nblob/a\\ b.h:\nblob/c$$.h:\n"
    assert (host.dir / "k.d").read_text() == expected


def test_missing_headers_as_generated_ones_are_the_compiler_s_affair(host: Project) -> None:
    done = host.run("g++", "-MD", "-MG", "-c", "blob/k.cpp", "-o", "k.o")
    assert (host.last.action, host.last.reason) == ("pass", "dependencies")
    assert done.returncode != 0  # gcc requires -M or -MM with it


def test_cycles_links_and_oddities_end(host: Project) -> None:
    host.write(
        "blob/k.cpp", '#include "a/x.h"\n#include "dir.h"\n#include "loop.h"\n#include "pipe.h"\n#include "no.h"\n'
    )
    host.write("blob/a/x.h", '#include "../a/y.h"\n#include "../a/self/../x.h"\n')
    host.write("blob/a/y.h", '#include "../a/x.h"\n#include "self/self/y.h"\n')
    (host.dir / "blob/a/self").symlink_to(".")
    (host.dir / "blob/loop.h").symlink_to("loop.h")
    (host.dir / "blob/dir.h").mkdir()
    os.mkfifo(host.dir / "blob/pipe.h")
    (host.dir / "blob/no.h").write_text("\n")
    (host.dir / "blob/no.h").chmod(0)
    found = [os.path.normpath(h) for h in headers(host)]
    assert {"blob/a/x.h", "blob/a/y.h"} <= set(found) and len(found) <= 6, found
    assert not {"blob/dir.h", "blob/loop.h", "blob/pipe.h"} & set(found)


def test_a_file_by_two_names_is_looked_through_at_each_place(host: Project) -> None:
    host.write("blob/k.cpp", '#include "one/x.h"\n#include "two/x.h"\n')
    host.write("blob/one/x.h", '#include "own.h"\n')
    host.write("blob/one/own.h", "\n")
    host.write("blob/two/own.h", "\n")
    (host.dir / "blob/two/x.h").symlink_to("../one/x.h")
    assert sorted(headers(host)) == ["blob/one/own.h", "blob/one/x.h", "blob/two/own.h", "blob/two/x.h"]


@pytest.mark.parametrize(
    ("piece", "times"),
    [("x", 10_000_000), ("\\'", 5_000_000), ('R"(', 3_000_000), ("/*", 5_000_000), ("\\\n", 5_000_000)],
)
def test_a_huge_header_is_read_to_its_end(host: Project, piece: str, times: int) -> None:
    text = piece * times
    host.write("blob/k.cpp", '#include "huge.h"\n')
    host.write("blob/huge.h", f'{text}\n#include "last.h"\n')
    host.write("blob/last.h", "\n")
    assert "blob/huge.h" in headers(host)
    if text[0] == "x":
        assert "blob/last.h" in headers(host)


def test_nvcc_s_spellings_and_lists(fake: Project) -> None:
    for name in ("one/x.h", "two/y.h", "three/z.h", "f1.h", "f2.h"):
        fake.write(name, "\n")
    fake.write("blob/k.cu", '#include <x.h>\n#include "y.h"\n#include "z.h"\n')
    line = "nvcc -I none,one --include-path=two -isystem=three --pre-include f1.h,f2.h -c blob/k.cu -o k.o -MF k.d "
    fake.ok(*shlex.split(line + "-MD"))
    assert prerequisites((fake.dir / "k.d").read_text()) == ["f1.h", "f2.h", "one/x.h", "two/y.h", "three/z.h"]
    fake.ok(*shlex.split(line + "--generate-nonsystem-dependencies-with-compile --generate-dependency-targets"))
    text = (fake.dir / "k.d").read_text()
    assert prerequisites(text) == ["f1.h", "f2.h", "one/x.h", "two/y.h"]
    assert text.endswith("\none/x.h:\ntwo/y.h:\n")


# -- the lists that are kept -----------------------------------------------------------------------


def test_a_kept_list_serves_other_blobs_and_follows_changes(host: Project) -> None:
    for name in ("k", "l"):
        host.write(f"blob/{name}.cpp", '#include "../a.h"\n')
    host.write("a.h", '#include "b.h"\n')
    host.write("b.h", "\n")
    host.write("c.h", "\n")
    kept = host.interception.log.parent / "headers"
    assert headers(host) == ["blob/../a.h", "blob/../b.h"]
    before = {p.name: p.stat().st_ino for p in kept.iterdir()}
    host.ok("g++", "-MD", "-c", "blob/l.cpp", "-o", "l.o")
    assert prerequisites((host.dir / "l.d").read_text()) == ["blob/../a.h", "blob/../b.h"]
    assert {p.name: p.stat().st_ino for p in kept.iterdir()} == before and len(before) == 1
    host.write("b.h", '#include "c.h"\n')
    assert headers(host) == ["blob/../a.h", "blob/../b.h", "blob/../c.h"]
    assert headers(host, "-Iother") == ["blob/../a.h", "blob/../b.h", "blob/../c.h"]
    assert len(list(kept.iterdir())) == 2  # other directories make another list


def test_a_set_up_forgets_lists(make_project: MakeProject) -> None:
    project = make_project(toolchain="host")
    project.write("blob/k.cpp", "#include <a.h>\n")
    project.write("two/a.h", "\n")
    assert headers(project, "-Ione", "-Itwo") == ["two/a.h"]
    again = make_project(toolchain="host")
    assert not (again.interception.log.parent / "headers").exists()


def test_a_damaged_list_is_made_anew(host: Project) -> None:
    host.write("blob/k.cpp", '#include "a.h"\n')
    host.write("blob/a.h", '#include "b.h"\n')
    host.write("blob/b.h", "\n")
    assert headers(host) == ["blob/a.h", "blob/b.h"]
    (kept,) = (host.interception.log.parent / "headers").iterdir()
    whole = kept.read_bytes()
    for size in range(0, len(whole), 7):
        for mangled in (whole[:size], whole[:size] + b"\xff" * 8 + whole[size + 8 :]):
            kept.write_bytes(mangled)
            assert "blob/a.h" in headers(host)
    kept.write_bytes(b"")
    assert headers(host) == ["blob/a.h", "blob/b.h"]
    assert kept.read_bytes() == whole


def test_a_tmp_dir_that_cannot_be_written_to_costs_only_time(host: Project) -> None:
    host.write("blob/k.cpp", '#include "a.h"\n')
    host.write("blob/a.h", "\n")
    (host.interception.log.parent / "headers").write_text("in the way")
    assert headers(host) == ["blob/a.h"]


def test_64_parallel_jobs_share_a_list(host: Project) -> None:
    for i in range(100):
        host.write(f"inc/h{i}.h", f'#include "h{i + 1}.h"\n')
        host.write(f"blob/b{i}.cpp", "#include <h0.h>\n")
    command = "seq 0 99 | xargs -P64 -I{} g++ -Iinc -MD -c blob/b{}.cpp -o b{}.o"
    subprocess.run(["sh", "-c", command], cwd=host.dir, env=host.interception.env, check=True)
    expected = [f"inc/h{i}.h" for i in range(100)]
    assert all(prerequisites((host.dir / f"b{i}.d").read_text()) == expected for i in range(100))
    (kept,) = (host.interception.log.parent / "headers").iterdir()
    assert len(kept.name) == 16
