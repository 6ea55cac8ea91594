"""`lazyck help`: shows the pages of the documentation, which are in the package."""

import difflib
import re
from pathlib import Path

import click

from lazyck.errors import UsageError

PAGES = Path(__file__).parent.parent / "docs"
_ELSEWHERE = re.compile(r"^(:::|<!-- generated: c )", re.MULTILINE)
# Comments, anchors and pictures.
_UNSEEN = re.compile(r"^<!--.*?-->\n?|<a id=\"[^\"]*\"></a>|^!\[[^\]]*\]\([^)]*\)\n?", re.DOTALL | re.MULTILINE)


def topics() -> dict[str, str]:
    """Return the titles of the pages, by topic. Pages whose text is generated from sources, and is
    only on the site, are left out."""
    found = {page.stem: page.read_text() for page in sorted(PAGES.glob("*.md"))}
    return {t: text.removeprefix("# ").partition("\n")[0] for t, text in found.items() if not _ELSEWHERE.search(text)}


def page(topic: str) -> str:
    """Return the page on `topic`, for reading in a terminal. Raises `UsageError` for an unknown
    topic."""
    known = topics()
    if topic not in known:
        near = difflib.get_close_matches(topic, known, n=1)
        hint = f"did you mean `lazyck help {near[0]}`?" if near else "`lazyck help` lists the topics"
        raise UsageError(f"no topic {topic!r}", hint)
    return _UNSEEN.sub("", (PAGES / f"{topic}.md").read_text())


@click.command("help")
@click.argument("words", nargs=-1, metavar="[TOPIC | COMMAND...]")
@click.pass_context
def command(context: click.Context, words: tuple[str, ...]) -> None:
    """Show the page on TOPIC, or what `COMMAND --help` says; without either, list the topics."""
    if not words:
        rows = topics()
        width = max(map(len, rows))
        lines = [f"  {topic:<{width}}  {title}" for topic, title in rows.items()]
        click.echo("\n".join(["Topics of `lazyck help TOPIC`:", "", *lines]))
        return
    if len(words) == 1 and words[0] in topics():
        click.echo_via_pager(page(words[0]))
        return
    of = context.find_root()
    for word in words:
        member = of.command.get_command(of, word) if isinstance(of.command, click.Group) else None
        if member is None:
            raise _unknown(words)
        of = click.Context(member, parent=of, info_name=word)
    click.echo(of.get_help())


def _unknown(words: tuple[str, ...]) -> UsageError:
    try:
        page(words[0])
    except UsageError as e:
        return e if len(words) == 1 else UsageError(f"no command {' '.join(words)!r}", "`lazyck --help` lists them")
    return UsageError(f"{' '.join(words)!r}: a topic is one word", f"`lazyck help {words[0]}`")
