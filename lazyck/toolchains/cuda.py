"""Describe CUDA: nvcc, and the host compiler below it."""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import ClassVar

from lazyck import abi, proc
from lazyck.abi import Role
from lazyck.errors import BuildError, CommandError, UsageError
from lazyck.settings.environment import environment
from lazyck.toolchains import cuda_checks, cuda_places, host_text, native, nvcc_options
from lazyck.toolchains.base import Found, SourceCompile, TextCompile, Toolchain, accepts
from lazyck.toolchains.command import CompileCommand, LinkCommand
from lazyck.toolchains.gnu import TABLE, GnuToolchain, is_for_links, own_library_items
from lazyck.toolchains.gpu_runtimes import CUDA_RUNTIME
from lazyck.toolchains.nvcc_steps import nvcc_programs, nvcc_steps
from lazyck.toolchains.options import CommandItem, join
from lazyck.toolchains.requirement import Requirement, RequirementState, output_of

_ARCH = re.compile(r"(?:sm_|compute_|lto_)?(\d{2,3}|\d{1,2}\.\d)([a-f]?)(?:\+PTX|-real|-virtual)?", re.I)
_RUNTIME_SONAMES = {name.split(".")[2]: name for name in CUDA_RUNTIME.process.libraries}  # by nvcc's release
_PATH_OPTION = "--orig_src_path_name"  # of the front ends
_ASKED = ("native", "all", "all-major")  # values of -arch that name no arch


def _both(*shorts: str) -> frozenset[str]:
    """Return short names, together with the long names of those options."""
    return frozenset(shorts) | {long for long, short in nvcc_options.pairs() if short in shorts}


_ARCH_OPTIONS = _both("-gencode", "-arch", "-code")
_HOST_OPTIONS = _both("-Xcompiler")
_DEBUGGING = frozenset({"-G", "--device-debug", "-lineinfo", "--generate-line-info", "-g", "--debug"})
_TEMPORARIES = _both("-keep-dir") | {"--keep", "-objtemp", "--objdir-as-tempdir", "-v", "--verbose"}
_LINK_OPTIONS = _both("-ccbin", "-Xcompiler", "-m", "-target-dir") | {
    "-m64", "--m64", "--allow-unsupported-compiler", "-allow-unsupported-compiler",
    "-forward-unknown-to-host-compiler", "--forward-unknown-to-host-compiler", "-forward-unknown-opts",
    "--forward-unknown-opts", "-noprof", "--dont-use-profile", "-use-local-env", "--use-local-env",
}  # fmt: skip


class CudaToolchain(Toolchain):
    """nvcc. Archs are named by their numbers: `80`, `90a`."""

    name = abi.TOOLCHAIN_CUDA
    install: ClassVar[Mapping[str, str]] = {"any": "pip install 'lazyck[cuda]'"}
    response = ("-optf", "")
    host_only = ("-fdevice-syntax-only",)
    own_archives = frozenset({"libcudart_static.a", "libcudadevrt.a", "libculibos.a", "libgcc.a", "libgcc_eh.a"})
    tools = ("nvcc",)
    home_env = cuda_places.HOME_ENV
    searched = f"CUDACXX, {', '.join(home_env)}, nvcc on PATH, lazyck[cuda] beside lazyck, {cuda_places.DEFAULT_HOME}"
    compiler_env = ("CUDACXX", "PYTORCH_NVCC")
    flag_env = (
        "NVCC_PREPEND_FLAGS",
        "NVCC_APPEND_FLAGS",
        "NVCC_CCBIN",
        # nvcc.profile appends to these, so nvcc passes a build's values on to its host compiler,
        # cudafe++, ptxas and links.
        "INCLUDES",
        "SYSTEM_INCLUDES",
        "CUDAFE_FLAGS",
        "PTXAS_FLAGS",
        "LIBRARIES",
        # The host compiler reads these.
        *(name for name in GnuToolchain.flag_env if name != "OBJC_INCLUDE_PATH"),
    )
    prepend_env = ("NVCC_PREPEND_FLAGS",)
    append_env = ("NVCC_APPEND_FLAGS",)
    arch_env = ("TORCH_CUDA_ARCH_LIST", "CUDAARCHS")
    path_options = _both("-I", "-isystem", "-include")
    lists_paths = True
    source_suffixes = (".cu", ".c", ".cc", ".cpp", ".cxx", ".C")
    languages: ClassVar[Mapping[str, str]] = {"cu": "cuda", "c++": "cuda", "c": "cuda"}
    arch_flags = ("-gencode", f"arch=compute_{abi.PH_VIRTUAL},code=sm_{abi.PH_ARCH}")
    table = nvcc_options.TABLE
    unit_globs = ("*.cu",)
    entry_verb = "entry"
    # With --threads, nvcc 12.4's --dryrun tries to read the output of its own steps, and fails.
    hinders_units = _both("-t") | _TEMPORARIES
    _dropped = _ARCH_OPTIONS | _TEMPORARIES

    def find(self, env: Mapping[str, str]) -> Found | None:
        if (found := cuda_places.find(env)) is None:
            return None
        origin, words = found
        home = cuda_places.completed(origin, env)
        if home == origin:
            return Found(self, home, words)
        first = f"{home}/bin/nvcc" if words[0] == f"{origin}/bin/nvcc" else words[0]
        return Found(self, home, (first, *words[1:]), origin)

    def whole_home(self, home: str) -> tuple[str, str]:
        return cuda_places.completed(home, environment()), ""

    def known_archs(self, found: Found, env: Mapping[str, str]) -> tuple[str, ...]:
        return _sorted(re.findall(r"\bsm_(\d+[a-f]?)", output_of([*found.compiler, "--list-gpu-code"], env)))

    def present_archs(self, found: Found, env: Mapping[str, str]) -> tuple[str, ...]:
        return cuda_checks.capabilities(found.compiler, env)

    def checks(self, found: Found | None, env: Mapping[str, str]) -> list[Requirement]:
        checks = super().checks(found, env)
        if found is None or checks[0].state is RequirementState.MISSING:
            return checks
        if found.origin:
            detail = f"wheels at {found.origin}; builds see {found.home}, which has lib64 and libcudart.so too"
            checks.append(Requirement("home", RequirementState.OK, detail))
        checks += cuda_checks.parts(found.compiler, env)
        checks.append(cuda_checks.driver(env))
        archs = self.present_archs(found, env)
        none = "none here: LAZYCK_ARCHS says what to compile for"
        return [
            *checks,
            Requirement("GPU", RequirementState.OK if archs else RequirementState.NOTE, " ".join(archs) or none),
        ]

    def parse_archs(self, text: str) -> tuple[str, ...]:
        archs = []
        for word in re.split(r"[;,\s]+", text):
            if not word:
                continue
            if word in _ASKED:
                raise UsageError(
                    f"--gpu-archs {word!r} is not supported", "name the archs, for example --gpu-archs '80;90a'"
                )
            match = _ARCH.fullmatch(word)
            if match is None:
                raise UsageError(f"{word!r} is not a CUDA arch", "write for example 80, 8.0, sm_80 or 90a")
            archs.append(match[1].replace(".", "") + match[2].lower())
        return tuple(dict.fromkeys(archs))

    def base_words(self, cmd: CompileCommand, level: str | None = None) -> tuple[str, ...]:
        words = super().base_words(cmd, level)
        kept: list[CommandItem] = []
        for item in self.table.split(words[cmd.call.prefix :]):
            # nvcc takes lists where other compilers take one path. Mapping paths expects one.
            is_path = item.role is Role.LIBRARY_DIR or item.name in self.path_options
            several = item.value.split(",") if is_path and item.value else []
            if len(several) > 1:
                kept += [CommandItem((item.name, path), item.name, path) for path in several if path]
            elif item.role is Role.HOST_COMPILER and os.path.exists(path := cmd.call.path(item.value or "")):
                kept.append(CommandItem((item.name, path), item.name, path))  # else it is looked up on PATH
            else:
                kept.append(item)
        return (*words[: cmd.call.prefix], *join(kept))

    def _portable(self, cmd: CompileCommand, items: Sequence[CommandItem], level: str | None) -> list[CommandItem]:
        if not native.names_native(join(items)):
            return list(items)
        compiler = (*cmd.call.argv[: cmd.call.prefix], *join(i for i in items if i.name in _both("-ccbin")))
        env = self.tool_env(cmd, environment(), for_base=True)
        host = self._host_compiler(compiler, tuple(sorted(env.items())))
        kept: list[CommandItem] = []
        for item in items:
            if native.names_native(item.words):
                parts = _host_parts(item) if item.name in _HOST_OPTIONS else [_host_item(item.words[0])]
                value = ",".join(join(native.portable(host, parts, level)))
                item = CommandItem(("-Xcompiler", value) if value else (), "-Xcompiler", value)
            kept.append(item)
        return kept

    @lru_cache(maxsize=64)  # noqa: B019  there is one object of this class
    def _host_compiler(self, compiler: tuple[str, ...], env: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
        return tuple(self._preprocessing(SourceCompile(compiler, "x.cu", "x.o", env=dict(env)))[0][:1])

    def archs_in(self, words: Sequence[str]) -> tuple[str, ...]:
        found: list[str] = []
        arch = code = ""
        for item in self.table.split(words):
            value = item.value or ""
            if item.name in _both("-gencode"):
                found += _codes(value.partition("code=")[2] or value)
            elif item.name in _both("-arch"):
                arch = value  # the last one counts
            elif item.name in _both("-code"):
                code += " " + value
        return tuple(dict.fromkeys([*_codes(code or arch), *found]))

    def archs_of(self, cmd: CompileCommand, env: Mapping[str, str]) -> tuple[str, ...]:
        words = self.all_words(cmd)
        named = self.archs_in(words)
        asked = any(i.value in _ASKED and i.name in _both("-arch") for i in self.table.split(words))
        return (self.default_archs(cmd, env) if asked else ()) or named

    def images_of(self, cmd: CompileCommand, env: Mapping[str, str]) -> tuple[str, ...]:
        # Asks nvcc, with the words of `cmd` that concern archs.
        items = self.table.split(self.all_words(cmd))
        kept = join(i for i in items if i.name in _ARCH_OPTIONS or i.name in _both("-ccbin"))
        env = self.tool_env(cmd, env, for_base=True)
        return _images_by_dryrun((cmd.call.argv[0], *kept), tuple(sorted(env.items())))

    def default_archs(self, cmd: CompileCommand, env: Mapping[str, str]) -> tuple[str, ...]:
        images = self.images_of(cmd, env)
        real = tuple(a for a in images if not a.endswith(abi.ARCH_VIRTUAL))
        return real or tuple(a.removesuffix(abi.ARCH_VIRTUAL) for a in images)

    def arch_settings(self, archs: Sequence[str]) -> dict[str, str]:
        dotted = [re.sub(r"(\d)([a-f]?)$", r".\1\2", arch) for arch in archs]  # torch knows 9.0a, not 90a
        return {"TORCH_CUDA_ARCH_LIST": ";".join(dotted), "CUDAARCHS": ";".join(archs)}

    def split_option_env(self, text: str) -> list[str]:
        # This follows nvcc: blanks inside "..." do not separate words, but the quotes stay. A
        # backslash escapes the next character.
        words = re.findall(r'(?:"(?:\\.|[^"\\])*"|\\.|[^\s"\\])+', text, re.S)
        return [re.sub(r"\\(.)", r"\1", word, flags=re.S) for word in words]

    def _flags_for(self, archs: Sequence[str]) -> list[str]:
        return [abi.with_arch(flag, arch) for arch in archs for flag in self.arch_flags]

    def host_preprocess_command(self, job: SourceCompile) -> tuple[str, ...]:
        # `nvcc -E` runs the device pass. The host pass is a step of a compile.
        steps = self._preprocessing(job)
        step = next((s for s in steps if not any(word.startswith("-D__CUDA_ARCH__=") for word in s)), None)
        if step is None:
            raise BuildError(
                f"{job.base[0]}: `--dryrun` shows no preprocessing for the host", "report this nvcc's version"
            )
        step[step.index("-o") + 1] = job.output
        return tuple(step)

    def dependencies(self, job: SourceCompile) -> list[tuple[str, ...]]:
        # nvcc has no -MG, but its steps are those of gcc.
        return [_listing(step, job.output, "-MG") for step in self._preprocessing(job)]

    def _preprocessing(self, job: SourceCompile) -> list[list[str]]:
        """Return a compile's preprocessing steps, for host and archs. Only --dryrun shows them."""
        # Without --threads: with it, nvcc 12.4's --dryrun fails to read its steps' output.
        words = join(i for i in self.table.split(job.base[1:]) if i.name not in _both("-t"))
        steps = ("-w", "--dryrun", "-c", job.source, "-o", job.source + ".o")
        argv = (job.base[0], *words, *self._flags_for(job.archs), *steps)
        shown = proc.run(argv, cwd=job.cwd, env=job.env)
        if shown.status != 0:
            raise CommandError("asking nvcc for its steps", argv, shown.status, shown.stdout + shown.stderr)
        return [step for step in nvcc_steps(shown.stderr, job.env) if "-E" in step and "-o" in step]

    def host_compile(self, job: SourceCompile, *, is_settling: bool = False) -> tuple[str, ...]:
        dropped = _DEBUGGING if is_settling else _both("-O", "-Ofc") | _DEBUGGING
        words = join(_without_hiding(i for i in self.table.split(job.base[1:]) if i.name not in dropped))
        protecting = ("-Xcompiler", "-fvisibility=protected") if self.visibility(job.base) != "default" else ()
        flags = (*self.host_only, "-Xcompiler", "-fPIC" if is_settling else "-O0")
        to = ("-w", "-c", job.source, "-o", job.output)
        return (job.base[0], *words, *self._flags_for(job.archs[:1]), *protecting, *flags, *to)

    def text_compile(self, job: SourceCompile, *, is_c: bool) -> TextCompile | None:
        # Runs only the last step of a compile: the cudafe++ before it takes most of the time.
        shown = proc.run([*self.host_compile(job), "--dryrun"], cwd=job.cwd, env=job.env)
        steps = nvcc_steps(shown.stderr, job.env)
        front = next((s for s in steps if os.path.basename(s[0]).startswith("cudafe++")), [])
        back = next((s for s in steps if "-c" in s and any(w.endswith(".cudafe1.cpp") for w in s)), [])
        if shown.status != 0 or not front or not back:
            return None
        compiler, *rest = (w for w in back if not w.endswith(".cudafe1.cpp"))
        at = rest.index("-o")
        words = join(i for i in TABLE.split((*rest[:at], *rest[at + 2 :])) if i.role is not Role.LANGUAGE)
        faster = host_text.fewer_collections((compiler,))
        flags = ("-g0", "-w", "-fpermissive", *faster, *host_text.language(is_c=is_c))
        argv = (compiler, *words, *flags, job.source, "-o", job.output)
        hides_kernels = "--device-hidden-visibility" in front
        return TextCompile(argv, hides_kernels, hides_kernels or "--static-host-stub" in front)

    def readable(self, text: str) -> str:
        return host_text.readable_by_host(text)

    def all_errors(self, compiler: tuple[str, ...]) -> tuple[str, ...]:
        return ("-Xcudafe", "--error_limit=100000")

    def device_dependencies(self, job: SourceCompile) -> list[tuple[str, ...]]:
        # `nvcc -M` covers every pass at once, but half of its work is the host's.
        steps = self._preprocessing(job)
        return [_listing(step, job.output) for step in steps if any(w.startswith("-D__CUDA_ARCH__=") for w in step)]

    def _host_items(self, base: Sequence[str]) -> list[CommandItem]:
        items = []
        for item in self.table.split(base[1:]):
            items.append(item)
            items += _host_parts(item)
        return items

    def recipe_words(self, base: Sequence[str]) -> tuple[str, ...]:
        host = [i for i in self.table.split(base[1:]) if i.name in _both("-ccbin")]
        compiler = (base[0], *join(host))
        flags = ["-Xcompiler", "-fPIC"]
        if accepts(compiler, ("-Xcompiler", "-fno-gnu-unique"), "cu"):
            flags += ["-Xcompiler", "-fno-gnu-unique"]
        # The kept files have names of their own. Other temporary files are named after nvcc's
        # process, and the object has these names.
        flags += ["--keep", "--keep-dir=."]
        # nvcc makes names of the source's real path, and of its process if the source has no
        # function that others can call. The first option goes to its front ends, where the last
        # path that is given counts.
        if _gives_path(compiler):
            flags += ["-Xcudafe", f"{_PATH_OPTION}={abi.PH_NAME}"]
        if accepts(compiler, (seed := f"-frandom-seed={abi.PH_NAME}",), "cu"):
            flags.append(seed)
        return (base[0], *join(_without_hiding(self.table.split(base[1:]))), *flags)

    def link_words(self, base: Sequence[str], link: LinkCommand) -> tuple[str, ...]:
        items = _with_host_options(self.table.split(base[1:]), lambda parts: list(filter(is_for_links, parts)))
        kept = [i for i in items if i.name in _LINK_OPTIONS]
        kind = self._cudart(link)
        soname = _RUNTIME_SONAMES.get(_release(base[0]), "") if kind == "shared" else ""
        # The runtime is named by its soname. `-cudart shared` needs libcudart.so, which wheels and
        # machines that only run programs do not have.
        runtime = ("-Xlinker", f"-l:{soname}") if soname else ()
        return (
            base[0],
            *join(kept),
            "-shared",
            "-nodlink",  # without it, nvcc adds an image for its default arch
            "-Xcompiler",
            "-fPIC",
            "-cudart",
            "none" if runtime or kind == "static" else kind,  # the library has a static one itself: see cudart.py
            "-o",
            abi.PH_OUTPUT,
            abi.PH_INPUT,
            "-Xlinker",
            "--no-as-needed",
            *runtime,
        )

    def programs(self, cmd: CompileCommand, env: Mapping[str, str]) -> tuple[str, ...]:
        host = [i for i in self.table.split(self.base_words(cmd)[cmd.call.prefix :]) if i.name in _both("-ccbin")]
        return nvcc_programs((*cmd.call.argv[: cmd.call.prefix], *join(host)), tuple(sorted(env.items())))

    def takes_static_runtime(self, link: LinkCommand) -> bool:
        return self._cudart(link) == "static"

    def _cudart(self, link: LinkCommand) -> str:
        """Return which CUDA runtime the main library links. Blobs follow it, to share its state."""
        if link.call.tool == "nvcc":
            values = [i.value for i in self.table.split(self.all_words(link)) if i.name in _both("-cudart")]
            kind = ("static", *(v.lower() for v in values if v))[-1]
            if kind != "none":
                return kind
        names = [w.rpartition("/")[2] for w in link.call.argv[link.call.prefix :]]
        if any(n in ("-lcudart_static", "libcudart_static.a") for n in names):
            return "static"
        if any(n == "-lcudart" or n.removeprefix("-l:").startswith("libcudart.so") for n in names):
            return "shared"
        return "none"


def _codes(text: str) -> list[str]:
    """Return the archs in a list of codes: those with machine code, or else those with PTX."""
    return re.findall(r"\b(?:sm|lto)_(\d+[a-f]?)", text) or re.findall(r"\bcompute_(\d+[a-f]?)", text)


def _listing(step: Sequence[str], output: str, *more: str) -> tuple[str, ...]:
    """Return the command that lists in `output` the files that `step`, a preprocessor's, reads."""
    at = step.index("-o")
    words = [w for w in (*step[:at], *step[at + 2 :]) if w != "-E"]
    return (*words, "-M", *more, "-MF", output)


@lru_cache(maxsize=64)
def _images_by_dryrun(argv: tuple[str, ...], env: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    shown = proc.run([*argv, "--dryrun", "-c", "x.cu", "-o", "x.o"], env=dict(env)).stderr
    found = re.findall(r"\bkind=(elf|ptx),sm=(\d+[a-f]?)", shown)
    return _sorted(arch + (abi.ARCH_VIRTUAL if kind == "ptx" else "") for kind, arch in found)


def _sorted(archs: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(archs), key=lambda a: (int(re.sub(r"\D", "", a)), a)))


@lru_cache(maxsize=64)
def _gives_path(compiler: tuple[str, ...]) -> bool:
    """Return whether nvcc gives the source's real path to its front ends."""
    return f"{_PATH_OPTION} " in proc.run([*compiler, "--dryrun", "-c", "x.cu", "-o", "x.o"]).stderr


@lru_cache(maxsize=64)
def _release(nvcc: str) -> str:
    """Return the major release of an nvcc, such as `13`, or an empty string if it does not say."""
    match = re.search(r"release (\d+)\.", proc.run([nvcc, "--version"]).stdout)
    return match[1] if match else ""


def _without_hiding(items: Iterable[CommandItem]) -> list[CommandItem]:
    """Drop the host flags that hide symbols or make LTO objects, also inside `-Xcompiler a,b`."""
    return _with_host_options(own_library_items(items), own_library_items)


def _with_host_options(
    items: Iterable[CommandItem], chosen: Callable[[list[CommandItem]], list[CommandItem]]
) -> list[CommandItem]:
    """Return `items` with those of their options for the host compiler that `chosen` returns."""
    kept: list[CommandItem] = []
    for item in items:
        parts = _host_parts(item)
        good = chosen(parts)
        if len(good) == len(parts):
            kept.append(item)
        elif good:
            value = ",".join(join(good))
            kept.append(CommandItem(("-Xcompiler", value), "-Xcompiler", value))
    return kept


def _host_parts(item: CommandItem) -> list[CommandItem]:
    """Return the options for the host compiler that `item` holds."""
    if item.name not in _HOST_OPTIONS or item.value is None:
        return []
    return [_host_item(part) for part in re.split(r"[,\s]+", item.value) if part]


def _host_item(part: str) -> CommandItem:
    word = part.strip("'\"")
    name, equals, value = word.partition("=")
    return CommandItem((word,), name, value if equals else None)


CUDA = CudaToolchain()
