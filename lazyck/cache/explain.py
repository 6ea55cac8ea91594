"""Explains why a blob is, or is not, in the cache: the nearest entry there, and the ingredient of
the key that differs."""

import difflib
import json
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from lazyck import abi, proc
from lazyck.cache.entries import CacheEntry
from lazyck.directory import RefusedError, opened_in
from lazyck.formats import trailer
from lazyck.formats.layout import EntryPath, log_of, root_of, split_build
from lazyck.formats.manifest import Manifest, Recipe
from lazyck.prebuild.blob_entries import BlobEntry, rt_words
from lazyck.quantities import show_seconds
from lazyck.visible import visible

_HEAD_SIZE = 20  # bytes of an ELF file, up to its e_machine
_LONGEST_COMMAND = 16 << 20
_IN_BUNDLE = f"(?:/|{abi.BUNDLE_LINK})"
# Patterns for what takes the place of a recipe's placeholders in a command.
_STANDS_FOR = {
    abi.PH_SOURCE: f"{_IN_BUNDLE}.*", abi.PH_ROOT: f"{_IN_BUNDLE}.*",
    abi.PH_OUTPUT: r"[^/]*\.s?o", abi.PH_INPUT: r"[^/]*\.o",
    abi.PH_TOOLCHAIN: "/.*", abi.PH_KERNEL: "(?s:.*)",
    abi.PH_NAME: "[0-9a-f]{16}",
}  # fmt: skip
_PLACEHOLDERS = re.compile("(" + "|".join(map(re.escape, _STANDS_FOR)) + ")")


def explain(manifest: Manifest, entry: BlobEntry, others: Iterable[CacheEntry], extra_key: str, now: float) -> str:
    """Explain one entry to people. `others` are entries of its blob. `extra_key` is the value of
    LAZYCK_EXTRA_CACHE_KEY."""
    head = f"{visible(entry.name)} for {visible(entry.shown_arch)}"
    candidates = [o for o in others if o.path != entry.path]
    if entry.cached:
        text = _text_of(entry.path)
        same = [o for o in sorted(candidates, key=lambda o: o.made) if text and _text_of(o.path) == text]
        lines = [f"  same text   {visible(str(o.path))}" for o in same]
        return "\n".join([f"{head}: hit", f"  entry       {visible(str(entry.path))}", *lines])
    lines = [f"{head}: miss", f"  looked for  {visible(str(entry.path))}"]
    if os.path.lexists(entry.path):
        lines.append(f"  exists, but is not used: {problem_of(entry.path, manifest.machine)}")
    elif not candidates:
        lines.append("  the cache has no entry for this blob")
    else:
        scored = [(differences(manifest, entry, o, extra_key), o) for o in candidates]
        found, nearest = min(scored, key=lambda pair: (len(pair[0]), -pair[1].made))
        lines.append(
            f"  nearest     {visible(str(nearest.path))}, {show_seconds(max(0, round(now - nearest.made)))} old"
        )
        lines += [f"  differs in  {difference}" for difference in found]
    return "\n".join(lines)


def _text_of(path: Path) -> str:
    """Return the text key in the trailer of an entry, or an empty string if none can be read."""
    try:
        with opened_in(root_of(path), path) as f:
            found = trailer.read(f)
    except (RefusedError, OSError):
        return ""
    return found.text if found else ""


def problem_of(path: Path, machine: str) -> str:
    """Return why an existing entry is not used, if that can be seen from outside."""
    try:
        with opened_in(root_of(path), path) as f:
            head = f.read(_HEAD_SIZE)
            found = trailer.read(f)
    except RefusedError as e:
        return e.message
    except OSError as e:
        return f"it cannot be read: {e.strerror}"
    if found is None or len(head) < _HEAD_SIZE:
        return "it is cut short, or was not written by lazyck"
    is_for = abi.machine_name(int.from_bytes(head[18:20], "little"))
    if machine and is_for != machine:
        return f"it is for {is_for}, but the library is for {machine}"
    return (
        "it is damaged, or was made for another key (`lazyck cache verify` says which; `lazyck cache verify --remove` "
        "removes a damaged one)"
    )


def differences(manifest: Manifest, entry: BlobEntry, other: CacheEntry, extra_key: str) -> list[str]:
    """Return the ingredients in which the key of `other` differs from that of `entry`, with what is
    wanted and what the other has."""
    wanted, theirs = EntryPath.of(entry.path), other.at
    toolchain, salt = split_build(wanted.build) if extra_key else (wanted.build, "")
    # The name of a toolchain may end like the hash of an extra key.
    their_toolchain, their_salt = (toolchain, "") if theirs.build == toolchain else split_build(theirs.build)
    compiler, _, headers = toolchain.partition(abi.HEADERS_MARK)
    their_compiler, _, their_headers = their_toolchain.partition(abi.HEADERS_MARK)
    pairs = {
        "library": (wanted.library, theirs.library),
        "arch": (wanted.archs, theirs.archs),
        "toolchain": (compiler, their_compiler),
        "the system's headers": tuple(f"others ({h})" if h else "the build's" for h in (headers, their_headers)),
    }
    found = [_unlike(name, *pair) for name, pair in pairs.items() if pair[0] != pair[1]]
    if their_salt != salt:
        found.append(_unlike(abi.ENV_EXTRA_CACHE_KEY, salt and "set", their_salt and f"another (hash {their_salt})"))
    if theirs.digest != wanted.digest:
        found.append(_digest_difference(manifest, entry, other))
    return found


def _unlike(ingredient: str, wanted: str, found: str) -> str:
    return f"{ingredient}: wanted {visible(wanted) or 'none'}, it has {visible(found) or 'none'}"


def _digest_difference(manifest: Manifest, entry: BlobEntry, other: CacheEntry) -> str:
    blob = next(b for b in manifest.blobs if b.name == entry.name)
    command = read_command(log_of(other.path))
    if command is None:
        return "source, headers or flags (the entry has no log that says which)"
    archs = entry.shown_arch if other.at.archs == entry.shown_arch.replace("-", "_") else other.at.archs
    ours, theirs = compare_commands(manifest.recipes[entry.recipe], blob.source, archs.split("+"), command)
    if ours or theirs:
        return _unlike("flags", shlex.join(ours) or "without them", shlex.join(theirs) or "without them")
    return "source or headers (the commands are the same)"


def read_command(log: Path) -> list[str] | None:
    """Return the compile command at the head of an entry's log, or None."""
    try:
        with opened_in(root_of(log), log) as f:
            line = f.readline(_LONGEST_COMMAND).decode(errors="surrogateescape")
        words = shlex.split(line[2:]) if line.startswith("$ ") else None
        # lazyck-unit may stand before the project's own command (units/src/main.cpp).
        is_led = words is not None and words[1:2] in ([abi.UNIT_HIP_OBJECT], [abi.UNIT_HIP_TEXT]) and "--" in words
        return words[words.index("--") + 1 :] if words and is_led else words
    except (RefusedError, OSError, ValueError):
        return None


def compare_commands(
    recipe: Recipe, source: str, archs: Sequence[str], command: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Return the words of the recipe that the command lacks, and the words of the command that the
    recipe lacks. Paths may have moved and match each other."""
    wanted: list[str] = []
    for word in recipe.compile:
        if word == abi.PH_ARCHS:
            wanted += [abi.with_arch(flag, arch) for arch in archs for flag in recipe.arch_flags]
        else:
            wanted.append(word)
    patterns = {word: _pattern(word, source.rpartition("/")[2]) for word in wanted if abi.PH in word}
    normal = [c if c in wanted else next((w for w, p in patterns.items() if p.fullmatch(c)), c) for c in command]
    ours: list[str] = []
    theirs: list[str] = []
    for tag, a, b, c, d in difflib.SequenceMatcher(a=wanted, b=normal, autojunk=False).get_opcodes():
        if tag != "equal":
            ours += [_PLACEHOLDERS.sub("...", w) for w in wanted[a:b]]
            theirs += command[c:d]
    return ours, theirs


def _pattern(word: str, base: str) -> re.Pattern[str]:
    parts = _PLACEHOLDERS.split(word)
    stands_for = _STANDS_FOR | {abi.PH_SOURCE: f"{_IN_BUNDLE}.*/{re.escape(base)}"}
    return re.compile("".join(stands_for.get(p) or re.escape(p) for p in parts), re.DOTALL)


def installed_packs(rt: Path, library: Path, env: Mapping[str, str]) -> list[dict[str, str]]:
    """Return the packs that are installed beside `library`, as the runtime finds them: the `name`
    and `version` of each distribution, the `root` of the cache in it, and the `problem` because of
    which its entries are not used, an empty string if it was made for this build."""
    out = proc.check("looking for packs", rt_words(rt, abi.RT_PACKS, library, ()), env=env).stdout
    return [json.loads(line) for line in out.splitlines()]


def render_pack(pack: Mapping[str, str], entry: Path) -> str:
    has = "has the entry" if entry.is_relative_to(pack[abi.ROW_ROOT]) else "does not have it"
    name = f"{visible(pack[abi.ROW_NAME])} {visible(pack[abi.ROW_VERSION])}"
    return f"  pack        {pack[abi.ROW_PROBLEM] or f'{name} {has}'}"
