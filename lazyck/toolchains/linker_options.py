"""Lists the options of linkers: GNU ld, gold, lld and mold. If a link has an option without a row
here, its blobs are compiled eagerly.

The library of a blob is linked by lazyck's own words. So a row says whether an option means
anything for what the references of a blob are bound to: nothing (`Role.FLAG`), something that the
link of a blob repeats (`Role.WORDS`), or something that holds for one library only (`Role.REFUSE`).
Words after `-z` are listed as `-z=WORD`.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from lazyck.abi import Mode, Role
from lazyck.toolchains.options import CommandItem, OptionTable

# Names without dashes: linkers take one or two.
_SWITCHES = (
    # messages, and files that are written besides the library
    "cref no-cref demangle no-demangle fatal-warnings no-fatal-warnings no-warnings print-gc-sections "
    "no-print-gc-sections print-icf-sections no-print-icf-sections print-map print-map-discarded "
    "no-print-map-discarded print-memory-usage print-output-format stats trace verbose color-diagnostics "
    "no-color-diagnostics detect-odr-violations no-detect-odr-violations error-unresolved-symbols vs-diagnostics "
    "time-trace save-temps perf version repro force-exe-suffix "
    # how the linker works
    "fork no-fork quick-exit no-quick-exit threads no-threads keep-files-mapped no-keep-files-mapped mmap-output-file "
    "no-mmap-output-file map-whole-files no-map-whole-files no-keep-memory reduce-memory-overheads posix-fallocate "
    "no-posix-fallocate preread-archive-symbols traditional-format warn-once "
    # the form of the file
    "build-id no-build-id eh-frame-hdr no-eh-frame-hdr ld-generated-unwind-info no-ld-generated-unwind-info gdb-index "
    "no-gdb-index discard-all discard-locals discard-none strip-all strip-debug strip-debug-gdb strip-debug-non-line "
    "strip-lto-sections strip-discarded no-strip-discarded emit-relocs relax no-relax rosegment no-rosegment "
    "execute-only no-execute-only nmagic no-nmagic omagic no-omagic sort-common unique check-sections "
    "no-check-sections apply-dynamic-relocs no-apply-dynamic-relocs text-reorder no-text-reorder reverse-sections "
    "merge-exidx-entries no-merge-exidx-entries ctors-in-init-array no-ctors-in-init-array force-group-allocation "
    "fix-cortex-a53-843419 no-fix-cortex-a53-843419 fix-cortex-a53-835769 no-fix-cortex-a53-835769 tls-optimize "
    "no-tls-optimize enable-new-dtags disable-new-dtags optimize-bb-jumps no-optimize-bb-jumps pic-veneer "
    "call-graph-profile-sort no-call-graph-profile-sort use-android-relr-tags no-use-android-relr-tags "
    # sections that nothing refers to, and functions alike of which nobody takes the address
    "gc-sections no-gc-sections gc-keep-exported no-icf "
    # which kind of file is made
    "shared Bshareable pie no-pie pic-executable no-pic-executable static no-dynamic-linker nostdlib noinhibit-exec "
    # the inputs: which files and which members, as lazyck reads them
    "as-needed no-as-needed Bdynamic Bstatic dy dn call_shared non_shared whole-archive no-whole-archive start-group "
    "end-group start-lib end-lib push-state pop-state no-copy-dt-needed-entries no-add-needed no-dependent-libraries "
    "allow-multiple-definition no-allow-multiple-definition "
    # what the library exports, and what may be missing: lazyck looks at what came of it
    "export-dynamic no-export-dynamic no-undefined undefined-version no-undefined-version no-define-common "
    "allow-shlib-undefined no-allow-shlib-undefined warn-unresolved-symbols Bno-symbolic "
    "lto-debug-pass-manager lto-legacy-pass-manager no-lto-legacy-pass-manager lto-pgo-warn-mismatch "
    "no-lto-pgo-warn-mismatch flto"
)
# With any value behind `=`, in the word itself.
_FAMILIES = (
    "warn- no-warn- build-id= color-diagnostics= compress-debug-sections= demangle= hash-style= hash-size= icf=none "
    "icf=safe lto- plugin-opt= thinlto- pack-dyn-relocs= package-metadata shuffle-sections sort-common= threads= "
    "unique= verbose= time-trace- error-limit= fuse-ld flto-partition"
)
# With a value, behind `=` or as the next word.
_VALUED = (
    "soname rpath rpath-link library library-path sysroot dynamic-linker Map dependency-file reproduce time-trace-file "
    "entry undefined require-defined init fini version-script exclude-libs export-dynamic-symbol "
    "export-dynamic-symbol-list trace-symbol hash-style sort-section thread-count compress-debug-sections "
    "unresolved-symbols orphan-handling image-base Tbss Tdata Ttext Ttext-segment Trodata-segment Tldata-segment "
    "section-start max-cache-size build-id-chunk-size-for-treehash build-id-min-file-size-for-treehash "
    "symbol-ordering-file call-graph-ordering-file section-ordering-file keep-unique plugin plugin-opt mllvm "
    "spare-dynamic-tags stub-group-size icf-iterations warn-backrefs-exclude opt-remarks-filename opt-remarks-format "
    "opt-remarks-passes opt-remarks-hotness-threshold why-extract print-symbol-order print-archive-stats "
    "print-symbol-counts debug rosegment-gap plt-align error-handling-script"
)
_LETTERS = "-( -) -E -M -N -S -X -g -n -q -s -t -x -EL -V -v"
_VALUED_LETTERS = "-I -L -O -R -Y -e -h -l -m -u -y"
_JOINED_LETTERS = "-L -R -e -h -l -melf -maarch64 -u -y"
_KEYWORDS = (
    "now lazy relro norelro defs nodefs undefs muldefs combreloc nocombreloc common-page-size max-page-size "
    "separate-code noseparate-code separate-loadable-segments execstack noexecstack execstack-if-needed "
    "stack-size text notext textoff text-unlikely-segment notext-unlikely-segment keep-text-section-prefix "
    "nokeep-text-section-prefix origin nodelete nodump nodlopen loadfltr interpose global nocopyreloc "
    "pack-relative-relocs nopack-relative-relocs report-relative-reloc ibt ibtplt shstk cet-report force-ibt force-bti "
    "pac-plt bti-report call-nop start-stop-gc nostart-stop-gc start-stop-visibility x86-64-baseline x86-64-v2 "
    "x86-64-v3 x86-64-v4 rel rela rodynamic noreloc-overflow noextern-protected-data"
)
# What the link of a blob repeats.
WRAP, WRAPPER, WRAPPED = "wrap", "__wrap_", "__real_"  # `f` becomes `__wrap_f`, and `__real_f` becomes `f`
# References within the library are bound to it.
BINDS_ALL, BINDS_FUNCTIONS, BINDS_STRONG = "Bsymbolic", "Bsymbolic-functions", "Bsymbolic-non-weak-functions"
# References within the library are bound to it, or to something else than their name says.
_OF_ONE_LIBRARY = (
    "Bsymbolic-non-weak Bgroup dynamic-list-data "
    "dynamic-list-cpp-new dynamic-list-cpp-typeinfo copy-dt-needed-entries add-needed default-symver "
    "default-imported-symver weak-unresolved-symbols no-gnu-unique gnu-unique ignore-data-address-equality "
    "ignore-function-address-equality"
)
_OF_ONE_LIBRARY_VALUED = (
    "dynamic-list defsym filter auxiliary just-symbols script default-script undefined-glob version-exports-section"
)
# `nodefaultlib` holds for the libraries that the runtime needs, too.
_KEYWORDS_OF_ONE_LIBRARY = (
    "nodefaultlib initfirst unique nounique unique-symbol dynamic-undefined-weak nodynamic-undefined-weak"
)

# These name a file that the link reads.
_READING = (
    "version-script dynamic-list export-dynamic-symbol-list symbol-ordering-file call-graph-ordering-file "
    "section-ordering-file just-symbols retain-symbols-file script default-script T F f R plugin error-handling-script"
)
# These name a file that the link writes besides its output.
_WRITING = "Map dependency-file out-implib reproduce time-trace-file"

E, S, P, F = Mode.EXACT, Mode.SEPARATE, Mode.PREFIX, Mode.FAMILY


def _dashed(names: str, end: str = "") -> str:
    return " ".join(f"{dashes}{name}{end}" for name in names.split() for dashes in ("-", "--"))


def _valued(role: Role, names: str) -> Iterator[tuple[Mode, Role, str, str]]:
    yield S, role, _dashed(names), ""
    yield P, role, _dashed(names, "="), ""


def _keywords(role: Role, words: str) -> Iterator[tuple[Mode, Role, str, str]]:
    yield E, role, " ".join(f"-z={word}" for word in words.split()), ""
    yield P, role, " ".join(f"-z={word}=" for word in words.split()), ""


TABLE = OptionTable(
    (
        (E, Role.FLAG, f"{_dashed(_SWITCHES)} {_LETTERS}", ""),
        (F, Role.FLAG, _dashed(_FAMILIES), ""),
        *_valued(Role.FLAG, _VALUED),
        (S, Role.FLAG, _VALUED_LETTERS, ""),
        (P, Role.FLAG, _JOINED_LETTERS, ""),
        (Mode.NUMERIC, Role.FLAG, "-O0 -O1 -O2 -O3 -O --O0 --O1 --O2 --O3 --O", ""),
        (S, Role.FLAG, "-z", ""),
        *_keywords(Role.FLAG, _KEYWORDS),
        *_valued(Role.WORDS, WRAP),
        (E, Role.WORDS, _dashed(f"{BINDS_ALL} {BINDS_FUNCTIONS} {BINDS_STRONG}"), ""),
        (E, Role.REFUSE, f"{_dashed(_OF_ONE_LIBRARY)} {_dashed('icf=all')}", ""),
        *_valued(Role.REFUSE, _OF_ONE_LIBRARY_VALUED),
        (S, Role.REFUSE, "-F -T -f", ""),
        (P, Role.REFUSE, "-T", ""),
        *_keywords(Role.REFUSE, _KEYWORDS_OF_ONE_LIBRARY),
    )
)


def split(words: Iterable[str]) -> list[CommandItem]:
    """Return the options and inputs among `words` for a linker. Each word of `-z` is an option."""
    return [_keyword(item) for item in TABLE.split(list(words))]


@dataclass(frozen=True)
class LinkerItem(CommandItem):
    """An option or input that the driver of a link hands to the linker as it is."""

    @property
    def option(self) -> str:
        """Return the option's name without dashes, or an empty string for an input."""
        return self.name.lstrip("-")

    @property
    def reads(self) -> bool:
        """Return whether the value is the path of a file that the link reads."""
        return not self.name or self.option in _READING.split()

    @property
    def writes(self) -> bool:
        """Return whether the value is the path of a file that the link writes beside its
        output."""
        return self.option in _WRITING.split()


def of_link(items: Iterable[CommandItem], *, has_lists: bool) -> Iterator[CommandItem]:
    """Yield the options and inputs of a link command, those for the linker as `LinkerItem`s: each
    by itself, however the command spreads their words. If it `has_lists`, commas separate words
    behind `-Xlinker`, too. An option that takes an input of the driver's for its value is
    unknown."""
    words: list[str] = []
    for item in items:
        if item.role is Role.LINKER:
            is_list = has_lists or item.name != "-Xlinker"
            words += filter(None, (item.value or "").split(",")) if is_list else (item.value or "",)
        elif item.name in ("-T", "-e", "-u", "-z") or item.name.startswith("-soname"):
            words += item.words
        else:
            if not item.name or item.role is Role.LIBRARY:
                yield from _as_linker_reads(words)
                words = []
            yield item
    yield from _as_linker_reads(words)


def _as_linker_reads(words: Sequence[str]) -> Iterator[LinkerItem]:
    for item in split(words):
        is_cut = item.value is None and TABLE.takes_next(item.name)
        yield LinkerItem(item.words, item.name, item.value, Role.UNKNOWN if is_cut else item.role)


def _keyword(item: CommandItem) -> CommandItem:
    word = item.words[0]
    keyword = item.value if word == "-z" else word[2:] if word.startswith("-z") and word != "-z" else None
    if keyword is None:
        return item
    (known,) = TABLE.split([f"-z={keyword}"])
    return CommandItem(item.words, f"-z {keyword}", keyword, known.role)


def wrapped(items: Sequence[CommandItem]) -> tuple[str, ...]:
    """Return the symbols that `--wrap` names."""
    return values(items, WRAP)


def excluded(items: Sequence[CommandItem]) -> frozenset[str]:
    """Return the names of the archives that `--exclude-libs` gives. `ALL` stands for every one."""
    return frozenset(name for value in values(items, "exclude-libs") for name in re.split("[,:]", value))


def values(items: Iterable[CommandItem], *names: str) -> tuple[str, ...]:
    """Return the values of the options `names`, which are given without dashes."""
    return tuple(i.value for i in items if i.value and i.name.lstrip("-") in names)
