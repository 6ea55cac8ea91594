"""Describe ROCm: hipcc, and clang compiling HIP."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from lazyck import abi, proc
from lazyck.errors import ToolchainError, UsageError
from lazyck.toolchains import lookup
from lazyck.toolchains import rocm_places as places
from lazyck.toolchains.base import Found, SourceCompile, accepts
from lazyck.toolchains.command import CompileCommand
from lazyck.toolchains.gnu import GnuToolchain
from lazyck.toolchains.requirement import Requirement, RequirementState, output_of, try_out

_GFX = re.compile(r"gfx(?:[0-9a-f]{3,5}|[0-9]+(?:-[0-9]+)*-generic)(?::(?:sramecc|xnack)[+-])*")
_NAME = re.compile(r"\bgfx[0-9a-f]{3,5}\b")
_ARCH_OPTIONS = frozenset({"--offload-arch", "--cuda-gpu-arch", "--amdgpu-target"})
_NVIDIA = ("nvidia", "nvcc")  # values of HIP_PLATFORM
_DOCS = "https://rocm.docs.amd.com/projects/install-on-linux"
_INSTALL = {
    "apt": f"apt install hipcc libamdhip64-dev rocm-device-libs (newer: AMD's packages, {_DOCS})",
    "dnf": f"dnf install hipcc rocm-hip-devel rocm-device-libs (or AMD's packages, {_DOCS})",
    "pacman": "pacman -S rocm-hip-sdk",
    "any": f"AMD's packages: {_DOCS}, or its pip packages: pip install 'rocm[devel]' from AMD's index",
}
_HEADERS = {"apt": "apt install libamdhip64-dev", "dnf": "dnf install rocm-hip-devel", "any": _INSTALL["any"]}
_DEVICE_LIBS = {"apt": "apt install rocm-device-libs", "dnf": "dnf install rocm-device-libs", "any": _INSTALL["any"]}
_LINKER = {"apt": "apt install lld", "dnf": "dnf install lld", "any": _INSTALL["any"]}
_USUAL = ("gfx942", "gfx90a", "gfx1100", "gfx1030")  # archs to try a kernel for, if no GPU says which
_KERNEL = "#include <hip/hip_runtime.h>\n__global__ void k(float* p) { p[threadIdx.x] *= 2; }\n"
_KERNEL += 'extern "C" int run(float* p) { k<<<1, 64>>>(p); return hipGetLastError(); }\n'

# See `try_out`.
_COMPLAINTS = (
    ("hip/hip_runtime.h' file not found", "headers", _HEADERS),
    ("cannot find HIP runtime", "headers", _HEADERS),
    ("cannot find ROCm device library", "device libraries", _DEVICE_LIBS),
    ("cannot find -lamdhip64", "runtime library", _HEADERS),
    ("unable to find library -lamdhip64", "runtime library", _HEADERS),
    ("lld", "device linker", _LINKER),
    ("", "kernel", _INSTALL),
)


class RocmToolchain(GnuToolchain):
    name = abi.TOOLCHAIN_ROCM
    tools = ("hipcc",)
    home_env = ("ROCM_PATH", "ROCM_HOME", "HIP_PATH")
    searched = f"HIPCC, {', '.join(home_env)}, hipcc on PATH, {places.DEFAULT_HOME}, HIPCXX, amdclang++ on PATH"
    compiler_env = ("HIPCC", "HIPCXX")
    flag_env = (
        *GnuToolchain.flag_env,
        "HIPCC_COMPILE_FLAGS_APPEND",
        "HIPCC_LINK_FLAGS_APPEND",
        "HIP_PLATFORM",
        "HIP_COMPILE_CXX_AS_HIP",
        "HIP_CLANG_HCC_COMPAT_MODE",
        "HIP_COMPILER",
        "HIP_RUNTIME",
        "HIP_CLANG_FLAGS",
        "HIP_CLANG_PATH",
        "HIP_ROCCLR_HOME",
        "HIP_LIB_PATH",
        "HSA_PATH",
        "HIP_DEVICE_LIB_PATH",
        "DEVICE_LIB_PATH",
        # clang looks for HIP's headers and device libraries here.
        "ROCM_PATH",
        "HIP_PATH",
        # clang-offload-bundler reads these.
        "OFFLOAD_BUNDLER_COMPRESS",
        "OFFLOAD_BUNDLER_COMPRESSION_LEVEL",
        "OFFLOAD_BUNDLER_IGNORE_ENV_VAR",
    )
    append_env = ("HIPCC_COMPILE_FLAGS_APPEND",)
    arch_env = ("GPU_ARCHS", "PYTORCH_ROCM_ARCH", "AMDGPU_TARGETS", "HCC_AMDGPU_TARGET")
    path_options = GnuToolchain.path_options | {"--rocm-path", "--hip-path", "--rocm-device-lib-path"}
    languages: ClassVar[Mapping[str, str]] = {**GnuToolchain.languages, "hip": "rocm", "cu": "rocm", "cuda": "rocm"}
    install: ClassVar[Mapping[str, str]] = _INSTALL
    arch_flags = (f"--offload-arch={abi.PH_ARCH}",)
    unit_globs = ("*.hip", "*.cu")
    unit_suffixes = tuple(s for s in GnuToolchain.source_suffixes if s != ".c")
    unit_verbs = (abi.UNIT_HIP_HOST, abi.UNIT_HIP_KERNEL)
    entry_verb = abi.UNIT_HIP_ENTRY
    host_only = ("--cuda-host-only",)
    # Without device code, all have one identity (`__hip_cuid_`), and no handle of such code.
    host_only_link = ("-Xlinker", "-z", "-Xlinker", "muldefs", "-Xlinker", "--defsym=__hip_gpubin_handle_=0")
    _dropped = GnuToolchain._dropped | _ARCH_OPTIONS | {"--no-offload-arch", "--no-cuda-gpu-arch"}

    def find(self, env: Mapping[str, str]) -> Found | None:
        named = lookup.compiler_of("HIPCC", env)
        for home in (env.get(v, "") for v in self.home_env):
            for candidate in (home, places.whole_home(home)[0]) if home else ():
                found = self._at(candidate, named)
                if found:
                    return found
        if words := lookup.compiler_of("HIPCC", env, ("hipcc",)):
            home = places.home_of_program(words[0], env)
            # For a console script of pip's packages, use the compiler that it starts.
            real = places.hipcc_in(home) if "/_rocm_sdk_" in home and not named else ""
            return Found(self, home, (real,) if real else words)
        return self._at(places.DEFAULT_HOME, ()) or self._by_clang(env)

    def _at(self, home: str, named: tuple[str, ...]) -> Found | None:
        path = places.hipcc_in(home) or places.clang_in(home)
        return Found(self, str(Path(home).absolute()), named or (path,)) if path else None

    def _by_clang(self, env: Mapping[str, str]) -> Found | None:
        words = lookup.compiler_of("HIPCXX", env, ("amdclang++",))
        return Found(self, places.home_of_program(words[0], env), words) if words else None

    def home_programs(self) -> dict[str, str]:
        """Return hipcc wherever a ROCm has it, and its clangs, which CMake and others call."""
        hipccs = {f"{d}/hipcc": self.name for d in ("bin", "hip/bin", "llvm/bin", "lib/llvm/bin")}
        return hipccs | {f"{d}/{name}": "host" for d in places.CLANG_DIRS for name in places.CLANGS}

    def whole_home(self, home: str) -> tuple[str, str]:
        return places.whole_home(home)

    def implied_compilers(self, found: Found, env: Mapping[str, str]) -> dict[str, str]:
        """Return HIPCXX: CMake looks for HIP's compiler where hipconfig says, which may be outside
        the home that a build sees."""
        if env.get("HIP_PLATFORM") in _NVIDIA:
            return {}
        path = "llvm/bin/clang++" if places.clang_in(found.home) else places.clang_of_hipconfig(found.home, env)
        return {"HIPCXX": path} if path else {}

    def pass_when(self, found: Found, env: Mapping[str, str]) -> tuple[tuple[str, str, str], ...]:
        rows = [("HIP_PLATFORM", value, abi.WHY_HIP_ON_NVIDIA) for value in _NVIDIA]
        if not env.get("HIP_PLATFORM") and self.is_nvcc(found, env):
            rows.append(("HIP_PLATFORM", "", abi.WHY_HIP_ON_NVIDIA))
        return tuple(rows)

    def is_nvcc(self, found: Found, env: Mapping[str, str]) -> bool:
        """Return whether this hipcc would run nvcc, as with an nvcc but no clang of its own."""
        if env.get("HIP_PLATFORM"):
            return env["HIP_PLATFORM"] in _NVIDIA
        nvccs = (f"{env.get('CUDA_PATH') or '/usr/local/cuda'}/bin/nvcc", lookup.which("nvcc", env) or "")
        if not Path(found.compiler[0]).name.startswith("hipcc") or not any(map(lookup.is_program, nvccs)):
            return False
        return "Cuda compiler driver" in output_of([*found.compiler, "--version"], env)

    def parse_archs(self, text: str) -> tuple[str, ...]:
        archs = [a for a in re.split(r"[;,\s]+", text) if a]
        for arch in archs:
            if arch in ("native", "all"):
                raise UsageError(f"{arch!r} names no arch", "name the archs, for example --gpu-archs 'gfx942;gfx950'")
            if not _GFX.fullmatch(arch):
                raise UsageError(
                    f"{arch!r} is not an AMD GPU arch", "write for example gfx942 or gfx90a:sramecc+:xnack-"
                )
        return tuple(dict.fromkeys(archs))

    def arch_settings(self, archs: Sequence[str]) -> dict[str, str]:
        # hipcc puts this into a shell's command line as it is, so it must not contain semicolons.
        return {**super().arch_settings(archs), "HCC_AMDGPU_TARGET": ",".join(archs)}

    def archs_of(self, cmd: CompileCommand, env: Mapping[str, str]) -> tuple[str, ...]:
        words = self.all_words(cmd)
        named = self.archs_in(words)
        if any("native" in word for word in words) and self.names_native(words) and (found := self.find(env)):
            named += self.present_archs(found, env)
        return tuple(dict.fromkeys(named))

    def names_native(self, words: Sequence[str]) -> bool:
        items = (i for i in self.table.split(words) if i.name in _ARCH_OPTIONS)
        return any("native" in (i.value or "").split(",") for i in items)

    def archs_in(self, words: Sequence[str]) -> tuple[str, ...]:
        found: dict[str, None] = {}
        for item in self.table.split(words):
            if item.name in _ARCH_OPTIONS and item.value:
                found.update(dict.fromkeys(a for a in item.value.split(",") if _GFX.fullmatch(a)))
            elif item.name in ("--no-offload-arch", "--no-cuda-gpu-arch"):
                gone = found if item.value == "all" else [item.value]
                found = {a: None for a in found if a not in gone}
        return tuple(found)

    def known_archs(self, found: Found, env: Mapping[str, str]) -> tuple[str, ...]:
        # `-c` keeps hipcc from adding link options, which clang refuses for this target.
        argv = [*found.compiler, "--target=amdgcn-amd-amdhsa", "-nogpulib", "-c", "--print-supported-cpus"]
        try:
            said = proc.run(argv, env=places.without_asking_gpus(env), timeout=60)
        except ToolchainError:
            return ()
        known = tuple(dict.fromkeys(_NAME.findall(said.stdout + said.stderr)))
        libraries = places.device_libraries(found, env)
        if libraries is None:
            return known
        have = {p.stem.removeprefix("oclc_isa_version_") for p in libraries.glob("oclc_isa_version_*.bc")}
        return tuple(a for a in known if a.removeprefix("gfx") in have)

    def present_archs(self, found: Found, env: Mapping[str, str]) -> tuple[str, ...]:
        programs = ("bin/rocm_agent_enumerator", "llvm/bin/amdgpu-arch", "lib/llvm/bin/amdgpu-arch")
        for name in (*programs, "llvm/bin/offload-arch"):
            said = output_of([f"{found.home}/{name}"], env)
            archs = tuple(dict.fromkeys(a for a in _NAME.findall(said) if a != "gfx000"))
            if archs:
                return archs
        return ()

    def checks(self, found: Found | None, env: Mapping[str, str]) -> list[Requirement]:
        if found is None:
            return super().checks(found, env)
        if self.is_nvcc(found, env):
            why = f"{found.compiler[0]} would run nvcc here: set HIP_PLATFORM=amd to compile for AMD GPUs"
            return [Requirement("compiler", RequirementState.MISSING, why, "export HIP_PLATFORM=amd")]
        # Compiles and links a kernel, for the GPU present or an arch that is known.
        present = self.present_archs(found, env)
        known = present or self.known_archs(found, env)
        arch = next((a for a in (*present, *_USUAL) if a in known), known[0] if known else "")
        argv = (*found.compiler, *([f"--offload-arch={arch}"] if arch else []), *self._link_flags(found.compiler))
        argv += ("-x", "hip", "-shared", "-fPIC", "k.hip", "-o", "k.so")
        good = f"compiles and links{f' for {arch}' if arch else ''}"
        gpu = Requirement(
            "GPU", RequirementState.NOTE, "none answers: name archs with --gpu-archs; blobs compile, kernels cannot run"
        )
        if present:
            gpu = Requirement("GPU", RequirementState.OK, " ".join(present))
        return [*super().checks(found, env), try_out({"k.hip": _KERNEL}, [argv], env, good, _COMPLAINTS), gpu]

    def _language(self, cmd: CompileCommand) -> str:
        return "hip"

    def device_dependencies(self, job: SourceCompile) -> list[tuple[str, ...]]:
        # Since clang 20, the driver takes the file of a device-only rule for a temporary one, so
        # the file is also named directly to the compiler proper.
        named = ("-MF", job.output, "-Xclang", "-dependency-file", "-Xclang", job.output)
        common = (*job.base, "--cuda-device-only", "-w", "-M", *named, job.source)
        return [(*common, f"--offload-arch={arch}") for arch in job.archs] or [common]

    def dependencies(self, job: SourceCompile) -> list[tuple[str, ...]]:
        return [*super().dependencies(job), *((*argv, "-MG") for argv in self.device_dependencies(job))]

    def _naming_flags(self, base: Sequence[str]) -> tuple[str, ...]:
        # Clang makes the identity of a file with device code of the file's real path.
        return (f"-cuid={abi.PH_NAME}",) if accepts((base[0],), ("-cuid=0",), "c++") else ()

    def _link_flags(self, base: Sequence[str]) -> tuple[str, ...]:
        # hipcc passes this itself. clang needs it to add HIP's runtime library.
        return () if Path(base[0]).name.startswith("hipcc") else ("--hip-link",)


ROCM = RocmToolchain()
