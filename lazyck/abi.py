"""Names and numbers that Python, the shim (C) and the runtime (C++) share, each in one place.

`render_header()` gives the same facts as `lazyck_abi.h`; nothing here does I/O.
"""

from __future__ import annotations

# -- ELF ------------------------------------------------------------------------------------------
MANIFEST_SECTION = ".lazyck.manifest"
RECORD_SECTION = ".lazyck.record"
# Bytes 9..15 of an ELF identification are padding; an object that the shim wrote carries this there, so that
# one 16-byte read tells a deferred object from a real one.
OBJECT_MARK = b"LAZYCK\x01"
# What a deferred object asks for and nobody has, so that a link without lazyck fails and says this name.
DEFERRED_SYMBOL = "lazyck_deferred_this_object__run_make_clean_first__or_link_it_under_lazyck_build_full"
DEFERRED_SECTION = ".lazyck.deferred"

# -- symbols of the generated stubs (hidden inside each lazy library) --------------------------------
SYMBOL_SLOTS = "lazyck_slots"
SYMBOL_SLOT_COUNT = "lazyck_slot_count"
SYMBOL_MANIFEST = "lazyck_manifest"
SYMBOL_MANIFEST_END = "lazyck_manifest_end"
SYMBOL_TRAMPOLINE = "lazyck_trampoline"
# Between the name of a function that its library hides ahead of time and the library's tag: `_Z3addii.lazyck.1a2b3c4d`
# is what blobs call it by, so that no other library's function of that name is bound in its place.
PRIVATE_MARK = ".lazyck."

# -- host units and kernel units ----------------------------------------------------------------------
# What a host unit registers in the place of device code: this, and its name.
HOST_UNIT_MARK = "LAZYCKU1"
# What the library of a kernel has where only all kernels of its source together can be had: this, and why.
WHOLE_SOURCE_MARK = "LAZYCKW1"
# Of a host unit: what it registers, and what was read for it.
KERNELS_SECTION = ".lazyck.kernels"
KERNELS_VERSION = "lazyck kernels 2"
# What compilers make names of a source's own unique with, followed by so many hexadecimal digits: a host unit's own. In
# device code, whose names meet no others, the digits are zeros.
MODULE_ID = "_lazyck_"
MODULE_ID_DIGITS = 16
# The name under which the library of a whole source's device code has it, beside its kernels' names.
IMAGE_SYMBOL = "lazyck_image"
# How a wrapped function is told a handle: by an argument, by what an argument points to, by a graph node's parameters;
# and as HIP has the parameters of a kernel node, those of any node, and a list of launches.
HANDLE_ITSELF, HANDLE_FIRST, HANDLE_NODE, HANDLE_HIP_KERNEL, HANDLE_HIP_NODE, HANDLE_HIP_LIST = range(6)
# The order of a GPU runtime's own functions in a library's table (see postbuild/handles.py).
REGISTER_IMAGE, REGISTER_END, UNREGISTER_IMAGE, REGISTER_FUNCTION, REGISTER_VARIABLE = range(5)
REGISTER_MANAGED, INITIALIZE_MODULE = 5, 6
SYMBOL_WRAPPED = "lazyck_wrapped"
SYMBOL_REGISTERING = "lazyck_registering"
# How many bits of a handle say where the wrappers look for it among those that are ready.
READY_HANDLE_BITS = 16
SYMBOL_READY = "lazyck_ready"

# -- versions ---------------------------------------------------------------------------------------
MANIFEST_MAGIC = b"LAZYCKMF"
MANIFEST_VERSION = 6
RECORD_MAGIC = b"LZRC"
RECORD_VERSION = 1
CACHE_VERSION = "v1"
# Programs share their entries, under this name instead of a library's: no process has two programs.
PROGRAMS = "programs"
# beside a bundle: entries that came with the library
BUNDLE_CACHE = "cache"
# in a library's part of a deployed bundle: its sources and headers as one file
BUNDLE_ARCHIVE = "sources.tar.gz"
# in the same place: what compiling the library's blobs took where it was built, in the format of a cache's .costs
BUNDLE_COSTS = "costs"
API_VERSION = 2

# -- placeholders in a recipe's words: one byte 0x01, then a letter -----------------------------------
PH = "\x01"
PH_SOURCE = PH + "S"  # absolute path of the blob's source
PH_OUTPUT = PH + "O"  # file that the step writes
PH_INPUT = PH + "I"  # object that the link step reads
PH_ROOT = PH + "R"  # bundle root, no trailing slash
PH_LIBRARY = PH + "L"  # path of the lazy library itself
PH_TOOLCHAIN = PH + "T"  # toolchain home, no trailing slash
PH_KERNEL = PH + "K"  # the line that describes the kernel that is wanted
PH_ARCHS = PH + "A"  # whole word: replaced by the arch flags, once for every arch
PH_ARCH = PH + "a"  # inside an arch flag: the arch's name

# -- environment ------------------------------------------------------------------------------------
ENV_CACHE_DIR = "LAZYCK_CACHE_DIR"
ENV_ROOT = "LAZYCK_ROOT"
ENV_MANIFEST = "LAZYCK_MANIFEST"
ENV_NAME = "LAZYCK_NAME"
ENV_LOG = "LAZYCK_LOG"
ENV_LOG_FILE = "LAZYCK_LOG_FILE"
ENV_LOG_FORMAT = "LAZYCK_LOG_FORMAT"
ENV_DISABLE_JIT = "LAZYCK_DISABLE_JIT"
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
ENV_SPECULATE = "LAZYCK_SPECULATE"
ENV_TRACE = "LAZYCK_TRACE"
ENV_LAUNCHER = "LAZYCK_LAUNCHER"
ENV_RUNTIME_SRC = "LAZYCK_RUNTIME_SRC"
ENV_LAZY = "LAZYCK"  # whether builds that make themselves lazy do so
ENV_REMOTE = "LAZYCK_REMOTE"
ENV_REMOTE_HELPER = "LAZYCK_REMOTE_HELPER"
ENV_REMOTE_TIMEOUT = "LAZYCK_REMOTE_TIMEOUT"
ENV_SIGN_KEY = "LAZYCK_SIGN_KEY"
ENV_TRUST = "LAZYCK_TRUST"

VARIABLES = " ".join(sorted(value for name, value in globals().items() if name.startswith("ENV_")))
# How variables begin that are not for users: lazyck's own programs set them for each other, or its tests read them.
OTHER_VARIABLES = "LAZYCK_UNIT_ASKS LAZYCK_SHIM_DEPTH LAZYCK_VENV LAZYCK_TEST_ LAZYCK_FUZZ_ LAZYCK_WORLD_DIR"
# a variable by which the runtime tells lazyck-unit that its standard input is a socket to ask on
UNIT_ASKS = "LAZYCK_UNIT_ASKS"
DEFAULT_CACHE_NAME = "lazyck"
# What ENV_CACHE_MAXSIZE is where it is not set.
DEFAULT_CACHE_MAX_KIB = 20 << 20
# the program that speaks with remote caches, looked for in PATH
REMOTE_HELPER = "lazyck-remote"


def archs_in_name(archs: str) -> str:
    """How the names of files and directories spell archs: a `-` ends them there (`EntryKey::archs_in_name`)."""
    return archs.replace("-", "_")


def _c_string(text: str) -> str:
    return '"' + "".join(c if " " <= c <= "~" and c not in '"\\' else f"\\{ord(c):03o}" for c in text) + '"'


def render_header() -> str:
    """The text of `lazyck_abi.h`: every upper-case constant of this module as `LAZYCK_<NAME>`."""
    lines = ["// Generated from lazyck/abi.py; do not edit.", "#pragma once", ""]
    for name, value in sorted(globals().items()):
        if not name.isupper() or name.startswith("_"):
            continue
        if isinstance(value, bytes):
            value = value.decode("latin-1")
        lines.append(f"#define LAZYCK_{name} {_c_string(value) if isinstance(value, str) else value}")
    return "\n".join(lines) + "\n"
