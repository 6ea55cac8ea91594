"""The kinds of differences, each explained to somebody who knows nothing of lazyck's internals."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """One kind of difference. `means` is a phrase that describes each symbol or entry. A
    difference that `fails` makes a check fail. Any other is by design and only counted:
    `docs/check.md` says why no program can tell, or `docs/limits.md` says what it costs."""

    means: str
    fails: bool = True


KINDS = {
    "lost": Kind("exported ahead of time, but missing in the lazy library: programs that use it neither link nor load"),
    "internal": Kind("exported ahead of time, but internal to the lazy library: programs that use it do not load"),
    "undefined": Kind("defined ahead of time, but undefined in the lazy library, which needs it from another one"),
    "added": Kind("exported by the lazy library only: it can take the place of another library's symbol"),
    "runtime": Kind("exported by lazyck's runtime: it can take the place of another library's symbol"),
    "version": Kind("of another symbol version: programs that were linked with the other library do not find it"),
    "type": Kind("of another type"),
    "visibility": Kind("of another visibility: a program's own definition of it takes effect in one library only"),
    "binding": Kind("of another binding: weak, global or unique"),
    "size": Kind("data of another size: a program linked with one library has no room for the other's"),
    "alias": Kind("one function under two names ahead of time, but two functions lazily: their addresses differ"),
    "copies": Kind("one variable ahead of time, but several lazily: what one part writes, another does not see"),
    "hollow": Kind("a stub whose function no blob defines: calling it is an error"),
    "versioned": Kind("given a version by its source, which the library of a lazy blob cannot have: calling it fails"),
    "start-up": Kind(
        "run or used when the ahead-of-time library is loaded, but lazily when a function of its file is called"
    ),
    "needed-lost": Kind("needed ahead of time only (DT_NEEDED): its symbols and start-up code may be missing"),
    "needed-added": Kind("needed by the lazy library only (DT_NEEDED): it must be present wherever that is used"),
    "needed-order": Kind("searched in another order: which library's symbol wins may differ"),
    "entry": Kind("different in the dynamic section"),
    "code": Kind("run when the ahead-of-time library is loaded or unloaded, but not with the lazy one"),
    "flag": Kind("a flag for the loader that only one of the two libraries has"),
    "version-name": Kind("the name of a symbol version that only one of the two libraries defines"),
    # -- by design
    "own": Kind("an entry point of lazyck's own, see lazyck.h", fails=False),
    "hidden": Kind("hidden ahead of time, but exported lazily, since blobs must find it", fails=False),
    "program": Kind("exported by the lazy program only, since its blobs must find it", fails=False),
    "handle": Kind("the handle of a kernel that only its own blob launches", fails=False),
    "device": Kind("the compiler's own mark of a file with device code, which is in its blob", fails=False),
    "vague": Kind("emitted by every file that uses it (inline, instantiated implicitly): nobody lacks it", fails=False),
    "vague-state": Kind(
        "a variable that every file which uses it has (inline, instantiated implicitly): a program that uses it has "
        "its own",
        fails=False,
    ),
    "stub-binding": Kind(
        "weak ahead of time, but its stub is global: the loader does not tell them apart", fails=False
    ),
    "ifunc": Kind("a function that chooses its code at load time (IFUNC), its stub at the first call", fails=False),
    "needed-kept": Kind(
        "named by the link, and kept for lazy blobs that may need it; ahead of time nothing does (DT_NEEDED)",
        fails=False,
    ),
    "needed-runtime": Kind("needed by lazyck's runtime, which is in C++ (DT_NEEDED)", fails=False),
    "soname": Kind("a name that the lazy library gives itself, since blobs must find it by one", fails=False),
}
