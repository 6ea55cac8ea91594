"""Explains why a blob is, or is not, in the cache: the nearest entry there, and the ingredient of
the key that differs."""

import difflib
import os
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from _lazyck import abi, trailer
from _lazyck.cache.entries import CacheEntry
from _lazyck.directory import RefusedError, opened_in
from _lazyck.layout import Place, log_of, root_of, split_build
from _lazyck.manifest import Manifest, Recipe
from _lazyck.prebuild.entries import Entry
from _lazyck.quantities import show_seconds
from _lazyck.visible import visible

_HEAD_SIZE = 20  # bytes of an ELF file, up to its e_machine
_LONGEST_COMMAND = 16 << 20
_IN_BUNDLE = f"(?:/|{abi.BUNDLE_LINK})"
# Patterns for what takes the place of a recipe's placeholders in a command.
_STANDS_FOR = {
    abi.PH_SOURCE: f"{_IN_BUNDLE}.*", abi.PH_ROOT: f"{_IN_BUNDLE}.*",
    abi.PH_OUTPUT: r"[^/]*\.s?o", abi.PH_INPUT: r"[^/]*\.o",
    abi.PH_LIBRARY: ".*", abi.PH_TOOLCHAIN: "/.*", abi.PH_KERNEL: "(?s:.*)",
    abi.PH_NAME: "[0-9a-f]{16}",
}  # fmt: skip


@dataclass(frozen=True)
class Difference:
    """An ingredient of the key: the value that is wanted, and the value that the existing entry
    has."""

    ingredient: str
    wanted: str
    found: str


@dataclass(frozen=True)
class Explanation:
    """The state of an entry. If it can be used, `same_text` are other entries made of the same
    text. Otherwise `problem` says what is wrong with it, or `nearest` is the closest entry and
    `differences` says how it differs."""

    entry: Entry
    problem: str = ""
    nearest: CacheEntry | None = None
    differences: tuple[Difference, ...] = ()
    same_text: tuple[CacheEntry, ...] = ()


def explain(manifest: Manifest, entry: Entry, others: Iterable[CacheEntry], extra_key: str) -> Explanation:
    """Explain one entry. `others` are entries of its blob, and `extra_key` is the value of
    LAZYCK_EXTRA_CACHE_KEY."""
    candidates = [o for o in others if o.path != entry.path]
    if entry.cached:
        text = _text_of(entry.path)
        same = [o for o in candidates if text and _text_of(o.path) == text]
        return Explanation(entry, same_text=tuple(sorted(same, key=lambda o: o.made)))
    if os.path.lexists(entry.path):
        return Explanation(entry, problem_of(entry.path, manifest.machine))
    scored = [(differences(manifest, entry, o, extra_key), o) for o in candidates]
    if not scored:
        return Explanation(entry)
    found, nearest = min(scored, key=lambda pair: (len(pair[0]), -pair[1].made))
    return Explanation(entry, "", nearest, found)


def _text_of(path: Path) -> str:
    """Return the text key in the trailer of an entry, or an empty string if it has none or cannot
    be read."""
    try:
        with opened_in(root_of(path), path) as f:
            found = trailer.read(f)
    except (RefusedError, OSError):
        return ""
    return found.text if found else ""


def problem_of(path: Path, machine: str) -> str:
    """Return why an entry is in its place but is not used, as far as can be told from outside."""
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


def differences(manifest: Manifest, entry: Entry, other: CacheEntry, extra_key: str) -> tuple[Difference, ...]:
    """Return the ingredients in which the key of `other` differs from that of `entry`."""
    wanted, theirs = Place.of(entry.path), other.at
    toolchain, salt = split_build(wanted.build) if extra_key else (wanted.build, "")
    # The name of a toolchain may end like the hash of an extra key.
    their_toolchain, their_salt = (toolchain, "") if theirs.build == toolchain else split_build(theirs.build)
    pairs = {
        "library": (wanted.library, theirs.library),
        "arch": (wanted.archs, theirs.archs),
        "toolchain": (toolchain, their_toolchain),
    }
    found = [Difference(name, *pair) for name, pair in pairs.items() if pair[0] != pair[1]]
    if their_salt != salt:
        found.append(Difference(abi.ENV_EXTRA_CACHE_KEY, salt and "set", their_salt and f"another (hash {their_salt})"))
    if theirs.digest != wanted.digest:
        found.append(_digest_difference(manifest, entry, other))
    return tuple(found)


def _digest_difference(manifest: Manifest, entry: Entry, other: CacheEntry) -> Difference:
    blob = next(b for b in manifest.blobs if b.name == entry.name)
    command = read_command(log_of(other.path))
    if command is None:
        return Difference("source, headers or flags", "", "the entry has no log that says which")
    archs = entry.shown_arch if other.at.archs == entry.shown_arch.replace("-", "_") else other.at.archs
    ours, theirs = compare_commands(manifest.recipes[blob.recipe], blob.source, archs.split("+"), command)
    if ours or theirs:
        return Difference("flags", shlex.join(ours) or "without them", shlex.join(theirs) or "without them")
    return Difference("source or headers", "", "the commands are the same")


def read_command(log: Path) -> list[str] | None:
    """Return the compile command at the head of an entry's log, or None."""
    try:
        with opened_in(root_of(log), log) as f:
            line = f.readline(_LONGEST_COMMAND).decode(errors="surrogateescape")
        words = shlex.split(line[2:]) if line.startswith("$ ") else None
        # lazyck-unit may stand before the project's own command (units/src/main.cpp).
        is_led = words is not None and words[1:2] in (["hip-object"], ["hip-text"]) and "--" in words
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
            wanted += [flag.replace(abi.PH_ARCH, arch) for arch in archs for flag in recipe.arch_flags]
        else:
            wanted.append(word)
    patterns = {word: _pattern(word, source.rpartition("/")[2]) for word in wanted if abi.PH in word}
    normal = [c if c in wanted else next((w for w, p in patterns.items() if p.fullmatch(c)), c) for c in command]
    ours: list[str] = []
    theirs: list[str] = []
    for tag, a, b, c, d in difflib.SequenceMatcher(a=wanted, b=normal, autojunk=False).get_opcodes():
        if tag != "equal":
            ours += [_shown(w) for w in wanted[a:b]]
            theirs += command[c:d]
    return ours, theirs


def _pattern(word: str, base: str) -> re.Pattern[str]:
    parts = re.split("(" + "|".join(map(re.escape, _STANDS_FOR)) + ")", word)
    stands_for = _STANDS_FOR | {abi.PH_SOURCE: f"{_IN_BUNDLE}.*/{re.escape(base)}"}
    return re.compile("".join(stands_for.get(p) or re.escape(p) for p in parts), re.DOTALL)


def _shown(word: str) -> str:
    for placeholder in _STANDS_FOR:
        word = word.replace(placeholder, "...")
    return word


def render(explanation: Explanation, now: float) -> str:
    """Return the explanation for people."""
    e = explanation
    head = f"{visible(e.entry.name)} for {visible(e.entry.shown_arch)}"
    if e.entry.cached:
        same = [f"  same text   {visible(str(o.path))}" for o in e.same_text]
        return "\n".join([f"{head}: hit", f"  entry       {visible(str(e.entry.path))}", *same])
    lines = [f"{head}: miss", f"  looked for  {visible(str(e.entry.path))}"]
    if e.problem:
        lines.append(f"  exists, but is not used: {e.problem}")
    elif e.nearest is None:
        lines.append("  the cache has no entry for this blob")
    else:
        age = show_seconds(max(0, round(now - e.nearest.made)))
        lines.append(f"  nearest     {visible(str(e.nearest.path))}, {age} old")
        lines += [f"  differs in  {_render_difference(d)}" for d in e.differences]
    return "\n".join(lines)


def _render_difference(d: Difference) -> str:
    if d.ingredient in ("source or headers", "source, headers or flags"):
        return f"{d.ingredient} ({d.found})"
    return f"{d.ingredient}: wanted {visible(d.wanted) or 'none'}, it has {visible(d.found) or 'none'}"
