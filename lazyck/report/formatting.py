"""Figures and names of a report, as people read them and as HTML holds them."""

import html
from datetime import datetime

from lazyck.visible import visible, visible_lines

LONGEST_NAME = 160  # characters
LONGEST_TEXT = 400


def html_text(text: str) -> str:
    """Return `text` for HTML, in an element or a quoted attribute."""
    return html.escape(visible(text), quote=True)


def lines_html(text: str) -> str:
    return html.escape(visible_lines(text), quote=True)


def name_html(text: str) -> str:
    """Return the name of a blob for HTML: shortened, and with possible breaks between its parts."""
    return html_text(middle(text)).replace("_", "_<wbr>")


def middle(text: str, most: int = LONGEST_NAME) -> str:
    """Return `text`, without its middle if it is long, as kernels' names end differently."""
    half = (most - 3) // 2
    return text if len(text) <= most else f"{text[:half]} … {text[-half:]}"


def duration(seconds: float) -> str:
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms" if seconds else "0 s"
    if seconds < 99.5:
        return f"{seconds:.2f} s" if seconds < 9.95 else f"{seconds:.1f} s"
    if seconds < 5970:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:,.1f} h"


def time_text(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M")


def count_text(n: int, noun: str) -> str:
    return f"{n:,} {noun}" + ("" if n == 1 else "s")


def percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share < 0.0995 else f"{100 * share:.0f} %"
