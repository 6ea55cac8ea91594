"""Test what goes into a bundle, and how a compile command refers to it."""

import hashlib
import os
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from support import Lazyck
from support.changed_runtime import changed_runtime

from lazyck import abi
from lazyck.formats.manifest import BlobRecord, Manifest, Recipe, UnitRecipes, decode
from lazyck.formats.tarball import EPOCH
from lazyck.postbuild.bundle import (
    FileDigests,
    Identity,
    PragmaOnce,
    blob_digest,
    deploy,
    device_recipe,
    entry_recipe,
    make_recipe,
    write,
)
from lazyck.postbuild.bundle_paths import (
    BundlePaths,
    common_prefix,
    header_directories,
    inside,
    map_env,
    map_paths,
    path_outside,
    with_parents,
)
from lazyck.postbuild.cxx.includes import with_relative_includes
from lazyck.postbuild.describe import digest_of_keys
from lazyck.toolchains import by_name
from lazyck.toolchains.command import CompileCommand, Invocation, LinkCommand

COMPILER = Identity("clang-1")
FILES = ["/tmp/build/blob/a.cpp", "/home/me/lib/include/x/y.hpp"]


def places(home: str = "/opt/rocm", shims: dict[str, str] | None = None) -> BundlePaths:
    prefix = common_prefix(FILES)
    return BundlePaths(home, shims or {}, "libx", prefix, with_parents(FILES, prefix))


def test_include_dirs_are_found_in_the_bundle_or_where_the_toolchain_and_the_system_have_them() -> None:
    words = [
        "-I../lib/include",
        "-isystem",
        "/usr/include/hip",
        "-I/opt/rocm/include",
        "-I/nowhere/held",
        "-isystem",
        "/tmp/other",
        "-L/nowhere/lib",
        "-L/opt/rocm/lib",
        "-L/home/me/lib",  # libraries are not in the bundle
        "-DX=/home/me",
    ]
    mapped = map_paths(words, "/home/me/work", by_name("rocm"), places())
    assert mapped == [
        f"-I{abi.PH_ROOT}/libx/tree/home/me/lib/include",
        "-isystem",
        "/usr/include/hip",
        f"-I{abi.PH_TOOLCHAIN}/include",
        f"-L{abi.PH_TOOLCHAIN}/lib",
        "-DX=/home/me",
    ]


def test_headers_are_found_in_words_for_another_compiler_too() -> None:
    words = ["-Xcompiler", "-Wall,-I/home/me/lib/include,-O2", "-Wp,-I/home/me/lib/../lib/include", "/opt/rocm/x.o"]
    here = f"{abi.PH_ROOT}/libx/tree/home/me/lib/include"
    assert map_paths(words, "/home/me", by_name("rocm"), places()) == [
        "-Xcompiler",
        f"-Wall,-I{here},-O2",
        f"-Wp,-I{here}",
        f"{abi.PH_TOOLCHAIN}/x.o",
    ]


@pytest.mark.parametrize(
    ("words", "mapped"),
    [
        ("-Xcompiler -Wall,-I/nowhere,-O2", "-Xcompiler -Wall,-O2"),
        ("-Xcompiler -isystem,/nowhere", ""),
        ("-Xcompiler=-I/nowhere,-L/nowhere/lib", ""),
        ("-Xcompiler -I/nowhere,-I/usr/include/x", "-Xcompiler -I/usr/include/x"),
        ("-Wp,-I/nowhere -O1", "-O1"),
        ("-Wl,-rpath,/nowhere:/usr/lib,-z,now", "-Wl,-z,now"),
        ("-Wl,-rpath-link=/nowhere -Wl,-rpath,/usr/lib", "-Wl,-rpath,/usr/lib"),
        ("-Wl,-L/nowhere,--library-path=/nowhere,-O1", "-Wl,-O1"),
    ],
)
def test_a_directory_that_others_can_make_is_in_no_word_for_another_program(words: str, mapped: str) -> None:
    toolchain = by_name("cuda" if "Xcompiler" in words else "rocm")
    assert map_paths(words.split(), "/home/me", toolchain, places()) == mapped.split()


def test_directories_of_variables_are_mapped_like_those_of_options() -> None:
    variables = [
        ("CPATH", ":../lib/include:/opt/rocm/include:/nowhere"),
        ("LIBRARY_PATH", "/opt/rocm/lib:/home/me/lib/include"),  # not a path for headers
        ("HIP_DEVICE_LIB_PATH", "/opt/rocm/amdgcn"),
        ("SOURCE_DATE_EPOCH", "1"),
        ("C_INCLUDE_PATH", ""),
        ("CPLUS_INCLUDE_PATH", "/nowhere"),
        ("HIPCC_COMPILE_FLAGS_APPEND", "-O1 -isystem /nowhere -I/usr/include/x"),
    ]
    here = f"{abi.PH_ROOT}/libx/tree/home/me/lib"
    assert dict(map_env(variables, "/home/me/lib", by_name("rocm"), places())) == {
        "CPATH": f"{here}:{here}/include:{abi.PH_TOOLCHAIN}/include",
        "LIBRARY_PATH": f"{abi.PH_TOOLCHAIN}/lib",
        "HIP_DEVICE_LIB_PATH": f"{abi.PH_TOOLCHAIN}/amdgcn",
        "SOURCE_DATE_EPOCH": "1",
        "C_INCLUDE_PATH": "",
        "HIPCC_COMPILE_FLAGS_APPEND": "-O1 -I/usr/include/x",
    }


def test_a_directory_of_programs_stays_in_a_recipe(tmp_path: Path) -> None:
    """A path of this machine in a recipe makes its sources eager."""
    variables = [("COMPILER_PATH", f"/nowhere:{tmp_path}:/usr/lib/gcc")]
    assert dict(map_env(variables, "/", by_name("host"), places())) == {"COMPILER_PATH": f"{tmp_path}:/usr/lib/gcc"}


def test_a_program_is_never_looked_for_in_the_bundle() -> None:
    # The bundle's prefix is "/" here, because sources lie in /tmp and in /home.
    assert places().word("/usr/local/bin/nvcc") == "/usr/local/bin/nvcc"
    assert places().word("/tmp/build/tool") == "/tmp/build/tool"


def test_a_shim_home_is_spoken_of_as_the_real_home() -> None:
    there = places("/opt/rocm", {"/tmp/lazyck/home-rocm": "/opt/rocm"})
    assert there.word("/tmp/lazyck/home-rocm/bin/hipcc") == f"{abi.PH_TOOLCHAIN}/bin/hipcc"
    assert there.is_foreign("/tmp/lazyck/home-rocm/include/hip/hip_runtime.h")


def test_headers_of_a_home_named_by_a_link_stay_out_of_the_bundle(tmp_path: Path) -> None:
    (tmp_path / "cuda-13.0").mkdir()
    (tmp_path / "cuda").symlink_to("cuda-13.0")
    places = BundlePaths(str(tmp_path / "cuda"), {}, "libx")
    assert places.is_foreign(str(tmp_path / "cuda" / "include" / "a.h"))
    assert places.is_foreign(str(tmp_path / "cuda-13.0" / "include" / "a.h"))
    assert not places.is_foreign(str(tmp_path / "cuda-14.0" / "include" / "a.h"))
    (tmp_path / "current").symlink_to("cuda")
    for name in ("cuda", "cuda-13.0", "current"):
        assert places.searched(str(tmp_path / name / "include")) == f"{abi.PH_TOOLCHAIN}/include"


def test_a_home_that_is_the_system_is_no_home() -> None:
    assert places("/usr").word("/usr/bin/hipcc") == "/usr/bin/hipcc"


def test_the_key_changes_with_everything_that_a_compile_reads(tmp_path: Path) -> None:
    source, header = tmp_path / "a.cpp", tmp_path / "a.hpp"
    source.write_text("1")
    header.write_text("2")
    there = BundlePaths("", {}, "libx", str(tmp_path))

    def key(**changes: str) -> str:
        from lazyck.formats.manifest import Recipe

        env = (("CPATH", changes.get("env", "x")),)
        recipe = Recipe("host", "id", "", (), ("cc", changes.get("flag", "-O1")), ("cc",), (), env)
        contents = FileDigests()
        headers = contents.of_headers(frozenset({str(header)}), there)
        library = (changes.get("machine", "x86_64"),)
        return blob_digest(recipe, "libx", library, contents.of_file(str(source)), headers)

    keys = {key(), key(flag="-O2"), key(env="y"), key(machine="aarch64")}
    source.write_text("1 ")
    keys.add(key())
    header.write_text("2 ")
    keys.add(key())
    assert len(keys) == 6
    assert key() == key()


def empty(library: str) -> Manifest:
    return Manifest(library, f"{library}.so", "", "", (), (), ())


def test_a_new_bundle_replaces_the_old_one_of_the_same_library_only(tmp_path: Path) -> None:
    source = tmp_path / "a.cpp"
    source.write_text("int a;")
    for library in ("libx", "liby"):
        write(tmp_path / "root", {f"{library}/tree/old.cpp": str(source)}, empty(library))
    manifest, size = write(tmp_path / "root", {"libx/tree/new.cpp": str(source)}, empty("libx"))
    contents = (tmp_path / "root/libx/contents").read_bytes()
    assert contents == b"lazyck contents 1\0" + hashlib.sha256(b"int a;").hexdigest().encode() + b" libx/tree/new.cpp\0"
    assert decode(manifest, "libx").contents == hashlib.sha256(contents).hexdigest()
    assert (tmp_path / "root/libx/manifest").read_bytes() == manifest
    assert size == 6 + len(manifest) + len(contents)
    found = sorted(str(p.relative_to(tmp_path / "root")) for p in (tmp_path / "root").rglob("*") if p.is_file())
    assert found == [
        *(f"libx/{name}" for name in ("contents", "manifest", "tree/new.cpp")),
        *(f"liby/{name}" for name in ("contents", "manifest", "tree/old.cpp")),
    ]


@pytest.mark.parametrize(
    "words",
    [
        "-Wl,-soname,libother.so.3",
        "-Wl,-soname=libother.so.3",
        "-Xlinker -soname -Xlinker libother.so.3",
        "-Wl,-h,libother.so.3",
    ],
)
def test_a_soname_of_the_projects_own_is_kept(lazyck: Lazyck, tmp_path: Path, words: str) -> None:
    (tmp_path / "blob").mkdir()
    (tmp_path / "blob" / "f.cpp").write_text('extern "C" int f() { return 4; }\n')
    (tmp_path / "d.cpp").write_text('extern "C" int f();\nextern "C" int g() { return f(); }\n')
    (tmp_path / "map").write_text("V1 { global: g; local: *; };\n")
    script = (
        "c++ -fPIC -c blob/f.cpp -o f.o && c++ -fPIC -c d.cpp -o d.o && "
        f"c++ -shared {words} -Wl,--version-script=map -o libx.so d.o f.o"
    )
    done = lazyck(
        "build", "full", "--toolchain", "host", "--tmp-dir", tmp_path / "t", "--", "sh", "-c", script, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    dynamic = subprocess.run(["readelf", "-d", tmp_path / "libx.so"], capture_output=True, text=True, check=True).stdout
    assert "Library soname: [libother.so.3]" in dynamic
    (tmp_path / "map").unlink()  # `build quick` uses its own copy
    if words.startswith("-Wl,-soname,"):
        env = {"LAZYCK_RUNTIME_SRC": str(changed_runtime(tmp_path))}
        again = lazyck("build", "quick", "--tmp-dir", tmp_path / "t", env=env)
        assert "linked again" in again.stdout, again.stderr
    code = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).g())"
    called = subprocess.run([sys.executable, "-c", code, tmp_path / "libx.so"], capture_output=True, text=True)
    assert called.stdout == "4\n", called.stderr


def test_builds_whose_entries_have_other_keys_have_other_digests() -> None:
    def of(name: str = "one", key: str = "ab", compiler: str = "g++-12", parts: str = "") -> str:
        recipe = Recipe("host", compiler, "", (), ("c++",), ("c++",), ())
        blob = BlobRecord(name, "one.cpp", 0, key, ("one",), units=UnitRecipes(parts, 0, 0) if parts else None)
        return digest_of_keys([blob], [recipe])

    assert of() == of()
    others = {of(), of(name="two"), of(key="cd"), of(compiler="g++-13"), of(parts="ef"), of(parts="gh")}
    assert len(others) == 6


# -- places ----------------------------------------------------------------------------------------


def test_a_path_is_inside_a_directory_by_whole_names() -> None:
    assert inside("/a/b", "/a")
    assert inside("/a", "/a")
    assert inside("/a/b", "/a/")
    assert inside("/a", "/")
    assert not inside("/ab", "/a")
    assert not inside("/a", "/a/b")


def test_a_bundle_holds_its_files_and_their_directories_down_from_the_prefix() -> None:
    assert with_parents(["/p/a/x.h", "/p/a/b/y.h", "/q/z.h"], "/p") == {
        "/p", "/p/a", "/p/a/x.h", "/p/a/b", "/p/a/b/y.h",
    }  # fmt: skip
    assert with_parents(["/a.h"], "/") == {"/", "/a.h"}
    assert common_prefix(["/p/a/x.h", "/p/a/b/y.h"]) == "/p/a"
    assert common_prefix([]) == "/"


def test_a_place_in_the_tree_does_not_depend_on_how_a_path_is_spelled() -> None:
    there = BundlePaths("", {}, "libx", "/p/a")
    assert there.in_bundle("/p/a/x.h") == "libx/tree/x.h"
    for path in ("/p/a/./x.h", "/p/a//x.h", "/p/a/b/../x.h", "/p/b/../a/x.h"):
        assert there.in_tree(path) == "x.h"
    assert there.in_tree("/p/a/..x.h") == "..x.h"
    assert there.in_tree("/p/y.h") == "../y.h"
    assert BundlePaths("", {}, "libx", "/").in_tree("/p/y.h") == "p/y.h"


def test_system_headers_and_the_toolchain_s_are_foreign() -> None:
    for path in ("/usr/include/stdio.h", "/usr/lib/gcc/x.h", "/opt/rocm/include/x.h", "/opt/rocm"):
        assert places().is_foreign(path)
    for path in ("/opt/rocm-6/include/x.h", "/usr/local/share/x.h", "/home/me/x.h"):
        assert not places().is_foreign(path)


def test_a_header_of_the_system_is_never_a_word_of_the_bundle() -> None:
    there = BundlePaths("", {}, "libx", "/", frozenset({"/usr/include/x", "/home/x"}))
    assert there.searched("/usr/include/x") == "/usr/include/x"
    assert there.searched("/home/x") == f"{abi.PH_ROOT}/libx/tree/home/x"
    assert there.searched("/home/y") == ""


def test_directories_of_headers_are_found_in_options_and_variables() -> None:
    words = [
        "-Iinclude",
        "-isystem",
        "/sys/../sys/a",
        "-Wp,-I/wp,-Wall",
        "-O2",
        "--include-directory=/long",
        "/no/option",
    ]
    variables = [("CPATH", "/c:rel"), ("FLAGS", "-O2 -I/flags/../given"), ("OTHER", "/not/a/directory")]
    assert header_directories(words, "/w", by_name("rocm"), variables) == {
        "/w/include", "/sys/a", "/wp", "/long", "/c", "/w/rel", "/given",
    }  # fmt: skip


# -- recipes ---------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path) -> str:
    """A toolchain's home whose compiler takes every option."""
    compiler = tmp_path / "rocm" / "bin" / "hipcc"
    compiler.parent.mkdir(parents=True)
    compiler.write_text("#!/bin/sh\n")
    compiler.chmod(0o755)
    return str(tmp_path / "rocm")


def recipe_of(
    home: str,
    words: Sequence[str],
    *,
    runtime: str = "",
    env: tuple[tuple[str, str], ...] = (),
    found_at: str = "",
) -> Recipe:
    """Return the recipe of a HIP compile with these options, below /home/me."""
    argv = (f"{home}/bin/hipcc", *words, "-c", "/tmp/build/blob/a.cpp", "-o", "/tmp/build/a.o")
    blob = CompileCommand(
        Invocation("hipcc", "rocm", "/home/me", argv, 1, env), "/tmp/build/blob/a.cpp", "/tmp/build/a.o"
    )
    link = LinkCommand(Invocation("hipcc", "rocm", "/home/me", (f"{home}/bin/hipcc", "-shared"), 1, ()), "/tmp/libx.so")
    toolchain = by_name("rocm")
    return make_recipe(blob, toolchain.base_words(blob), toolchain, COMPILER, link, places(found_at or home), runtime)


def test_a_recipe_compiles_by_the_project_s_own_options(home: str) -> None:
    recipe = recipe_of(home, ["-O3", "-Ilib/include", "-DNAME=1"])
    compiler = f"{abi.PH_TOOLCHAIN}/bin/hipcc"
    assert recipe.compile[:2] == (compiler, abi.PH_ARCHS)
    assert recipe.compile[-4:] == ("-c", abi.PH_SOURCE, "-o", abi.PH_OUTPUT)
    own = recipe.compile[2:-4]
    assert [w for w in own if w in ("-O3", "-DNAME=1") or w.startswith("-I")] == [
        "-O3",
        f"-I{abi.PH_ROOT}/libx/tree/home/me/lib/include",
        "-DNAME=1",
    ]
    assert recipe.link[0] == compiler
    assert not {abi.PH_INPUT, abi.PH_OUTPUT} - set(recipe.link)
    assert (recipe.toolchain, recipe.toolchain_id, recipe.home) == ("rocm", "clang-1", home)
    toolchain = by_name("rocm")
    assert (recipe.home_env, recipe.arch_flags) == (toolchain.home_env, toolchain.arch_flags)


def test_a_recipe_has_no_home_if_none_of_its_words_is_there(home: str) -> None:
    assert recipe_of(home, [], found_at="/elsewhere").home == ""


@pytest.mark.parametrize(
    ("words", "path"),
    [
        (["-fplugin=/home/me/x.so"], "/home/me/x.so"),
        (["--sysroot=/tmp/tools"], "/tmp/tools"),
        (["-Xclang", "-mlink-builtin-bitcode", "-Xclang", "/tmp/x.bc"], "/tmp/x.bc"),
        (["-Wl,--version-script,/tmp/map"], "/tmp/map"),
        (["--sysroot=/usr/x", "-I/tmp/tools", "-DX=/home/me", "-D", 'Y="/a b",/c', "-ffile-prefix-map=/home=/x"], ""),
        (["-Xpreprocessor", "-DX=/home/me", "-fdebug-compilation-dir=/home/me", "-frandom-seed=/home/me/x.o"], ""),
    ],
)
def test_an_option_that_leads_out_of_all_that_is_known_is_found(home: str, words: Sequence[str], path: str) -> None:
    assert path_outside(recipe_of(home, words), by_name("rocm")) == path


def test_a_variable_that_leads_out_of_all_that_is_known_is_found(home: str) -> None:
    rocm = by_name("rocm")
    assert path_outside(recipe_of(home, [], env=(("HIP_CLANG_PATH", "/tmp/clang"),)), rocm) == "/tmp/clang"
    assert path_outside(recipe_of(home, [], env=(("HIP_CLANG_PATH", f"{home}/llvm"),)), rocm) == ""


def test_a_runtime_within_the_library_is_linked_right_behind_the_blob(home: str) -> None:
    recipe = recipe_of(home, [], runtime="libx/tree/.lazyck/runtime.o")
    assert recipe.link[recipe.link.index(abi.PH_INPUT) + 1] == f"{abi.PH_ROOT}/libx/tree/.lazyck/runtime.o"


def test_a_compile_has_a_date_of_its_own_or_the_build_s(home: str) -> None:
    assert [value for name, value in recipe_of(home, []).env if name == "SOURCE_DATE_EPOCH"] == [str(EPOCH)]
    given = recipe_of(home, [], env=(("SOURCE_DATE_EPOCH", "77"),)).env
    assert [value for name, value in given if name == "SOURCE_DATE_EPOCH"] == ["77"]


def test_device_code_is_compiled_by_the_same_command_through_a_program_of_the_bundle(home: str) -> None:
    whole = recipe_of(home, ["-O3", f"-DID={abi.PH_NAME}"])
    device = device_recipe(whole, by_name("rocm"), "libx/tree/.lazyck/unit")
    head, command = device.compile[:6], device.compile[6:]
    assert head == (
        f"{abi.PH_ROOT}/libx/tree/.lazyck/unit", by_name("rocm").unit_verbs[1], abi.PH_KERNEL, abi.PH_SOURCE,
        abi.PH_OUTPUT, "--",
    )  # fmt: skip
    assert command[0] == whole.compile[0]
    assert command[-2:] == ("-o", "unit.o")
    assert "-O3" in command
    assert "-DID=0" in command
    assert device.link == ()
    entry = entry_recipe(whole, by_name("rocm"), "libx/tree/.lazyck/unit")
    assert entry.compile == (head[0], by_name("rocm").entry_verb, *device.compile[2:])
    assert entry.link == whole.link


# -- keys ------------------------------------------------------------------------------------------


def test_every_word_of_a_recipe_is_in_the_key_in_its_place() -> None:
    def key(name: str = "libx", **changes: tuple[object, ...]) -> str:
        parts = {
            "compile": ("a", f"{abi.PH_ROOT}/{name}/tree/x"),
            "link": ("c",),
            "arch_flags": ("d",),
            "env": (("e", "f"),),
        }
        recipe = Recipe("host", "id", "", (), **{"compile": (), "link": (), "arch_flags": ()} | parts | changes)  # type: ignore[arg-type]
        return blob_digest(recipe, name, ("machine",), "source", "headers")

    others = {
        key(),
        key(compile=("a",)),
        key(link=()),
        key(arch_flags=("x",)),
        key(env=(("e", "g"),)),
        key(env=(("g", "f"),)),
        key(compile=("a", f"{abi.PH_ROOT}/libx/tree/x", "c"), link=()),
        key(link=("c", "d"), arch_flags=()),
    }
    assert len(others) == 8
    assert key("liby") == key()  # programs share entries


def test_names_and_contents_of_headers_are_in_the_key(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    paths = [tmp_path / name for name in ("a.h", "b.h", "home/c.h")]
    for path in paths:
        path.write_text(path.name)
    there = BundlePaths(str(tmp_path / "home"), {}, "libx", str(tmp_path))

    def key(*names: Path) -> str:
        return FileDigests().of_headers(frozenset(map(str, names)), there)

    assert len({key(*paths), key(*paths[:2]), key(paths[0]), key(paths[1]), key()}) == 5
    before = key(*paths)
    paths[1].rename(tmp_path / "c.h")
    assert key(paths[0], tmp_path / "c.h") != before
    contents = FileDigests()
    first = contents.of_headers(frozenset({str(paths[0])}), there)
    paths[0].write_text("changed")
    assert contents.of_headers(frozenset({str(paths[0])}), there) == first  # each file is read once


# -- files -----------------------------------------------------------------------------------------


def test_absolute_includes_of_files_of_the_bundle_become_relative() -> None:
    where = {"/src/a/x.cpp": "libx/tree/a/x.cpp", "/src/y.h": "libx/tree/y.h"}
    text = b'#include "/src/a/x.cpp"\n # include </src/a/../y.h>\n#include "/elsewhere/z.h"\nint a; // /src/y.h\n'
    assert with_relative_includes(text, "libx/tree/unity/all.cpp", where) == (
        b'#include "../a/x.cpp"\n # include "../y.h"\n#include "/elsewhere/z.h"\nint a; // /src/y.h\n'
    )


def test_equal_files_that_the_build_tells_apart_by_time_stay_apart(tmp_path: Path) -> None:
    def made(name: str, time: int) -> str:
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (time, time))
        return str(tmp_path / name)

    once = b'#pragma once\n#include "below.h"\n'
    apart = PragmaOnce()
    assert apart.kept(once, made("a", 1000), "a") == once
    assert apart.kept(once, made("b", 2000), "b") == once + b"\n"
    assert apart.kept(once, made("c", 1000), "c") == once
    assert apart.kept(once, made("d", 3000), "d") == once + b"\n\n"
    for text in (b"#pragma once\n#include <far.h>\n", b'#include "below.h"\n'):
        assert [apart.kept(text, made(name, i), name) for i, name in enumerate("ef")] == [text, text]


def test_a_second_name_of_a_file_that_is_read_once_includes_the_first(tmp_path: Path) -> None:
    (tmp_path / "a.h").write_text(once := "#pragma once\nstruct S {};\n")
    (tmp_path / "link.h").symlink_to("a.h")
    (tmp_path / "hard.h").hardlink_to(tmp_path / "a.h")
    apart = PragmaOnce()
    places = {"a.h": "x/a.h", "link.h": "x/y/link.h", "hard.h": "hard.h"}
    kept = [apart.kept(once.encode(), str(tmp_path / name), place) for name, place in places.items()]
    assert kept == [once.encode(), b'#include "../a.h"\n', b'#include "x/a.h"\n']


def test_files_of_a_bundle_have_one_time_and_only_our_own_programs_run(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"#!")
    program.chmod(0o755)
    files = {
        "libx/tree/.lazyck/unit": str(program),
        "libx/tree/src/run": str(program),
        "libx/tree/src/a/b": str(program),
    }
    write(tmp_path / "root", files, empty("libx"))
    states = {place: (tmp_path / "root" / place).stat() for place in files}
    assert {place: (s.st_mtime, s.st_mode & 0o777) for place, s in states.items()} == {
        "libx/tree/.lazyck/unit": (0, 0o755),
        "libx/tree/src/run": (0, 0o644),
        "libx/tree/src/a/b": (0, 0o644),
    }
    listed = (tmp_path / "root/libx/contents").read_bytes().split(b"\0")[1:-1]
    assert [record.partition(b" ")[2].decode() for record in listed] == sorted(files)


def test_a_bundle_without_files_is_written_all_the_same(tmp_path: Path) -> None:
    write(tmp_path / "new" / "root", {}, empty("libx"))
    assert sorted(p.name for p in (tmp_path / "new/root/libx").iterdir()) == ["contents", "manifest"]


def test_a_deployed_bundle_is_one_file_that_ends_with_its_contents(tmp_path: Path) -> None:
    (tmp_path / "a.cpp").write_text("int a;")
    for source in ("tree/a.cpp", "tree/sub/b.cpp"):
        write(tmp_path / "root", {f"libx/{source}": str(tmp_path / "a.cpp")}, empty("libx"))
        deploy(tmp_path / "root/libx", tmp_path / "out/libx")
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["libx"]
    assert sorted(p.name for p in (tmp_path / "out/libx").iterdir()) == sorted(["manifest", abi.BUNDLE_ARCHIVE])
    assert (tmp_path / "out/libx/manifest").read_bytes() == (tmp_path / "root/libx/manifest").read_bytes()
    with tarfile.open(tmp_path / "out/libx" / abi.BUNDLE_ARCHIVE) as archive:
        assert archive.getnames() == ["libx/tree/sub/b.cpp", "libx/contents"]
