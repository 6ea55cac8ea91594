"""Define what lazyck has to know about any toolchain."""

import platform
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal

from lazyck import abi
from lazyck.abi import Role
from lazyck.errors import ToolchainError
from lazyck.machines import MACHINES
from lazyck.toolchains import answers, listed, lookup, native
from lazyck.toolchains.command import CompileCommand, LinkCommand
from lazyck.toolchains.identity import compiler_identity
from lazyck.toolchains.options import CommandItem, OptionTable, join
from lazyck.toolchains.requirement import Requirement, RequirementState, install_line

DEPEND_ROLES = frozenset(role for role in Role if role.name.startswith("DEPEND"))


@dataclass(frozen=True)
class Found:
    """A toolchain on this machine: its home (an empty string for host) and the argv prefix of its
    compiler, whose first word is absolute.

    If `home` is a tree of links made to complete a home that lacks something, `origin` is that
    home, which recipes name. Otherwise it is an empty string.
    """

    toolchain: "Toolchain"
    home: str
    compiler: tuple[str, ...]
    origin: str = ""


@dataclass(frozen=True)
class TextCompile:
    """A compile of preprocessed text for the host. The compiler in `argv` takes kernels for
    functions. In the real object, kernels are hidden (`hides_kernels`), or instances of kernel
    templates are local (`hides_instances`)."""

    argv: tuple[str, ...]
    hides_kernels: bool = False
    hides_instances: bool = False


@dataclass(frozen=True)
class SourceCompile:
    """A compile of `source` to `output`, for a toolchain to make others of. `base` is the compiler
    and its options (see `Toolchain.base_words`). With `env`, in `cwd`, a driver says its steps."""

    base: tuple[str, ...]
    source: str
    output: str
    archs: Sequence[str] = ()
    cwd: str | None = None
    env: Mapping[str, str] | None = None


class Toolchain(ABC):
    """The option tables, arch detection and recipes of one family of compilers. Stateless."""

    name: str
    searched: str  # where `find` looks, for the user
    tools: tuple[str, ...]
    home_env: tuple[str, ...] = ()
    compiler_env: tuple[str, ...] = ()
    flag_env: tuple[str, ...] = ()
    # variables of `flag_env` with words that go before a compile's own options, or after them
    prepend_env: tuple[str, ...] = ()
    append_env: tuple[str, ...] = ()
    arch_env: tuple[str, ...] = ()
    # variables of `flag_env` with directories, by colons: of headers; of programs and libraries
    header_env = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "OBJC_INCLUDE_PATH")
    search_env = ("COMPILER_PATH", "LIBRARY_PATH")
    path_options: frozenset[str]
    source_suffixes: tuple[str, ...]
    # language (the value of -x) → toolchain whose recipes its compiles follow (empty: this one), or
    # `!` and a reason code if there are no recipes
    languages: ClassVar[Mapping[str, str]]
    # source suffix → toolchain, if it is another one
    foreign_suffixes: ClassVar[Mapping[str, str]] = {}
    written_in: Literal["c++", "llvm-ir"] = "c++"  # what its sources are probed as
    arch_flags: tuple[str, ...] = ()
    default_arch = ""  # if nothing says one
    table: OptionTable
    # whether an option that names headers or their directories takes several, separated by commas
    lists_paths = False
    # the words that give the driver a response file: its name is joined to the last of them
    response: tuple[str, ...] = ("@",)
    # file names of static archives that blobs need not find in the main library (see `link_words`)
    own_archives: frozenset[str] = frozenset()
    # options that make a compile leave out device code and change nothing else
    host_only: tuple[str, ...] = ()
    # further options for a link of such objects
    host_only_link: tuple[str, ...] = ()
    # If `lazyck-unit` can split its compiles: which sources are deferred by kernel unless the user
    # says otherwise, and options under which the program fails, although they do not change the
    # result.
    unit_globs: tuple[str, ...] = ()
    hinders_units: frozenset[str] = frozenset()
    unit_suffixes: tuple[str, ...] = (".cu", ".hip")  # suffixes of sources that may have device code
    unit_verbs = (abi.UNIT_HOST, abi.UNIT_KERNEL)  # commands of `lazyck-unit` that make the two kinds of unit
    entry_verb = ""  # the command that makes a host unit as a library of its own; empty: blobs are compiled whole
    # package manager → command line that installs the toolchain (see check.install_line)
    install: ClassVar[Mapping[str, str]] = {}
    _dropped: frozenset[str] = frozenset()  # options that do not affect how a blob is compiled: archs, temporaries

    @abstractmethod
    def find(self, env: Mapping[str, str]) -> Found | None:
        """Return the toolchain that a build with `env` would use, or None."""

    def home_programs(self) -> dict[str, str]:
        """Map programs that a build may call below this toolchain's home (`bin/nvcc`) to the
        toolchain of their shims."""
        return {f"bin/{tool}": self.name for tool in self.tools}

    def whole_home(self, home: str) -> tuple[str, str]:
        """Return the whole home for a directory that a `home_env` variable names, and the place of
        that directory in it (empty if it is the home itself)."""
        return home, ""

    def implied_compilers(self, found: Found, env: Mapping[str, str]) -> dict[str, str]:
        """Map variables that builds may read, and that are unset, to the program that the builds
        would find by themselves: its place below the home, or a path."""
        return {}

    def pass_when(self, found: Found, env: Mapping[str, str]) -> tuple[tuple[str, str, str], ...]:
        """Return rows of variable, value (empty: unset) and reason code. While a variable has such
        a value, the compiler does not compile for this toolchain: its compiles are passed on."""
        return ()

    def understands(self, compiler: Sequence[str], kind: str) -> bool:
        """Return whether `compiler`, one of this toolchain's, takes sources of `kind`: a suffix, or
        a value of -x."""
        return True

    def parse_archs(self, text: str) -> tuple[str, ...]:
        """Return the archs of a list as users write it, normalised. Raises `UsageError`."""
        return ()

    def arch_settings(self, archs: Sequence[str]) -> dict[str, str]:
        """Return the variables of `arch_env` that ask for `archs`, each in its own spelling."""
        return {variable: ";".join(archs) for variable in self.arch_env}

    def archs_in(self, words: Sequence[str]) -> tuple[str, ...]:
        return ()

    def archs_of(self, cmd: CompileCommand, env: Mapping[str, str]) -> tuple[str, ...]:
        """Return the archs that `cmd` asks for, by name or as the GPUs of this machine."""
        return self.archs_in(self.all_words(cmd))

    def images_of(self, cmd: CompileCommand, env: Mapping[str, str]) -> tuple[str, ...]:
        """Return the archs for which the object that `cmd` makes has code, if that is known. PTX is
        named as `Recipe.archs` says."""
        return self.archs_of(cmd, env) or self.default_archs(cmd, env)

    def default_archs(self, cmd: CompileCommand, env: Mapping[str, str]) -> tuple[str, ...]:
        """Return the archs, if known, that the compiler chooses for `cmd`, which asks for none."""
        return ()

    @property
    def option_env(self) -> tuple[str, ...]:
        """Return the variables whose words count like options of a compile command."""
        return (*self.prepend_env, *self.append_env)

    def split_option_env(self, text: str) -> list[str]:
        """Return the words that the driver makes of the value of a variable of `option_env`."""
        return text.split()

    def all_words(self, cmd: CompileCommand | LinkCommand) -> tuple[str, ...]:
        """Return the words after the compiler, with those of `option_env` in their place."""
        call, env = cmd.call, dict(cmd.call.env)
        before = (w for name in self.prepend_env for w in self.split_option_env(env.get(name, "")))
        after = (w for name in self.append_env for w in self.split_option_env(env.get(name, "")))
        return (*before, *call.argv[call.prefix :], *after)

    def base_words(self, cmd: CompileCommand, level: str | None = None) -> tuple[str, ...]:
        """Return the compiler and the options of `cmd`, including those of `option_env`, without
        source, output, `-c`, depfile options and arch flags. They are to be used with `base_env`.
        Those that mean this CPU mean it on any machine, or are replaced by `level` (see
        native.py)."""
        call = cmd.call
        kept: list[CommandItem] = []
        past_source = False
        for item in self.table.split(self.all_words(cmd)):
            if not item.name:
                past_source = past_source or item.value is not None
                continue
            if item.role.value in abi.ROLES_OF_OUTPUTS or item.name in self._dropped:
                continue
            if item.role is Role.LANGUAGE and past_source:
                continue  # `-x none` after the source says nothing about it
            kept.append(item)
        return (*call.argv[: call.prefix], *join(self._portable(cmd, kept, level)))

    def _portable(self, cmd: CompileCommand, items: Sequence[CommandItem], level: str | None) -> list[CommandItem]:
        """Return options of `cmd` that mean on any machine what its options `items` mean here."""
        return native.portable(cmd.call.argv[: cmd.call.prefix], items, level)

    def is_c(self, cmd: CompileCommand) -> bool:
        """Return whether the host's part of `cmd` compiles C."""
        items = self.table.split(self.base_words(cmd)[cmd.call.prefix :])
        language = ["none", *(i.value for i in items if i.role is Role.LANGUAGE)][-1]
        if language != "none":
            return language == "c"
        return cmd.source.endswith(".c") and not lookup.is_cxx_driver(cmd.call.tool)

    def base_env(self, cmd: CompileCommand) -> tuple[tuple[str, str], ...]:
        """Return the flag-carrying variables to use with `base_words`, which has the words of the
        others. A shim of `c++` records the variables of all toolchains that it may follow; this
        toolchain's compilers read only some."""
        return tuple((k, v) for k, v in cmd.call.env if k in self.flag_env and k not in self.option_env)

    def tool_env(self, cmd: CompileCommand, env: Mapping[str, str], *, for_base: bool = False) -> dict[str, str]:
        """Return `env` with PATH and the flag-carrying variables as they were when the build called
        the compiler, or, with `for_base`, with the latter as `base_words` needs them."""
        kept = {k: v for k, v in env.items() if k not in self.flag_env}
        return kept | dict(self.base_env(cmd) if for_base else cmd.call.env)

    @abstractmethod
    def host_preprocess_command(self, job: SourceCompile) -> tuple[str, ...]:
        """Return the argv that preprocesses the source for the host, with line markers. Raises
        `LazyckError`."""

    @abstractmethod
    def host_compile(self, job: SourceCompile, *, is_settling: bool = False) -> tuple[str, ...]:
        """Return the argv that makes a host-only object with warnings off, unoptimized unless
        `is_settling`: then its symbols are those that the recipe gives.

        Functions that the options in `base` hide become protected, which tells them from those that
        the source hides.
        """

    def all_errors(self, compiler: tuple[str, ...]) -> tuple[str, ...]:
        """Return options that keep `compiler` (an argv prefix) from stopping after some errors."""
        return ()

    def device_dependencies(self, job: SourceCompile) -> list[tuple[str, ...]]:
        """Return argvs, each of which writes to `output` a make rule of all that device passes
        read. The caller reads the file after each."""
        return []

    @abstractmethod
    def dependencies(self, job: SourceCompile) -> list[tuple[str, ...]]:
        """Return an argv for every pass over `source`, each of which writes to `output` a make rule
        of all that the pass reads. The caller reads the file after each. A header that is not found
        is no error: the rule names it as `source` does."""

    def text_compile(self, job: SourceCompile, *, is_c: bool) -> TextCompile | None:
        """Return how to do what `host_compile` does for a `source` that is preprocessed and
        `readable`, or None if only the toolchain's own driver can do it."""
        return None

    def readable(self, text: str) -> str:
        """Return preprocessed text in the form that `text_compile` takes."""
        return text

    def hides_symbols(self, base: Sequence[str]) -> bool:
        """Return whether what a blob defines stays in its library unless its source objects."""
        return self.visibility(base) in ("hidden", "internal")

    def visibility(self, base: Sequence[str]) -> str:
        """Return the visibility of what a blob defines unless its source says another."""
        values = [i.value or "" for i in self._host_items(base) if i.name == "-fvisibility"]
        return values[-1] if values else "default"

    def _host_items(self, base: Sequence[str]) -> list[CommandItem]:
        """Return the options of `base` that reach the compiler of host code."""
        return self.table.split(base[1:])

    def disassemblers(self, base: Sequence[str]) -> list[tuple[str, ...]]:
        """Return commands that write `x.ll` into the working directory for each bitcode file `x.bc`
        that is appended. Each command is for the files that those before it could not read."""
        return []

    @abstractmethod
    def recipe_words(self, base: Sequence[str]) -> tuple[str, ...]:
        """Return `base` adjusted for a blob that becomes a library of its own."""

    @abstractmethod
    def link_words(self, base: Sequence[str], link: LinkCommand) -> tuple[str, ...]:
        """Return the argv, with placeholders, that links the blob's `.so` from its object, beside
        the library of `link`."""

    @abstractmethod
    def programs(self, cmd: CompileCommand, env: Mapping[str, str]) -> tuple[str, ...]:
        """Return the programs that compile and link such a blob: the compiler first, then those
        that it starts. Names without a slash are looked up in PATH when they are run."""

    def steps(self, cmd: CompileCommand, env: Mapping[str, str]) -> tuple[str, ...] | None:
        """Return the words of the commands that the compiler of `cmd` starts in `env`, if variables
        decide them that have no rows here: those of a script; else (). Return None if it does not
        tell."""
        return ()

    def starts_otherwise(self, cmd: CompileCommand, env: Mapping[str, str], closed: Mapping[str, str]) -> bool:
        """Return whether the compiler of `cmd`, a script, may start other commands at a first call,
        which has the environment `closed`, another directory, and files of other names."""
        return False

    def takes_static_runtime(self, link: LinkCommand) -> bool:
        """Return whether `link` puts a static GPU runtime into the library, which its blobs must
        then use (see cudart.py)."""
        return False

    def known_archs(self, found: Found, env: Mapping[str, str]) -> tuple[str, ...]:
        """Return the archs that the compiler says it can compile for; () if it names none."""
        return ()

    def present_archs(self, found: Found, env: Mapping[str, str]) -> tuple[str, ...]:
        """Return the archs of the GPUs here, by the toolchain's own tools; () if they see none."""
        return ()

    def checks(self, found: Found | None, env: Mapping[str, str]) -> list[Requirement]:
        """Return what `lazyck doctor` says about this toolchain. Runs compilers; writes only to a
        temporary directory.

        A toolchain adds what its compiler needs besides itself, each part with the line that
        installs it.
        """
        if found is None:
            detail = f"not found: looked at {self.searched}"
            return [Requirement("compiler", RequirementState.MISSING, detail, install_line(self.install))]
        shown = " ".join(found.compiler)
        try:
            detail = f"{shown} ({compiler_identity(found.compiler, env)})"
        except ToolchainError as e:
            return [Requirement("compiler", RequirementState.MISSING, e.message, install_line(self.install))]
        checks = [Requirement("compiler", RequirementState.OK, detail)]
        return checks + unknown_ones("options", *listed.unknown_options(found.compiler, self.table))


def unknown_ones(name: str, number: int, unknown: Sequence[str]) -> list[Requirement]:
    """Return what `lazyck doctor` says of options without rows, of the `number` that are listed."""
    shown = " ".join(unknown[:6]) + (" ..." if len(unknown) > 6 else "")
    detail = f"{len(unknown)} of {number} are unknown to lazyck, so sources with them are eager: {shown}"
    return [Requirement(name, RequirementState.OK, detail)] if unknown else []


_SPELLINGS = {spelled: m.name for m in MACHINES.values() for spelled in (m.name, m.other_name)}
_TRIPLE = re.compile(r"[a-z][a-z0-9_]*(?:-[\w.+]+)+")


def machine_of(triple: str) -> str:
    """Return the machine of a target triple (`aarch64-linux-gnu`), or else its first word."""
    first = triple.partition("-")[0]
    return _SPELLINGS.get(first, first)


def machine_for(compiler: Sequence[str]) -> str:
    """Return the machine that `compiler` (an argv prefix) makes code for, else this machine."""
    return machine_of(target(tuple(compiler)) or platform.machine())


@lru_cache(maxsize=64)
def target(compiler: tuple[str, ...]) -> str:
    """Return the target triple that a compiler says it makes code for, if it says so, else ""."""
    try:
        status, said = answers.ask(compiler, ("-dumpmachine",))
    except ToolchainError:
        return ""
    return said.strip() if status == 0 and _TRIPLE.fullmatch(said.strip()) else ""


@lru_cache(maxsize=64)
def accepts(compiler: tuple[str, ...], flags: tuple[str, ...], language: str) -> bool:
    """Return whether a compiler accepts `flags`, by letting it preprocess an empty file."""
    return answers.ask(compiler, (*flags, "-E", "-x", language, "/dev/null"))[0] == 0
