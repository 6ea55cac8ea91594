"""The kinds of differences, each explained to somebody who knows nothing of lazyck's internals."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """One kind of difference. `means` is a phrase that follows the names of the symbols. A
    difference that `fails` makes a check fail. Any other is by design and only counted:
    `docs/check.md` says why no program can tell, or `docs/limits.md` says what it costs."""

    means: str
    fails: bool = True


KINDS = {
    "lost": Kind("is exported ahead of time, and not in the lazy library: programs that use it do not link or load"),
    "internal": Kind("is exported ahead of time, but not by the lazy library: programs that use it do not load"),
    "undefined": Kind("is defined by the library ahead of time; the lazy library needs another one that has it"),
    "added": Kind("is exported by the lazy library only: it can take the place of another library's symbol"),
    "runtime": Kind("is exported by lazyck's runtime: it can take the place of another library's symbol"),
    "version": Kind("has another symbol version: programs that were linked with the other library do not find it"),
    "type": Kind("is of another type"),
    "visibility": Kind("has another visibility: a program's own definition of it takes effect in one library only"),
    "binding": Kind("is weak, global or unique in one of the two libraries only"),
    "size": Kind("is data of another size: a program linked with one library has no room for the other's"),
    "alias": Kind("are one function by two names ahead of time, lazily two functions: their addresses differ"),
    "copies": Kind("is a variable of which there are several lazily: what one part writes, another does not see"),
    "hollow": Kind("has a stub, but no blob defines it: a call of it ends in an error"),
    "versioned": Kind("gets a version from its own source, which the library of a lazy blob cannot have: a call fails"),
    "start-up": Kind(
        "runs or is used when the library is loaded ahead of time, lazily when a function of its file is called"
    ),
    "needed-lost": Kind("is needed ahead of time only (DT_NEEDED): its symbols and start-up code may be missing"),
    "needed-added": Kind("is needed by the lazy library only (DT_NEEDED): it must be wherever that is used"),
    "needed-order": Kind("is searched in this order: which library's symbol wins may differ"),
    "entry": Kind("of the dynamic section differs"),
    "code": Kind("runs ahead of time when the library is loaded or unloaded, lazily not"),
    "flag": Kind("is a flag for the loader that only one of the two libraries has"),
    "version-name": Kind("is the name of a symbol version that only one of the two libraries defines"),
    # -- by design
    "own": Kind("is an entry point of lazyck's own, see lazyck.h", fails=False),
    "hidden": Kind("is hidden ahead of time, and exported lazily, since blobs must find it", fails=False),
    "program": Kind("is exported by the lazy program only, since its blobs must find it", fails=False),
    "handle": Kind("is the handle of a kernel that only its own blob launches", fails=False),
    "device": Kind("is the compiler's own mark of a file with device code, which is in its blob", fails=False),
    "vague": Kind(
        "is emitted by every file that uses it (inline, instantiated implicitly): nobody lacks it", fails=False
    ),
    "vague-state": Kind(
        "is a variable that every file which uses it has (inline, instantiated implicitly): a program that uses it "
        "has one of its own",
        fails=False,
    ),
    "stub-binding": Kind("is weak ahead of time, its stub global: the loader does not tell them apart", fails=False),
    "ifunc": Kind("chooses its code at load (IFUNC), its stub at the first call", fails=False),
    "needed-kept": Kind(
        "is named by the link, and kept for lazy blobs that may need it, which ahead of time none does (DT_NEEDED)",
        fails=False,
    ),
    "needed-runtime": Kind("is needed by lazyck's runtime, which is in C++ (DT_NEEDED)", fails=False),
    "soname": Kind("is a name that the lazy library gives itself, since blobs must find it by one", fails=False),
}
