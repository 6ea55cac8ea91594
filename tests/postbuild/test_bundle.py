"""Test what goes into a bundle, and how a compile command refers to it."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest
from support import Lazyck

from _lazyck import abi
from _lazyck.manifest import BlobRecord, Manifest, Recipe, Units, decode
from _lazyck.postbuild.bundle import (
    Contents,
    Places,
    blob_digest,
    common_prefix,
    map_env,
    map_paths,
    with_parents,
    write,
)
from _lazyck.postbuild.describe import digest_of_keys
from _lazyck.toolchains import by_name

FILES = ["/tmp/build/blob/a.cpp", "/home/me/lib/include/x/y.hpp"]


def places(home: str = "/opt/rocm", shims: dict[str, str] | None = None) -> Places:
    prefix = common_prefix(FILES)
    return Places(home, shims or {}, "libx", prefix, with_parents(FILES, prefix))


def test_include_dirs_of_the_project_are_found_in_the_bundle_and_others_where_they_are() -> None:
    words = [
        "-I../lib/include",
        "-isystem",
        "/usr/include/hip",
        "-I/opt/rocm/include",
        "-I/nowhere/held",
        "-DX=/home/me",
    ]
    mapped = map_paths(words, "/home/me/work", by_name("rocm"), places())
    assert mapped == [
        f"-I{abi.PH_ROOT}/libx/tree/home/me/lib/include",
        "-isystem",
        "/usr/include/hip",
        f"-I{abi.PH_TOOLCHAIN}/include",
        "-I/nowhere/held",
        "-DX=/home/me",
    ]


def test_directories_of_variables_are_mapped_like_those_of_options() -> None:
    variables = [
        ("CPATH", ":../lib/include:/opt/rocm/include:/nowhere"),
        ("LIBRARY_PATH", "/opt/rocm/lib:/home/me/lib/include"),  # not a path for headers
        ("HIP_DEVICE_LIB_PATH", "/opt/rocm/amdgcn"),
        ("SOURCE_DATE_EPOCH", "1"),
        ("C_INCLUDE_PATH", ""),
    ]
    here = f"{abi.PH_ROOT}/libx/tree/home/me/lib"
    assert dict(map_env(variables, "/home/me/lib", by_name("rocm"), places())) == {
        "CPATH": f"{here}:{here}/include:{abi.PH_TOOLCHAIN}/include:/nowhere",
        "LIBRARY_PATH": f"{abi.PH_TOOLCHAIN}/lib:/home/me/lib/include",
        "HIP_DEVICE_LIB_PATH": f"{abi.PH_TOOLCHAIN}/amdgcn",
        "SOURCE_DATE_EPOCH": "1",
        "C_INCLUDE_PATH": "",
    }


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
    places = Places(str(tmp_path / "cuda"), {}, "libx")
    assert places.is_foreign(str(tmp_path / "cuda" / "include" / "a.h"))
    assert places.is_foreign(str(tmp_path / "cuda-13.0" / "include" / "a.h"))
    assert not places.is_foreign(str(tmp_path / "cuda-14.0" / "include" / "a.h"))


def test_a_home_that_is_the_system_is_no_home() -> None:
    assert places("/usr").word("/usr/bin/hipcc") == "/usr/bin/hipcc"


def test_the_key_changes_with_everything_that_a_compile_reads(tmp_path: Path) -> None:
    source, header = tmp_path / "a.cpp", tmp_path / "a.hpp"
    source.write_text("1")
    header.write_text("2")
    there = Places("", {}, "libx", str(tmp_path))

    def key(**changes: str) -> str:
        from _lazyck.manifest import Recipe

        env = (("CPATH", changes.get("env", "x")),)
        recipe = Recipe("host", "id", "", (), ("cc", changes.get("flag", "-O1")), ("cc",), (), env)
        contents = Contents()
        headers = contents.of_headers(frozenset({str(header)}), there)
        library = (changes.get("soname", "libx.so"), changes.get("machine", "x86_64"))
        return blob_digest(recipe, "libx", library, contents.of_file(str(source)), headers)

    keys = {key(), key(flag="-O2"), key(env="y"), key(soname="liby.so"), key(machine="aarch64")}
    source.write_text("1 ")
    keys.add(key())
    header.write_text("2 ")
    keys.add(key())
    assert len(keys) == 7
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
    runtime = tmp_path / "runtime"
    shutil.copytree(Path(__file__).parents[2] / "_lazyck" / "runtime" / "src", runtime)
    with (runtime / "base/text.cpp").open("a") as f:
        f.write("// changed\n")
    if words.startswith("-Wl,-soname,"):
        again = lazyck("build", "quick", "--tmp-dir", tmp_path / "t", env={"LAZYCK_RUNTIME_SRC": str(runtime)})
        assert "linked again" in again.stdout, again.stderr
    code = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).g())"
    called = subprocess.run(["python3", "-c", code, tmp_path / "libx.so"], capture_output=True, text=True)
    assert called.stdout == "4\n", called.stderr


def test_builds_whose_entries_have_other_keys_have_other_digests() -> None:
    def of(name: str = "one", key: str = "ab", compiler: str = "g++-12", parts: str = "") -> str:
        recipe = Recipe("host", compiler, "", (), ("c++",), ("c++",), ())
        blob = BlobRecord(name, "one.cpp", 0, key, ("one",), units=Units(parts, 0, 0) if parts else None)
        return digest_of_keys([blob], [recipe])

    assert of() == of()
    others = {of(), of(name="two"), of(key="cd"), of(compiler="g++-13"), of(parts="ef"), of(parts="gh")}
    assert len(others) == 6
