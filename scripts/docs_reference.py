"""Generate the parts of the documentation's site that are not in docs/*.md, as hooks of mkdocs.

- `<!-- generated: command build full -->` in a page becomes the usage and options of that command,
  from its parser.
- `<!-- generated: c interface -->` becomes the functions and types of lazyck.h, with their
  comments.
- `<!-- generated: eager reasons -->` becomes the table of why sources are eager, and what to
  change.
- `<!-- generated: reasons of the shim -->` becomes the table of what the shims' reasons mean.
- Files of the repository that pages link to (`../SECURITY.md`) become pages or files below
  `repository/`.
- A page that would have the browser fetch anything from elsewhere is an error.
"""

import inspect
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from lazyck.cli import cli
from lazyck.interceptor.reasons import SAYS
from lazyck.postbuild.reasons import ReasonKind
from lazyck.runtime.builder import SOURCES

REPOSITORY = Path(__file__).resolve().parent.parent
MARK = re.compile(r"^<!-- generated: (.*) -->$", re.MULTILINE)
_LINK = re.compile(r"(\]\()([^)#\s:]+)(?=[)#])")
_FETCHED = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)=\"(?:https?:)?//[^\"]*", re.IGNORECASE)


# -- the command line ------------------------------------------------------------------------------


def commands(
    command: click.Command = cli, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield each command and group with the words that name it; the first is `lazyck` itself,
    without words.

    Hidden commands, which are for lazyck's own use, are left out.
    """
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            member = command.get_command(context, name)
            if member is not None and not member.hidden:
                yield from commands(member, (*path, name))


def render_command(path: tuple[str, ...]) -> str:
    """Return usage, purpose and options of a command, as Markdown. Raises `KeyError` for words that
    name none."""
    command = dict(commands())[path]
    context = click.Context(command, info_name=" ".join(("lazyck", *path)))
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    parts = [f"```text\n{usage}\n```", _plain(inspect.cleandoc(command.help or ""))]
    options = [p for p in command.params if isinstance(p, click.Option)]
    records = [r for p in options if (r := p.get_help_record(context))]
    if records:
        rows = [f"| `{names.replace('|', chr(92) + '|')}` | {_plain(text)} |" for names, text in records]
        parts.append("\n".join(["| option | meaning |", "|---|---|", *rows]))
    return "\n\n".join(parts)


def _plain(text: str) -> str:
    """Return a help text as Markdown: text between backticks stays as it is, all other markup is
    escaped."""
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(p if p.startswith("`") else re.sub(r"([\\*_<>\[\]|])", r"\\\1", p) for p in pieces)


# -- the C interface -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Declaration:
    """Holds lines of lazyck.h that belong together, with the comment before them; `names` is empty
    for a section."""

    names: tuple[str, ...]
    comment: str
    code: str


def read_header(text: str) -> list[Declaration]:
    """Return the declarations of lazyck.h, which blank lines divide."""
    start, end = (m.end() for m in re.finditer(r"#ifdef __cplusplus\n", text))
    found = []
    for chunk in re.split(r"\n{2,}", text[start:end]):
        match = re.match(r"/\*(.*?)\*/\n?", chunk, re.DOTALL)
        comment = re.sub(r"\n \*? ?", " ", match[1]).strip() if match else ""
        code = chunk[match.end() if match else 0 :].strip()
        if code.startswith(("extern", "}", "#")):
            continue
        without_members = re.sub(r"\{.*?\}", "", re.sub(r"/\*.*?\*/", "", code, flags=re.DOTALL), flags=re.DOTALL)
        names = re.findall(r"\b(lazyck_\w+)\(|\(\*(lazyck_\w+)\)|\b(lazyck_\w+);", without_members)
        found.append(Declaration(tuple(a or b or c for a, b, c in names), comment, code))
    return found


def render_header(text: str) -> str:
    """Return the declarations of lazyck.h, as Markdown."""
    opening = re.match(r"/\*(.*?)\*/", text, re.DOTALL)
    paragraphs = re.split(r"\n \*\n", opening[1]) if opening else []
    parts = [_c_comment(re.sub(r"\n? \* ?", " ", p).strip()) for p in paragraphs]
    parts.append("## The library")
    for found in read_header(text):
        if not found.code:
            title, _, rest = found.comment.strip("- ").partition(":")
            parts.append(f"## {title[0].upper()}{title[1:]}")
            parts += [_c_comment(f"{rest.strip()[0].upper()}{rest.strip()[1:]}")] if rest else []
            continue
        parts.append("### " + ", ".join(f"`{name}`" for name in found.names))
        parts += [_c_comment(found.comment)] if found.comment else []
        parts.append(f"```c\n{found.code}\n```")
    return "\n\n".join(parts)


def _c_comment(text: str) -> str:
    return re.sub(r"(?<!`)\b((?:lazyck|LAZYCK)_\w+|sizeof\(\w+\)|NULL)(?!`)", r"`\1`", text)


def expand(markdown: str) -> str:
    """Return the page with its marks replaced. Raises `ValueError` for an unknown mark."""

    def text_for(match: re.Match[str]) -> str:
        kind, *words = match[1].split()
        if kind == "command":
            return render_command(tuple(words))
        if match[1] == "c interface":
            return render_header((SOURCES / "lazyck.h").read_text())
        if match[1] == "eager reasons":
            rows = [f"| `{kind.name}` | {_plain(kind.says)} | {_plain(kind.advice)} |" for kind in ReasonKind]
            return "\n".join(["| kind | the source | what to change |", "|---|---|---|", *rows])
        if match[1] == "reasons of the shim":
            rows = [f"| `{reason}` | {_plain(says)} |" for reason, says in SAYS.items()]
            return "\n".join(["| reason | the call |", "|---|---|", *rows])
        raise ValueError(f"nothing is known to generate for: {match[0]}")

    return MARK.sub(text_for, markdown)


# -- files of the repository -----------------------------------------------------------------------


def linked(text: str, place: str) -> list[str]:
    """Return the targets of the links in a Markdown file of the repository at `place`, as paths in
    the repository."""
    targets = (os.path.normpath(os.path.join(os.path.dirname(place), m[2])) for m in _LINK.finditer(text))
    return [t for t in targets if not t.startswith("..") and (REPOSITORY / t).is_file()]


def uri_of(place: str) -> str:
    """Return the place of a repository's file on the site."""
    return place.removeprefix("docs/") if place.startswith("docs/") else f"repository/{place}"


def place_of(uri: str) -> str:
    """Return the repository's file at this place of the site."""
    return uri.removeprefix("repository/") if uri.startswith("repository/") else f"docs/{uri}"


def lead(text: str, uri: str) -> str:
    """Return the page with its links to files of the repository turned into links on the site."""
    here = os.path.dirname(place_of(uri))

    def target(match: re.Match[str]) -> str:
        place = os.path.normpath(os.path.join(here, match[2]))
        if place.startswith("..") or not (REPOSITORY / place).is_file():
            return match[0]
        return match[1] + os.path.relpath(uri_of(place), os.path.dirname(uri) or ".")

    return _LINK.sub(target, text)


# -- hooks of mkdocs -------------------------------------------------------------------------------


def on_files(files: Any, *, config: Any) -> Any:
    """Add the files outside of docs/ that pages link to, and those that they link to in turn."""
    from mkdocs.structure.files import File, InclusionLevel

    waiting = [place_of(f.src_uri) for f in files.documentation_pages()] + ["CHANGELOG.md"]
    seen = set(waiting)
    while waiting:
        place = waiting.pop()
        if not place.startswith("docs/"):
            file = File.generated(config, uri_of(place), abs_src_path=str(REPOSITORY / place))
            file.inclusion = InclusionLevel.NOT_IN_NAV if place.endswith(".md") else InclusionLevel.INCLUDED
            files.append(file)
        if place.endswith(".md"):
            new = set(linked((REPOSITORY / place).read_text(), place)) - seen
            waiting += [p for p in new if not p.startswith("docs/")]
            seen |= new
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Replace the marks, and adapt the links to the site."""
    return lead(expand(markdown), page.file.src_uri)


def on_post_build(*, config: Any) -> None:
    """Check that a page fetches nothing from elsewhere when it is read. Raises `SystemExit`."""
    for page in Path(config.site_dir).rglob("*.html"):
        if found := _FETCHED.search(page.read_text()):
            raise SystemExit(f"{page}: would be fetched: {found[0]}")
