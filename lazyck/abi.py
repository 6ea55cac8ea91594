"""Names and numbers that Python, the shim (C) and the runtime (C++) share. `formats/c_header.py`
writes them as `lazyck_abi.h`."""

from enum import Enum

from lazyck import machines

# -- ELF ------------------------------------------------------------------------------------------
MANIFEST_SECTION = ".lazyck.manifest"
RECORD_SECTION = ".lazyck.record"
# Bytes 9 to 15 of an ELF identification are padding. The shim puts this mark there in each object
# that it writes, so that a single 16-byte read tells a deferred object from a real one.
OBJECT_MARK = b"LAZYCK\x01"
# A deferred object refers to this symbol. Nothing defines it: a link without lazyck names it.
DEFERRED_SYMBOL = "lazyck_deferred_this_object__run_make_clean_first__or_link_it_under.lazyck_build_full"
DEFERRED_SECTION = ".lazyck.deferred"

# -- symbols of the generated stubs (hidden inside each lazy library) ------------------------------
SYMBOL_SLOTS = "lazyck_slots"
SYMBOL_SLOT_COUNT = "lazyck_slot_count"
SYMBOL_MANIFEST = "lazyck_manifest"
SYMBOL_MANIFEST_END = "lazyck_manifest_end"
SYMBOL_TRAMPOLINE = "lazyck_trampoline"
# Each lazy library exports this one. By it, the runtime learns how the program loaded the library.
SYMBOL_MARK = "lazyck.library"
# What a library hides ahead of time, its blobs use by a private name, in place of which no other
# can be bound: this lead, and a digest of the symbol and the library's tag.
PRIVATE_LEAD = "lazyck."
PRIVATE_DIGITS = 12
PLAIN_TAG = "plain."  # before the tag: such a name stands for a symbol that keeps its plain name
PRIVATE_MARK = ".lazyck"  # behind a symbol in a manifest: its stub has a private name

# -- host units and kernel units -------------------------------------------------------------------
# A host unit registers this mark and its own name in the place of device code.
HOST_UNIT_MARK = "LAZYCKU1"
# A kernel's library holds this mark and a reason if only all kernels of its source can be compiled.
WHOLE_SOURCE_MARK = "LAZYCKW1"
WHOLE_SOURCE_SECTION = ".lazyck.whole"  # where such a library holds them
# This section of a host unit's object lists what the unit registers, and the files that it reads.
KERNELS_SECTION = ".lazyck.kernels"
KERNELS_VERSION = "lazyck kernels 2"
# The names that only one source uses are made unique with this and hexadecimal digits of the host
# unit. In device code, whose names never meet those of others, the digits are zeros.
MODULE_ID = "_LAZYCK_"
MODULE_ID_DIGITS = 16
# A library with the device code of a whole source exports it by this name and its kernels' names.
IMAGE_SYMBOL = "lazyck_image"
# How a wrapped function receives a handle: as an argument; at a place in what that points to,
# always or if that is a kernel's node, which may be given by the next argument; or in a list.
HANDLE_ITSELF, HANDLE_FIELD, HANDLE_NODE, HANDLE_LATER_NODE, HANDLE_LIST = range(5)
# The order of the GPU runtime's own functions in a library's table (see postbuild/link/stubs.py).
REGISTER_IMAGE, REGISTER_END, UNREGISTER_IMAGE, REGISTER_FUNCTION, REGISTER_VARIABLE = range(5)
REGISTER_MANAGED, INITIALIZE_MODULE = 5, 6
SYMBOL_WRAPPED = "lazyck_wrapped"
SYMBOL_REGISTERING = "lazyck_registering"
# Wrappers look a handle up in the table of ready handles by this many of its lowest bits.
READY_HANDLE_BITS = 16
SYMBOL_READY = "lazyck_ready_handles"

# -- machines --------------------------------------------------------------------------------------
# What the shim and the runtime know of each row of `machines.py`.
MACHINES = tuple((m.number, m.name, m.elf_flags, m.other_name, m.distance) for m in machines.MACHINES.values())
# Other machines that a user may meet in a message.
OTHER_MACHINES = (
    (3, "i386", 0), (21, "ppc64", 0), (22, "s390x", 0), (40, "arm", 0), (258, "loongarch64", 0),
)  # fmt: skip

# -- toolchains whose names the shim or the runtime knows ------------------------------------------
TOOLCHAIN_CUDA = "cuda"
TOOLCHAIN_ROCM = "rocm"

# How nvcc is told which compiler to call for the host.
CCBIN_OPTIONS, CCBIN_VARIABLE = "-ccbin --compiler-bindir", "NVCC_CCBIN"

# -- versions --------------------------------------------------------------------------------------
MANIFEST_MAGIC = b"LAZYCKMF"
MANIFEST_VERSION = 10
# The columns of a manifest's header, behind the magic, and of the rows of its tables, in order.
# formats/manifest.py has the grammar, and says what each column means.
MANIFEST_HEADER = {
    "version": "u32", "size": "u32",
    "blobs": "u32", "symbols": "u32", "recipes": "u32", "words": "u32",
    "blobs_at": "u32", "symbols_at": "u32", "recipes_at": "u32", "lists_at": "u32",
    "strings_at": "u32", "strings_size": "u32",
    "library": "S", "file_name": "S", "cache_name": "S", "root": "S", "archs": "L", "eager": "P", "creator": "S",
    "digest": "S", "machine": "S", "private_names": "L", "private_tag": "S", "contents": "S",
}  # fmt: skip
MANIFEST_BLOB = {
    "name": "S", "source": "S", "recipe": "u32", "digest": "S", "first_symbol": "u32", "symbol_count": "u32",
    "kernel": "S", "units": "S", "host_recipe": "u32", "device_recipe": "u32",
}  # fmt: skip
MANIFEST_SYMBOL = {"name": "S", "blob": "u32"}
MANIFEST_RECIPE = {
    "toolchain": "S", "toolchain_id": "S", "home": "S", "home_env": "L", "compile": "L", "link": "L", "env": "P",
    "arch_flags": "L", "programs": "L", "headers": "S", "cpu": "S", "archs": "L",
}  # fmt: skip
RECORD_MAGIC = b"LZRC"
RECORD_VERSION = 2

# -- the cache -------------------------------------------------------------------------------------
CACHE_VERSION = "v1"
# Names in a cache's root (docs/cache-format.md).
CACHE_LOCKS = ".locks"
CACHE_STAGING = ".staging"
CACHE_SLOTS = ".slots"
CACHE_COSTS = ".costs"
CACHE_HISTORY = ".history"
CACHE_SEEN = ".seen"
CACHE_PREAMBLES = ".preambles"
CACHE_BUNDLES = ".bundles"
CACHE_COMPILERS = ".compilers"
CACHE_TRIMMED = ".trimmed"
# The number of directories from a cache's root to an entry, including the root.
DEPTH_OF_ENTRIES = 4
# Digits of a blob's digest and ENV_EXTRA_CACHE_KEY's hash in file names (formats/layout.py).
DIGEST_DIGITS = 16
SALT_DIGITS = 12
# Between the name of a toolchain and a digest of the headers of its machine, where these are not
# those of the build.
HEADERS_MARK = "+h"
# Behind an entry's ELF image: this magic, the version as a u32, four zero bytes, and the columns,
# each of which is a u64 (see runtime/src/cache/entry.cpp).
ENTRY_MAGIC = b"LAZYCKEN"
ENTRY_VERSION = 1
ENTRY_TRAILER = {
    "image_size": "u64", "digest_low": "u64", "digest_high": "u64", "key_low": "u64", "key_high": "u64", "text": "u64",
}  # fmt: skip
# The library's name of all programs, which share their entries: no process has two programs.
PROGRAMS = "programs"
# A folder beside a bundle: cache entries that came with the library.
BUNDLE_CACHE = "cache"
# A file in a library's part of a deployed bundle: an archive of the library's sources and headers.
BUNDLE_ARCHIVE = "sources.tar.gz"
# A file beside that archive, like a cache's `.costs`: what compiles took where it was built.
BUNDLE_COSTS = "costs"
# The end of the name of a list of headers in a bundle's `tree/.lazyck`, and its first record.
BUNDLE_HEADERS = ".headers"
HEADERS_VERSION = "lazyck headers 1"
# The group of entry points that name installed packs, and the first line of a pack's own file.
PACKS_GROUP = "lazyck.packs"
PACK_VERSION = "lazyck pack 1"
API_VERSION = 3


# -- options of compiler drivers (see toolchains/options.py) ---------------------------------------
class Mode(str, Enum):
    """How a rule's text matches a word."""

    EXACT = "e"  # the word, without a value
    SEPARATE = "s"  # the word, with the next word as its value
    PREFIX = "p"  # the word begins with the text; the rest is its value
    FAMILY = "a"  # the word begins with the text; its name ends before `=`
    NUMERIC = "n"  # as FAMILY, and behind `=` is a number or a switch, if anything: nothing that names a file


# The values of options, besides numbers, that NUMERIC takes.
SWITCHES = "true false on off yes no"


class Role(str, Enum):
    """What an option means to lazyck."""

    FLAG = "f"  # of no interest
    COMPILE = "c"  # compile to an object
    OUTPUT = "o"
    LANGUAGE = "x"
    DEPEND = "d"  # write a depfile beside compiling
    DEPEND_USER = "u"  # write a depfile without system headers
    DEPEND_PHONY = "P"  # add a rule without prerequisites for each header
    DEPEND_FILE = "D"
    DEPEND_TARGET = "t"
    DEPEND_QUOTED = "q"
    DEPEND_WORDS = "w"  # -Wp, with a depfile in its value
    DEPEND_WORDS_USER = "W"
    INCLUDE = "I"  # a directory of headers; directories are searched in the order Q, I, Y, A
    INCLUDE_QUOTED = "Q"  # for #include "x" only
    INCLUDE_SYSTEM = "Y"
    INCLUDE_AFTER = "A"
    INCLUDE_FILE = "H"  # a header that is read before the source
    INCLUDE_OTHER = "E"  # may lead to headers in a way that the shim does not follow
    RESPONSE = "r"  # the value names files that hold further words
    LIBRARY = "l"
    LIBRARY_DIR = "L"
    LINKER = "k"  # the value goes to the linker, comma-separated: it may name inputs
    STATIC = "S"
    HOST_COMPILER = "b"  # the compiler below this one
    WORDS = "h"  # words for another program, or a part of this one: in their rules, the row's reason stands before them
    TARGET = "m"  # the value is the triple of the machine that code is made for
    REFUSE = "R"  # run the real compiler
    REFUSE_COMPILE = "C"  # run the real compiler if it is a compile
    REFUSE_IF_TRUE = "T"  # run the real compiler if it is a compile and the value is `true`
    UNKNOWN = "?"  # run the real compiler if it is a compile; what no rule takes has this role


# The roles of options that say what a compile writes, and where.
ROLES_OF_OUTPUTS = "".join(r.value for r in Role if r in (Role.COMPILE, Role.OUTPUT) or r.name.startswith("DEPEND"))
# The roles of options that lead to headers.
ROLES_OF_HEADERS = "".join(r.value for r in Role if r.name.startswith("INCLUDE"))
# The entries of a shim's configuration, each of which is a member of the shim's `Conf`: those with
# one text and those with any number. shims.py says what they mean.
SHIM_TEXTS = dict.fromkeys((
    "tool", "toolchain", "target", "lists_paths", "listed", "log", "compiles", "headers", "links", "python",
    "bootstrap",
))  # fmt: skip
SHIM_LISTS = dict.fromkeys((
    "real", "compiler", "blobs", "units", "suffixes", "languages", "flag_env", "option_env", "pass_when", "path_map",
    "env_names", "restore", "shim_dirs", "launch", "launchers", "rules",
))  # fmt: skip


# -- words between programs ------------------------------------------------------------------------
# Each word stands here alone, as a constant named after it (tests/test_words.py).
# Commands of lazyck-unit (units/src/main.cpp) in recipes, what it says that a compile was
# (cache/costs.cpp), the rows of the table of what a host unit registers, and files that it leaves.
UNIT_HOST, UNIT_ENTRY, UNIT_KERNEL, UNIT_HIP_HOST, UNIT_HIP_ENTRY = "host", "entry", "kernel", "hip-host", "hip-entry"
UNIT_HIP_KERNEL, UNIT_HIP_OBJECT, UNIT_HIP_TEXT = "hip-kernel", "hip-object", "hip-text"
COST_HOST, COST_KERNEL, COST_ALONE, COST_WHOLE, COST_REFUSED = "host", "kernel", "alone", "whole", "refused"
TABLE_KERNEL, TABLE_WHOLE, TABLE_VARIABLE, TABLE_FILE = "kernel", "whole", "variable", "file"
SUFFIX_TEXT, SUFFIX_COST = ".text", ".cost"
SUFFIX_REFUSED = ".refused"  # of the file beside a record that says why a source has no host unit
# Commands of lazyck-rt (entrance/tool_main.cpp), the members of its JSON lines, and the options of
# lazyck-rt, lazyck-remote and lazyck-launch.
RT_COMPILE, RT_MAKE, RT_STATUS, RT_PATH, RT_KERNELS = "compile", "make", "status", "path", "kernels"
RT_PACKS, RT_PREAMBLES, RT_PREAMBLE, RT_VERIFY, RT_TRIM = "packs", "preambles", "preamble", "verify", "trim"
RT_LIMIT, RT_CPU = "limit", "cpu"
ROW_NAME, ROW_ARCH, ROW_PATH, ROW_CACHED, ROW_KEY, ROW_ENTRY = "name", "arch", "path", "cached", "key", "entry"
ROW_BLOB, ROW_SYMBOL, ROW_VERSION, ROW_ROOT, ROW_PROBLEM = "blob", "symbol", "version", "root", "problem"
ROW_RECIPE, ROW_PREAMBLE, ROW_BYTES, ROW_LAST_USE = "recipe", "preamble", "bytes", "last_use"
OPTION_FROM, OPTION_LIBRARY, OPTION_ARCH, OPTION_BLOB_LIST = "--from", "--library", "--arch", "--blob-list"
OPTION_QUIET, OPTION_AGAIN, OPTION_TOOLCHAIN, OPTION_MAX_SIZE = "--quiet", "--again", "--toolchain", "--max-size"
OPTION_OLDER_THAN, OPTION_ONLY, OPTION_DRY_RUN, OPTION_KEY = "--older-than", "--only", "--dry-run", "--key"
OPTION_NAME, OPTION_CACHE, OPTION_WAIT, OPTION_ONLY_FETCH = "--name", "--cache", "--wait", "--only-fetch"
OPTION_EXPECT, OPTION_DEFER, OPTION_LINKS = "--expect", "--defer", "--links"
# Commands of lazyck-remote, the first words of the lines between it and the library
# (remote/helper.py says which end sends them), and what follows `note` and `failed`.
REMOTE_ENTRY, REMOTE_COMPILE = "entry", "compile"
LINE_PID, LINE_NOTE, LINE_REFUSED, LINE_SKIPPED, LINE_HIT = "pid", "note", "refused", "skipped", "hit"
LINE_COMPILE, LINE_MISS, LINE_FAILED, LINE_MADE, LINE_KEPT = "compile", "miss", "failed", "made", "kept"
LINE_BAD = "bad"
NOTE_INFO, NOTE_WARN = "info", "warn"
FAILED_FINAL, FAILED_PASSING = "final", "passing"
# What the shim did with a call, and why (interceptor/reasons.py): in its log, for `lazyck-launch
# --defer`, and in the toolchains' tables.
DID_DEFER, DID_LINK, DID_PASS, DID_FAIL = "defer", "link", "pass", "fail"
WHY_BLOB, WHY_DEFERRED_INPUT, WHY_ARCHIVE, WHY_ASSEMBLY = "blob", "deferred-input", "archive", "assembly"
WHY_CANNOT_WRITE, WHY_COMPILE_AND_LINK, WHY_CUDA_BY_CLANG = "cannot-write", "compile-and-link", "cuda-by-clang"
WHY_DEPENDENCIES, WHY_DEV_NULL, WHY_DEVICE_LINK, WHY_DRY_RUN = "dependencies", "dev-null", "device-link", "dry-run"
WHY_HIP_ON_NVIDIA, WHY_LANGUAGE, WHY_LINK_WITHOUT_BLOBS = "hip-on-nvidia", "language", "link-without-blobs"
WHY_MODULES, WHY_NO_CWD, WHY_NO_INPUT, WHY_NO_OUTPUT = "modules", "no-cwd", "no-input", "no-output"
WHY_NO_SOURCE, WHY_NOT_A_BLOB, WHY_OTHER_MACHINE = "no-source", "not-a-blob", "other-machine"
WHY_NOT_BY_KERNEL = "not-by-kernel"  # in the log, a colon and why follow
WHY_OTHER_OUTPUT, WHY_PREPROCESS, WHY_PROFILING, WHY_QUERY = "other-output", "preprocess", "profiling", "query"
WHY_RELOCATABLE_DEVICE_CODE, WHY_RELOCATABLE_LINK = "relocatable-device-code", "relocatable-link"
WHY_RESPONSE_FILE, WHY_SEVERAL_SOURCES = "response-file", "several-sources"
WHY_SOURCE_UNREADABLE, WHY_SPLIT_DEBUG, WHY_STDIN, WHY_STDOUT = "source-unreadable", "split-debug", "stdin", "stdout"
WHY_SYNTAX_ONLY, WHY_TRY_COMPILE, WHY_UNKNOWN_COMPILER = "syntax-only", "try-compile", "unknown-compiler"
WHY_UNKNOWN_OPTION = "unknown-option"  # in the log, a colon and the option follow
WHY_UNSEEN_LINK, WHY_UNSUPPORTED_OPTION, WHY_UNUSUAL_OUTPUT = "unseen-link", "unsupported-option", "unusual-output"
# Events (history/events.cpp): their kinds, where a load came from, and the members of a line of a
# history and of a trace.
EVENT_COMPILE, EVENT_WAIT, EVENT_LOAD = "compile", "wait", "load"
ORIGIN_CACHE, ORIGIN_TIER, ORIGIN_REMOTE, ORIGIN_TEXT, ORIGIN_COMPILED = "cache", "tier", "remote", "text", "compiled"
KEY_T, KEY_S, KEY_KIND, KEY_LIBRARY, KEY_BLOB, KEY_ARCH, KEY_PID = "t", "s", "kind", "library", "blob", "arch", "pid"
KEY_TID, KEY_HOST, KEY_RANK, KEY_FAILED, KEY_WHAT, KEY_KIB = "tid", "host", "rank", "failed", "what", "kib"
KEY_SIZE, KEY_PH, KEY_NAME, KEY_CAT, KEY_TS, KEY_DUR, KEY_ARGS = "size", "ph", "name", "cat", "ts", "dur", "args"
KEY_PEAK_KIB = "peak_kib"
# What lazyck-remote leaves for the library, and `lazyck-rt make` for a compile service.
FETCHED_FILE, COMPILER_LOG_FILE = "fetched.so", "compiler.log"
MAKE_DIRECTORY, MAKE_ENTRY, MAKE_LOG, MAKE_COST = "made", "made/entry", "made/log", "made/cost"
# The sums of `lazyck-rt trim`.
TRIM_SUMS = dict.fromkeys((
    "kept", "kept_bytes", "removed", "removed_bytes", "removed_logs", "removed_preambles", "removed_texts",
))  # fmt: skip

# -- placeholders in a recipe's words: one byte 0x01, then a letter --------------------------------
PH = "\x01"
PH_SOURCE = PH + "S"  # the blob's source
PH_OUTPUT = PH + "O"  # file that the step writes
PH_INPUT = PH + "I"  # object that the link step reads
PH_ROOT = PH + "R"  # bundle root, no trailing slash
PH_TOOLCHAIN = PH + "T"  # toolchain home, no trailing slash
PH_KERNEL = PH + "K"  # the line that describes the kernel that is wanted
PH_NAME = PH + "N"  # 16 hexadecimal digits, made of the library's and the blob's name
PH_ARCHS = PH + "A"  # whole word: replaced by the arch flags, once for every arch
PH_ARCH = PH + "a"  # inside an arch flag: the arch's name
PH_VIRTUAL = PH + "v"  # inside an arch flag: the arch of the PTX that the code is made of

# Behind a CUDA arch's number: PTX alone (CMake's word), and code made of PTX for another arch.
ARCH_VIRTUAL, ARCH_FROM_PTX = "-virtual", "-ptx"

# The link to the bundle in the directory in which a blob is compiled. Names of files in the bundle
# begin with it, so they are equal wherever the bundle is, and so is what is compiled.
BUNDLE_LINK = "bundle"

# The system's directories, in which only root installs something. A path in a recipe is in one of
# them, in the bundle, or in the toolchain's home.
SYSTEM_DIRECTORIES = "/usr /bin /sbin /lib /lib32 /lib64 /libx32 /etc /nix/store /gnu/store"

# The number of a system call, on every machine, and what asks by it for Landlock's version.
LANDLOCK_CREATE_RULESET, LANDLOCK_ASK_VERSION = 444, 1

# -- environment -----------------------------------------------------------------------------------
ENV_CACHE_DIR = "LAZYCK_CACHE_DIR"
ENV_ROOT = "LAZYCK_ROOT"
ENV_NAME = "LAZYCK_NAME"
ENV_LOG = "LAZYCK_LOG"
ENV_LOG_FILE = "LAZYCK_LOG_FILE"
ENV_LOG_FORMAT = "LAZYCK_LOG_FORMAT"
ENV_JIT = "LAZYCK_JIT"
ENV_ARCHS = "LAZYCK_ARCHS"
ENV_JOBS = "LAZYCK_JOBS"
ENV_EXTRA_CACHE_KEY = "LAZYCK_EXTRA_CACHE_KEY"
ENV_ON_ERROR = "LAZYCK_ON_ERROR"
ENV_LOCK_TIMEOUT = "LAZYCK_LOCK_TIMEOUT"
ENV_COMPILE_TIMEOUT = "LAZYCK_COMPILE_TIMEOUT"
ENV_MEM_PER_JOB = "LAZYCK_MEM_PER_JOB"
ENV_CACHE_PATH = "LAZYCK_CACHE_PATH"
ENV_CACHE_MAXSIZE = "LAZYCK_CACHE_MAXSIZE"
ENV_BY_KERNEL = "LAZYCK_BY_KERNEL"
ENV_PREAMBLES = "LAZYCK_PREAMBLES"
ENV_TEXT_KEYS = "LAZYCK_TEXT_KEYS"
ENV_RECORD = "LAZYCK_RECORD"
ENV_PREFETCH = "LAZYCK_PREFETCH"
ENV_TRACE = "LAZYCK_TRACE"
ENV_LAUNCHER = "LAZYCK_LAUNCHER"
ENV_RUNTIME_SRC = "LAZYCK_RUNTIME_SRC"
ENV_LAZY = "LAZYCK"  # whether builds that make themselves lazy do so
ENV_REMOTE = "LAZYCK_REMOTE"
ENV_REMOTE_COMPILE = "LAZYCK_REMOTE_COMPILE"
ENV_REMOTE_HELPER = "LAZYCK_REMOTE_HELPER"
ENV_REMOTE_TIMEOUT = "LAZYCK_REMOTE_TIMEOUT"
ENV_SIGN_KEY = "LAZYCK_SIGN_KEY"
ENV_TRUST = "LAZYCK_TRUST"

VARIABLES = " ".join(sorted(value for name, value in globals().items() if name.startswith("ENV_")))
# Variables that begin so are not for users: lazyck's programs set them for each other, or tests do.
OTHER_VARIABLES = "LAZYCK_UNIT_ASKS LAZYCK_SHIM_DEPTH LAZYCK_VENV LAZYCK_TEST_ LAZYCK_FUZZ_ LAZYCK_WORLD_DIR"
# Tells lazyck-unit, which the runtime starts, that its standard input is a socket for questions.
UNIT_ASKS = "LAZYCK_UNIT_ASKS"
# With any value, compiles are not limited in what they read, as on a kernel without Landlock.
TEST_UNRESTRICTED = "LAZYCK_TEST_UNRESTRICTED"
DEFAULT_CACHE_NAME = "lazyck"
# Times in the environment are at most this many seconds, and sizes below this many bytes.
LONGEST_SECONDS = 10**9
TOO_MANY_BYTES = 1024 * 10**12
# The value of ENV_CACHE_MAXSIZE if it is not set.
DEFAULT_CACHE_MAX_KIB = 20 << 20
# The program that talks to remote caches. It is looked up in PATH.
REMOTE_HELPER = "lazyck-remote"


def with_arch(flag: str, arch: str) -> str:
    """Return an arch flag of a recipe for one arch."""
    real, _, ptx = arch.partition(ARCH_FROM_PTX)
    return flag.replace(PH_ARCH, real).replace(PH_VIRTUAL, ptx or real)


def archs_in_name(archs: str) -> str:
    """Return archs as names of files spell them: without `-`, which ends archs in such names."""
    return archs.replace("-", "_")


def machine_name(number: int) -> str:
    """Return the name of the machine that has this number in ELF files."""
    return _NAMES.get(number, f"ELF machine {number}")


_NAMES = {m.number: m.name for m in machines.MACHINES.values()} | {number: name for number, name, _ in OTHER_MACHINES}


def c_literal(value: str | int | tuple[str, ...]) -> str:
    """Return `value` as C writes it."""
    if isinstance(value, tuple):
        return f"{{{', '.join(map(c_literal, value))}}}"
    if isinstance(value, int):
        return str(value)
    return '"' + "".join(c if " " <= c <= "~" and c not in '"\\' else f"\\{ord(c):03o}" for c in value) + '"'


def _define(name: str, value: object) -> str:
    """Return the definition of a constant. A table becomes a macro that applies another one to each
    of its rows, and columns one that applies it to each of their names."""
    if isinstance(value, dict):
        return f"{name}(X) " + " ".join(f"X({column})" for column in value)
    if isinstance(value, tuple):
        return f"{name}(X) " + " ".join(f"X({', '.join(map(c_literal, row))})" for row in value)
    if isinstance(value, bytes):
        value = value.decode("latin-1")
    assert isinstance(value, (str, int))
    return f"{name} {c_literal(value)}"


def render_constants() -> str:
    """Return definitions for C: each upper-case constant of this module as
    `LAZYCK_<NAME>`, and the letters of options as `LAZYCK_MODE_<NAME>` and `LAZYCK_ROLE_<NAME>`."""
    constants = [(name, v) for name, v in sorted(globals().items()) if name.isupper() and not name.startswith("_")]
    lines = [f"#define LAZYCK_{_define(name, value)}" for name, value in constants]
    lines += [f"#define LAZYCK_{kind.__name__.upper()}_{e.name} '{e.value}'" for kind in (Mode, Role) for e in kind]
    return "\n".join(["// Generated from lazyck/abi.py; do not edit.", "#pragma once", "", *lines]) + "\n"
