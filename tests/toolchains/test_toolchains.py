"""Test options, archs, recipes and identities of the toolchains."""

import os
import re
import shutil
import subprocess
from fnmatch import fnmatch
from functools import partial
from pathlib import Path

import pytest

from lazyck import abi
from lazyck.abi import Mode, Role
from lazyck.errors import UsageError
from lazyck.toolchains import ALL, CUDA, HOST, ROCM, Toolchain, by_name, linker_options, lookup
from lazyck.toolchains.base import SourceCompile
from lazyck.toolchains.command import CompileCommand, Invocation, LinkCommand
from lazyck.toolchains.gnu import driver_programs
from lazyck.toolchains.identity import compiler_identity, identity_of
from lazyck.toolchains.linker_options import LinkerItem
from lazyck.toolchains.listed import unknown_linker_options, unknown_options
from lazyck.toolchains.options import CommandItem

CLANG = next((p for n in ("clang++", "clang++-19", "clang++-15") if (p := shutil.which(n))), None)


def command(toolchain: Toolchain, line: str, compiler: str = "/usr/bin/g++") -> CompileCommand:
    words = line.split()
    call = Invocation(toolchain.tools[0], toolchain.name, "/w", (compiler, *words), 1, ())
    return CompileCommand(call, "/w/k.cpp", "/w/k.o")


def base(toolchain: Toolchain, line: str, compiler: str = "/usr/bin/g++") -> list[str]:
    return list(toolchain.base_words(command(toolchain, line, compiler))[1:])


# -- archs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["80", "8.0", "sm_80", "compute_80", "8.0+PTX", "80-real", " 80;8.0,sm_80 "])
def test_spellings_of_a_cuda_arch_mean_the_same(text: str) -> None:
    assert CUDA.parse_archs(text) == ("80",)


def test_arch_lists_are_split_normalised_and_kept_in_order() -> None:
    assert CUDA.parse_archs("9.0a;sm_80,120 10.0") == ("90a", "80", "120", "100")
    assert ROCM.parse_archs("gfx942;gfx950,gfx942 gfx90a:sramecc+:xnack-") == (
        "gfx942", "gfx950", "gfx90a:sramecc+:xnack-",
    )  # fmt: skip
    assert ROCM.parse_archs("gfx9-4-generic") == ("gfx9-4-generic",)
    assert ROCM.parse_archs("") == HOST.parse_archs("anything") == ()


@pytest.mark.parametrize(
    ("toolchain", "text"),
    [(CUDA, "native"), (CUDA, "all"), (CUDA, "Ampere"), (CUDA, "gfx942"), (CUDA, "8"), (ROCM, "native"), (ROCM, "80"),
     (ROCM, "gfx942:xnack"), (ROCM, "gfx")],
)  # fmt: skip
def test_what_is_no_arch_is_an_error_that_names_it(toolchain: Toolchain, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        toolchain.parse_archs(text)


def test_archs_of_command_lines() -> None:
    words: tuple[str, ...] = ("--offload-arch=gfx942,gfx950", "--offload-arch=native", "--cuda-gpu-arch=gfx90a:xnack-")
    assert ROCM.archs_in(words) == (
        "gfx942", "gfx950", "gfx90a:xnack-",
    )  # fmt: skip
    assert ROCM.archs_in(("--offload-arch=gfx942", "--no-offload-arch=all", "--offload-arch=gfx950")) == ("gfx950",)
    words = ("-gencode", "arch=compute_80,code=sm_80", "-gencode=arch=compute_90a,code=[sm_90a,compute_90a]")
    assert CUDA.archs_in(words) == ("80", "90a")
    assert CUDA.archs_in(("--gpu-architecture=native", "-arch", "sm_86")) == ("86",)  # the last one counts
    assert CUDA.archs_in(("-arch=compute_75",)) == ("75",)


@pytest.mark.parametrize(
    ("line", "archs"),
    [
        (
            "-gencode arch=compute_80,code=[sm_80,compute_80] --generate-code=arch=compute_90a,code=sm_90a",
            ("80", "90a"),
        ),
        ('-gencode=arch=compute_80,code=\\"sm_80,sm_86\\"', ("80", "86")),
        ("-gencode arch=compute_100f,code=sm_100f", ("100f",)),
        ("-gencode arch=compute_80,code=compute_80", ("80",)),  # PTX only
        ("-gencode arch=compute_80,code=lto_80", ("80",)),
        ("-arch=sm_80 -gencode arch=compute_90,code=sm_90", ("80", "90")),
        ("-arch compute_80 -code sm_86,compute_80", ("86",)),
        ("--gpu-architecture=compute_80 --gpu-code=sm_80", ("80",)),
        ("-arch=sm_80 -arch=sm_90", ("90",)),
        ("-arch=all-major", ()),
        ("-O2 -DX=sm_80", ()),
    ],
)
def test_archs_in_all_spellings_of_nvcc_are_read_and_left_out(line: str, archs: tuple[str, ...]) -> None:
    words = line.replace("\\", "").split()
    assert CUDA.archs_in(words) == archs
    assert not [
        w for w in base(CUDA, f"{line} -c k.cu -o k.o".replace("\\", "")) if "_" in w and not w.startswith("-D")
    ]


def test_words_of_option_variables_are_words_of_the_command() -> None:
    env: tuple[tuple[str, str], ...] = (
        ("CPATH", "/x"),
        ("NVCC_APPEND_FLAGS", '-arch=sm_80 -DA="b c" -DQ=it\\\'s'),
        ("NVCC_PREPEND_FLAGS", "-O1 -DP"),
    )
    cmd = CompileCommand(Invocation("nvcc", "cuda", "/w", ("nvcc", "-O2", "-c", "k.cu", "-o", "k.o"), 1, env), "", "")
    assert CUDA.base_words(cmd) == ("nvcc", "-O1", "-DP", "-O2", '-DA="b c"', "-DQ=it's")
    assert CUDA.archs_of(cmd, {}) == ("80",)
    assert CUDA.base_env(cmd) == (("CPATH", "/x"),)
    env = (("HIPCC_COMPILE_FLAGS_APPEND", "--offload-arch=gfx942 -DX"),)
    cmd = CompileCommand(
        Invocation("hipcc", "rocm", "/w", ("hipcc", "-O2", "-c", "k.cpp", "-o", "k.o"), 1, env), "", ""
    )
    assert ROCM.base_words(cmd) == ("hipcc", "-O2", "-DX") and ROCM.archs_of(cmd, {}) == ("gfx942",)


def test_archs_are_handed_on_as_each_build_writes_them() -> None:
    assert CUDA.arch_settings(("80", "90a", "120f")) == {
        "TORCH_CUDA_ARCH_LIST": "8.0;9.0a;12.0f", "CUDAARCHS": "80;90a;120f",
    }  # fmt: skip
    assert ROCM.arch_settings(("gfx942", "gfx90a"))["PYTORCH_ROCM_ARCH"] == "gfx942;gfx90a"


@pytest.mark.cuda
@pytest.mark.skipif(CUDA.find(os.environ) is None, reason="nvcc is not installed")
def test_nvcc_says_what_it_compiles_for_where_the_command_does_not(tmp_path: Path) -> None:
    found = CUDA.find(os.environ)
    assert found is not None

    def archs(*words: str) -> tuple[str, ...]:
        call = Invocation("nvcc", "cuda", str(tmp_path), (*found.compiler, *words, "-c", "k.cu", "-o", "k.o"), 1, ())
        cmd = CompileCommand(call, "/w/k.cu", "/w/k.o")
        return CUDA.archs_of(cmd, os.environ) or CUDA.default_archs(cmd, os.environ)

    known = CUDA.known_archs(found, os.environ)
    assert len(archs()) == 1 and archs()[0] in known
    assert {"80", "90"} <= set(archs("-arch=all-major")) <= set(archs("-arch=all")) <= set(known)
    assert archs("-arch=native") == (CUDA.present_archs(found, os.environ) or archs())


# -- base words ------------------------------------------------------------------------------------


def test_base_words_are_what_does_not_name_this_one_compile() -> None:
    line = "-O2 -DX=1 -I inc -c k.cpp -o k.o -MD -MF k.d -MTk.o -MQ k.o -MP -Wp,-MD,x.d -std=c++17"
    assert base(HOST, line) == ["-O2", "-DX=1", "-I", "inc", "-std=c++17"]
    assert base(HOST, "-c k.cpp -ok.o -D NAME=k.cpp") == ["-D", "NAME=k.cpp"]
    line = "-x hip --offload-arch=gfx942 --offload-arch=gfx950 -mllvm -x -c k.cpp -x none -o k.o --rocm-path=/r"
    assert base(ROCM, line) == ["-x", "hip", "-mllvm", "-x", "--rocm-path=/r"]
    line = (
        "-gencode arch=compute_80,code=sm_80 -gencode=arch=compute_90,code=sm_90 -arch=sm_80 --threads 4 -Xfatbin "
        "-compress-all --generate-dependencies-with-compile --dependency-output k.d -c k.cu -o=k.o --keep -ccbin g++"
    )
    assert base(CUDA, line) == ["--threads", "4", "-Xfatbin", "-compress-all", "-ccbin", "g++"]
    assert base(CUDA, "-I /a,/b -isystem=/c,/d -DX=a,b") == [
        "-I",
        "/a",
        "-I",
        "/b",
        "-isystem",
        "/c",
        "-isystem",
        "/d",
        "-DX=a,b",
    ]


def separate(toolchain: Toolchain) -> set[str]:
    """Return the options whose value is the next word."""
    return {r.text for r in toolchain.table.rules if r.mode is Mode.SEPARATE}


def test_tables_are_consistent() -> None:
    for toolchain in ALL:
        texts = [(r.mode.value in "pan", r.text) for r in toolchain.table.rules]
        assert len(texts) == len(set(texts)), [t for t in texts if texts.count(t) > 1]
        assert toolchain.path_options
        assert by_name(toolchain.name) is toolchain
        assert {"-o", "-I", "-x"} <= separate(toolchain)
    assert {"-Xclang", "-mllvm", "-isystem", "-include", "-Xlinker", "-MF"} <= separate(ROCM)
    assert {"-Xcompiler", "-gencode", "-Xptxas", "--compiler-options"} <= separate(CUDA)


# -- recipes ---------------------------------------------------------------------------------------


def test_a_recipe_shows_symbols() -> None:
    words = HOST.recipe_words(
        ("/usr/bin/g++", "-O3", "-fvisibility=hidden", "-fvisibility-inlines-hidden", "-flto=auto", "-fPIC")
    )
    assert words == ("/usr/bin/g++", "-O3", "-fPIC", "-fPIC", "-fno-gnu-unique", f"-frandom-seed={abi.PH_NAME}")


@pytest.mark.parametrize(("option", "predefined"), [
    ("-fno-pic", {}), ("-fPIE", {"__PIC__": "2", "__PIE__": "2"}), ("-fpie", {"__PIC__": "1", "__PIE__": "1"}),
    ("-fpic", {"__PIC__": "1"}), ("-fPIC", {"__PIC__": "2"}),
])  # fmt: skip
@pytest.mark.parametrize("compiler", ["g++", "clang++-19"])
def test_a_recipe_predefines_what_the_build_s_options_do(
    compiler: str, option: str, predefined: dict[str, str]
) -> None:
    path = shutil.which(compiler)
    if path is None:
        pytest.skip(f"no {compiler} on PATH")
    words = [w for w in HOST.recipe_words((path, option)) if not w.startswith("-frandom-seed")]
    done = subprocess.run([*words, "-dM", "-E", "-x", "c++", "/dev/null"], capture_output=True, text=True, check=True)
    assert dict(re.findall(r"#define (__PI[CE]__) (\d)", done.stdout)) == predefined


@pytest.mark.parametrize(("options", "expected"), [("-flto", True), ("-flto=auto", True), ("-flto -fno-lto", False)])
def test_a_static_of_a_header_is_unique_as_in_what_lto_makes(options: str, expected: bool) -> None:
    assert ("-fno-gnu-unique" in HOST.recipe_words(("/usr/bin/g++", *options.split()))) == expected


@pytest.mark.skipif(CLANG is None, reason="clang is not installed")
def test_clang_is_not_given_a_flag_that_it_does_not_know() -> None:
    assert ROCM.recipe_words((CLANG or "", "-x", "hip")) == (CLANG, "-x", "hip", "-fPIC", f"-cuid={abi.PH_NAME}")


def test_a_compiler_that_knows_no_option_for_names_gets_none(tmp_path: Path) -> None:
    old = tmp_path / "clang++"
    old.write_text('#!/bin/sh\ncase " $* " in *" -cuid="*|*" -frandom-seed="*) exit 1;; esac\n')
    old.chmod(0o755)
    for toolchain in (HOST, ROCM):
        assert toolchain.recipe_words((str(old), "-O2")) == (str(old), "-O2", "-fPIC")


def test_the_link_of_a_blob_does_not_compile_the_library() -> None:
    link = LinkCommand(command(ROCM, "").call, "/w/lib.so")
    words = ROCM.link_words(("/r/llvm/bin/clang++", "-x", "hip", "-DX", "-I/i", "--rocm-path=/r", "-O3", "-Wall"), link)
    assert words == (
        "/r/llvm/bin/clang++", "--rocm-path=/r", "-fPIC", "-shared", "--hip-link", "-o",
        abi.PH_OUTPUT, abi.PH_INPUT,
    )  # fmt: skip
    assert "--hip-link" not in ROCM.link_words(("/r/bin/hipcc",), link)


def test_a_configuration_file_is_one_of_a_compiler_s_own(tmp_path: Path) -> None:
    config, driver = tmp_path / "clang++.cfg", tmp_path / "clang++"
    config.write_text("-DN=1\n")
    driver.write_text(f"#!/bin/sh\necho 'Configuration file: {config}' >&2\n")
    driver.chmod(0o755)
    assert driver_programs((str(driver),), "c++", ()) == (str(driver), str(config))


def test_the_link_of_a_blob_has_no_words_that_its_compile_ignored(tmp_path: Path) -> None:
    """`-ffast-math` would link an object that changes how the program computes."""
    ignored = ("-O3", "-ffast-math", "-mpc64", "-Wl,-z,defs", "-nostdlib", "-L/x", "-lm", "-z", "now", "-s", "-static")
    kept = ("--sysroot=/s", "-march=x86-64-v3", "-fopenmp", "-fsanitize=address", "-fuse-ld=lld")
    link = LinkCommand(command(HOST, "").call, "/w/lib.so")
    assert HOST.link_words(("/g++", "-mandroid", *ignored, *kept), link)[1:-5] == kept
    words = CUDA.link_words((str(tmp_path / "nvcc"), "-Xlinker", "-z,defs", "-Xcompiler", "-ffast-math,-fopenmp"), link)
    assert words[1:3] == ("-Xcompiler", "-fopenmp") and "-z,defs" not in words


@pytest.mark.parametrize(
    ("tool", "line", "kind"),
    [("nvcc", "-shared a.o", "static"), ("nvcc", "-cudart shared a.o", "shared"), ("nvcc", "--cudart=none", "none"),
     ("nvcc", "-cudart none a.o -lcudart_static", "static"), ("nvcc", "-cudart none a.o -lcudart", "shared"),
     ("c++", "-shared a.o -lcudart", "shared"), ("c++", "/c/lib64/libcudart.so", "shared"),
     ("c++", "-lcudart_static", "static"), ("c++", "-shared a.o", "none")],
)  # fmt: skip
def test_a_cuda_blob_follows_the_library_s_runtime(tmp_path: Path, tool: str, line: str, kind: str) -> None:
    call = Invocation(tool, "host", "/w", (f"/usr/bin/{tool}", *line.split()), 1, ())
    nvcc = tmp_path / "nvcc"
    nvcc.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 12.4, V12.4.131'\n")
    nvcc.chmod(0o755)
    link = LinkCommand(call, "/w/lib.so")
    words = CUDA.link_words((str(nvcc), "-O3", "-ccbin", "g++-12", "-x", "cu"), link)
    # The soname exists even if `libcudart.so` does not.
    assert ("-l:libcudart.so.12" in words) == (kind == "shared")
    assert CUDA.takes_static_runtime(link) == (kind == "static")
    assert words[words.index("-cudart") + 1] == "none"
    assert "-x" not in words and words[1:3] == ("-ccbin", "g++-12")


def test_a_recipe_compiles_links_and_loads(tmp_path: Path) -> None:
    (tmp_path / "main.cpp").write_text("int helper() { return 41; }\n")
    (tmp_path / "k.cpp").write_text("int helper();\nint k() { return helper() + 1; }\n")

    def run(*argv: str) -> None:
        subprocess.run(argv, cwd=tmp_path, check=True)

    run("g++", "-shared", "-fPIC", "main.cpp", "-o", "libmain.so")
    first = ("/usr/bin/g++", "-O1", "-fvisibility=hidden", "-Wall", "-Werror")
    run(*HOST.recipe_words(first), "-c", "k.cpp", "-o", "k.o")
    places = {abi.PH_OUTPUT: "k.so", abi.PH_INPUT: "k.o"}
    run(*[places.get(w, w) for w in HOST.link_words(first, LinkCommand(command(HOST, "").call, "libmain.so"))])
    shown = subprocess.run(["nm", "-D", "k.so"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert " T _Z1kv" in shown


def test_host_commands_run(tmp_path: Path) -> None:
    (tmp_path / "k.cpp").write_text('#include "k.h"\nint k() { int unused; return N; }\n')
    (tmp_path / "k.h").write_text("#define N 3\n")
    first = ("/usr/bin/g++", "-Werror", "-Wall", "-I", str(tmp_path), "-flto")
    subprocess.run(HOST.host_preprocess_command(SourceCompile(first, "k.cpp", "k.ii")), cwd=tmp_path, check=True)
    assert "return 3;" in (tmp_path / "k.ii").read_text() and '# 1 "k.h" 1' in (tmp_path / "k.ii").read_text()
    subprocess.run(HOST.host_compile(SourceCompile(first, "k.cpp", "k.o")), cwd=tmp_path, check=True)
    shown = subprocess.run(["nm", "k.o"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert "T _Z1kv" in shown


@pytest.mark.cuda
@pytest.mark.skipif(CUDA.find(os.environ) is None, reason="nvcc is not installed")
def test_nvcc_commands_run(tmp_path: Path) -> None:
    found = CUDA.find(os.environ)
    assert found is not None
    (tmp_path / "k.cu").write_text(
        '#ifdef __CUDA_ARCH__\n#include "device.h"\n#else\n#include "host.h"\n#endif\n'
        "__global__ void g(int *p) { *p = N; }\nvoid k(int *p) { g<<<1, 1>>>(p); }\n"
    )
    (tmp_path / "device.h").write_text("#define N 1\n")
    (tmp_path / "host.h").write_text("#define N 2\n")
    first = (*found.compiler, "-O3", "-std=c++17", "-Xcompiler", "-fPIC,-fvisibility=hidden", "-Xcompiler=-Wall")
    first = (*first, "--threads", "2")  # changes what --dryrun shows, and makes that of nvcc 12.4 fail
    env = dict(os.environ)
    argv = CUDA.host_preprocess_command(SourceCompile(first, "k.cu", "k.ii", ("80",), str(tmp_path), env))
    subprocess.run(argv, cwd=tmp_path, check=True)
    assert "*p = 2" in (tmp_path / "k.ii").read_text()
    subprocess.run(CUDA.host_compile(SourceCompile(first, "k.cu", "k.o", ("80", "90"))), cwd=tmp_path, check=True)
    (depend,) = CUDA.device_dependencies(SourceCompile(first, "k.cu", "k.d", ("80",), str(tmp_path), env))
    subprocess.run(depend, cwd=tmp_path, check=True)
    assert "device.h" in (tmp_path / "k.d").read_text()
    recipe = CUDA.recipe_words(first)
    assert not any("visibility" in w for w in recipe)
    subprocess.run(
        [*recipe, "-gencode", "arch=compute_80,code=sm_80", "-c", "k.cu", "-o", "r.o"], cwd=tmp_path, check=True
    )
    call = Invocation("nvcc", "cuda", "/w", ("nvcc", "-shared"), 1, ())
    places = {abi.PH_OUTPUT: "k.so", abi.PH_INPUT: "r.o"}
    words = list(CUDA.link_words(first, LinkCommand(call, "lib.so")))
    for placeholder, path in places.items():
        words = [w.replace(placeholder, path) for w in words]
    subprocess.run(words, cwd=tmp_path, check=True)
    shown = subprocess.run(
        ["readelf", "-dW", "--dyn-syms", "k.so"], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert "_Z1kPi" in shown.stdout


@pytest.mark.cuda
@pytest.mark.skipif(CUDA.find(os.environ) is None, reason="nvcc is not installed")
def test_the_table_has_every_option_of_this_nvcc_that_takes_a_value() -> None:
    found = CUDA.find(os.environ)
    assert found is not None
    text = subprocess.run([*found.compiler, "--help"], check=True, capture_output=True, text=True).stdout
    listed = re.findall(r"^(--[\w+-]+)[ \t]+(\S[^\n]*?)[ \t]*\((-[\w+-]+)\)", text, re.M)
    assert len(listed) > 40
    known = {rule.text for rule in CUDA.table.rules}
    assert not [(long, short) for long, value, short in listed if value[0] in "<{" and not {long, short} <= known]


LOOP = (
    "float k(const float* a, float* b, int n) { float s = 0; for (int i = 0; i < n; ++i) s += a[i] * b[i]; return s; }"
)


@pytest.mark.parametrize("compiler", ["g++", "clang++-19"])
@pytest.mark.parametrize("options", ["-march=native", "-mtune=native", "-march=native -mtune=native -mno-avx2"])
def test_options_for_this_cpu_become_options_that_name_it(tmp_path: Path, compiler: str, options: str) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    (tmp_path / "k.cpp").write_text(LOOP)
    words = base(HOST, f"-O3 -ffast-math {options} -c k.cpp", compiler)
    assert "native" not in " ".join(words) and words[:2] == ["-O3", "-ffast-math"]
    made = []
    for given in (["-O3", "-ffast-math", *options.split()], words):
        argv = [compiler, *given, "-S", "k.cpp", "-o", "-"]
        made.append(subprocess.run(argv, cwd=tmp_path, check=True, capture_output=True, text=True).stdout)
    assert made[0] == made[1]


def test_a_level_takes_the_place_of_options_for_this_cpu_if_the_compiler_knows_it() -> None:
    line = "-O2 -march=native -mtune=native -c k.cpp"
    assert HOST.base_words(command(HOST, line, "g++"), "-march=x86-64")[1:] == ("-O2", "-march=x86-64")
    assert HOST.base_words(command(HOST, line, "g++"), "")[1:] == ("-O2",)
    unknown = HOST.base_words(command(HOST, line, "g++"), "-march=x86-64-v99")
    assert unknown[1:] == ("-O2", "-march=native", "-mtune=native")


@pytest.mark.parametrize(
    ("line", "words"),
    [("-O2 -Xcompiler -march=native,-O3", ["-O2", "-Xcompiler", "-march=x86-64,-O3"]),
     ("-Xcompiler=-march=native -O1", ["-Xcompiler", "-march=x86-64", "-O1"])],
)  # fmt: skip
def test_a_level_reaches_the_compiler_below_nvcc(monkeypatch: pytest.MonkeyPatch, line: str, words: list[str]) -> None:
    monkeypatch.setattr(CUDA, "_host_compiler", lambda *_: ("g++",))
    made = CUDA.base_words(command(CUDA, f"{line} -c k.cu -o k.o", "nvcc"), "-march=x86-64")
    assert [*made[1:]] == words
    assert not any("-march" in w for w in CUDA.base_words(command(CUDA, f"{line} -c k.cu", "nvcc"), ""))


def test_options_for_this_cpu_are_known_whatever_the_compiler_calls_its_temporary_files(tmp_path: Path) -> None:
    odd = tmp_path / "g++"
    odd.write_text("""#!/bin/sh
case "$*" in *native*) cpu=' -march=one -mtune=one' ;; *-march=one*) cpu=" $*" ;; *) cpu=' -march=all' ;; esac
echo " cc1$cpu" >&2
case "$*" in *' -c '*) echo " as -o /dev/null /tmp/cc1Xyz.s" >&2 ;; esac
""")
    odd.chmod(0o755)
    assert base(HOST, "-march=native -c k.cpp", str(odd)) == ["-march=one", "-mtune=one"]


def test_options_for_this_cpu_stay_if_the_compiler_does_not_say_what_they_mean(tmp_path: Path) -> None:
    silent = tmp_path / "g++"
    silent.write_text("#!/bin/sh\n")
    silent.chmod(0o755)
    assert base(HOST, "-O2 -march=native -c k.cpp", str(silent)) == ["-O2", "-march=native"]


@pytest.mark.cuda
@pytest.mark.skipif(CUDA.find(os.environ) is None, reason="nvcc is not installed")
def test_options_for_this_cpu_are_resolved_for_the_compiler_below_nvcc() -> None:
    found = CUDA.find(os.environ)
    assert found is not None
    words = base(CUDA, "-O3 -Xcompiler -fPIC,-march=native -c k.cu", found.compiler[0])
    assert words[:2] == ["-O3", "-Xcompiler"] and len(words) == 3
    host = words[2].split(",")
    assert host[0] == "-fPIC" and len(host) > 2 and "native" not in words[2]


# Options that compilers list and that have no row: what nobody passes to a compile of a kernel, and
# what names files, tools or libraries.
EAGER = {
    "g++": "--assert --completion= --dump* --include-* --output-pch= --print-missing-* -Mno-modules -d -fada-* "
    "-finstrument-functions-exclude-* -iplugindir= -quiet",
    "clang++-19": "--amdgpu-arch-tool= --analyzer-output --dxv-path= --embed-dir= --emit-* --extract-api-ignores= "
    "--gpu-* --hip-device-lib= --hipspv-* --hipstdpar-*= --libomptarget-* --migrate --no-wasm-opt --nvptx-arch-tool= "
    "--offload-link --pretty-sgf --ptxas-path= --rsp-quoting= --symbol-graph-dir= --wasm-opt -MV -X* -arcmt-* -b "
    "-ccc-* -d? -darwin-* -dsym-dir -emit-* -hlsl-entry -i* -mmlir -objcmt-* -object-file-name= -print-* -regcall4 "
    "-relocatable-pch -rewrite-legacy-objc -static-openmp -sycl-std= -time -via-file-asm",
    "nvcc": "--augment-host-linker-script --host-linker-script --run-args -aug-hls -hls -run-args",
}


@pytest.mark.parametrize(("compiler", "toolchain"), [("g++", HOST), ("clang++-19", HOST), ("nvcc", CUDA)])
def test_options_that_an_installed_compiler_lists_have_rows(compiler: str, toolchain: Toolchain) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    number, unknown = unknown_options((compiler,), toolchain.table)
    assert number > 200
    assert not [name for name in unknown if not any(map(partial(fnmatch, name), EAGER[compiler].split()))]


# Options that linkers list and that have no row: of other machines and systems, of incremental and
# relocatable links, and for files that are no objects.
EAGER_LINKS = (
    "--E[BL] --accept-* --add-stdcall-alias --architecture --audit --base_file --be8 --chroot --compat-implib --ctf-* "
    "--d[cp] --define-common --depaudit --dependent-libraries --directory --disable-* --dll* --em* --enable-* "
    "--error-limit --exclude-all-symbols --exclude-modules-* --exclude-symbols --export-all-symbols --file-alignment "
    "--fix-arm* --fix-cortex-a8 --fix-v4bx* --force-exe-suffix --format --fortran-common --gpsize --hash-* --heap "
    "--help --icf --ignore-unresolved-symbol --incremental* --kill-at --large-address-aware --long-plt --major-* "
    "--minor-* --mri-script --no-accept-* --no-ctf-* --no-emit-* --no-enum-* --no-fix-arm* --no-fix-cortex-a8 "
    "--no-fortran-common --no-incremental --no-long-plt --no-lto-* --no-pcrel-* --no-plt-* --no-power10-* "
    "--no-stub-group-multi --no-t[lo]* --no-wchar-* --oformat --opt-remarks-with-hotness --out* --pack-dyn-relocs "
    "--pcrel-* --plt-* --power10-* --print-sysroot --relocatable --retain-symbols-file --rsp-quoting --run "
    "--section-alignment --secure-plt --split-* --stack --stub-group-multi --subsystem --support-old-code "
    "--target* --task-link --thread-count-* --thumb-entry --t[lo]* -? -d? -EB -Qy -Ur -assert -no-pipeline-knowledge "
    "-optimize -qmagic -relocatable -z*"
)


@pytest.mark.parametrize("linker", ["ld", "ld.gold", "ld.lld", "ld.mold"])
def test_options_that_an_installed_linker_lists_have_rows(linker: str) -> None:
    path = shutil.which(linker)
    if path is None:
        pytest.skip(f"{linker} is not installed")
    number, unknown = unknown_linker_options(path)
    assert number > 150
    assert not [name for name in unknown if not any(map(partial(fnmatch, name), EAGER_LINKS.split()))]


def test_a_word_for_a_linker_is_known_whole_or_not_at_all() -> None:
    said = "-soname x --soname=y -z now -znow -z nowhere -z max-page-size=9 --no-such --wrap f -wrap=g -Bsymbolic x.o"
    items = linker_options.split(said.split())
    assert [(i.name, i.role.name) for i in items] == [
        ("-soname", "FLAG"), ("--soname", "FLAG"), ("-z now", "FLAG"), ("-z now", "FLAG"), ("-z nowhere", "UNKNOWN"),
        ("-z max-page-size=9", "FLAG"), ("--no-such", "UNKNOWN"), ("--wrap", "WORDS"), ("-wrap", "WORDS"),
        ("-Bsymbolic", "WORDS"), ("", "FLAG"),
    ]  # fmt: skip
    assert linker_options.wrapped(items) == ("f", "g")


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        # Words for one option may stand apart.
        ("-Wl,-soname -shared -Wl,x.o x.o", ["-shared", "linker -soname=x.o", "x.o"]),
        ("-Xlinker -Map -Xlinker a,b.map -Wl,c.a,-lm", ["linker -Map=a,b.map", "linker =c.a", "linker -l=m"]),
        ("-Wl,--whole-archive x.a -Wl,-znow -z defs", [
            "linker --whole-archive", "x.a", "linker -z now=now", "linker -z defs=defs"]),
        ("-T x.ld -u f -e main -lm -Wl,-O", ["linker -T=x.ld", "linker -u=f", "linker -e=main", "-l", "UNKNOWN -O"]),
        # GNU ld takes the next word for the level.
        ("-Wl,-O,--whole-archive -Wl,-O2 x.a", ["linker -O=--whole-archive", "linker -O2", "x.a"]),
        ("-Wl,-rpath x.o", ["UNKNOWN -rpath", "x.o"]),
    ],
)  # fmt: skip
def test_the_words_for_a_linker_are_read_as_the_linker_reads_them(command: str, expected: list[str]) -> None:
    def shown(item: CommandItem) -> str:
        if not isinstance(item, LinkerItem):
            return item.name or item.words[0]
        is_known = item.role is not Role.UNKNOWN
        return ("linker " if is_known else "UNKNOWN ") + item.name + (f"={item.value}" if item.value else "")

    items = linker_options.of_link(HOST.table.split(command.split()), has_lists=False)
    assert list(map(shown, items)) == expected


@pytest.mark.parametrize("lead", ["-Xlinker ", "-Xlinker=", "--linker-options ", "--linker-options="])
def test_nvcc_takes_lists_of_words_for_the_linker(lead: str) -> None:
    given = CUDA.table.split(f"{lead}-z,now,-Map=a.map,--dependency-file,l.d x.o".split())
    items = list(linker_options.of_link(given, has_lists=True))
    assert [(i.name, i.value) for i in items] == [
        ("-z now", "now"), ("-Map", "a.map"), ("--dependency-file", "l.d"), ("", "x.o"),
    ]  # fmt: skip
    assert [isinstance(i, LinkerItem) and i.writes for i in items] == [False, True, True, False]


# -- identity and look-up --------------------------------------------------------------------------


def test_an_identity_is_readable_and_holds_no_place() -> None:
    clang = "clang version 19.1.7 (/src/llvm 123)\nTarget: x86_64-linux\nThread model: posix\nInstalledDir: {}\n"
    assert identity_of(clang.format("/opt/a/bin")) == identity_of(clang.format("/opt/b/bin"))
    assert compiler_identity(("/usr/bin/g++",)).startswith("gcc")
    assert compiler_identity(("/usr/bin/g++",)) == compiler_identity(("/usr/bin/c++",))


def test_words_of_a_variable_are_resolved_once(tmp_path: Path) -> None:
    tool = tmp_path / "a b" / "g++"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    env = {"PATH": f"{tool.parent}:/usr/bin", "A": "g++ -m64 '-DX=a b'", "B": str(tool), "C": "no-such-tool", "D": "'"}
    assert lookup.resolve("A", env) == (str(tool), "-m64", "-DX=a b")
    assert lookup.resolve("B", env) == (str(tool),)
    assert lookup.resolve("C", env) == lookup.resolve("UNSET", env) == ()
    with pytest.raises(UsageError, match="D="):
        lookup.resolve("D", env)


def test_stand_ins_of_compiler_caches_are_passed_over(tmp_path: Path) -> None:
    cache = tmp_path / "bin/ccache"
    cache.parent.mkdir()
    cache.write_text("#!/bin/sh\n")
    cache.chmod(0o755)
    (tmp_path / "masquerade").mkdir()
    (tmp_path / "masquerade/g++").symlink_to(cache)
    env = {"PATH": f"{tmp_path}/masquerade:{tmp_path}/bin:/usr/bin", "CXX": f"{tmp_path}/masquerade/g++"}
    assert lookup.which("g++", env) == "/usr/bin/g++"
    assert lookup.resolve("CXX", env) == ("/usr/bin/g++",)
    assert lookup.resolve("X", {**env, "X": "ccache g++"}) == (str(cache), "/usr/bin/g++")
    assert lookup.without_launchers((str(cache), "/usr/bin/g++", "-m64")) == ("/usr/bin/g++", "-m64")
