"""A page of a server as a page of a site of files: every address relative, none that leads nowhere.

Works on the HTML that the templates give. A link to what is not published stays as text. The signs that open a part of
a diagram in place go, since no file has it so; the part itself leads to its own page.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape, unescape

from atlas.web.published.address import Address, read, way_up

_TOGGLE = re.compile(r'<a class="toggle".*?</a>', re.DOTALL)
_ATTRIBUTE = re.compile(r'\s(href|src|action|xlink:href)="(/[^"]*)"')
_HEAD = re.compile(r'<html lang="en"([^>]*)>\s*<head>\s*<meta charset="utf-8">')
POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "object-src 'none'; base-uri 'none'; form-action 'self'"
)
"""That of a server, as far as a page can set it by itself."""


def rewritten(
    page: str,
    address: Address,
    *,
    static: Callable[[str], str],
    published: Callable[[Address], bool],
    runs: tuple[str, ...],
) -> str:
    """The page as its file holds it. `static` gives the place of a static file's address in the site's folder."""
    up = way_up(address.file)

    def moved(match: re.Match[str]) -> str:
        name, given = match[1], unescape(match[2])
        if given.startswith("/static/"):
            return f' {name}="{escape(up + static(given))}"'
        target, after = read(given)
        if not published(target):
            return ""
        if target == address and after.startswith("#"):
            return f' {name}="{escape(after)}"'
        return f' {name}="{escape(up + target.file + after)}"'

    found = _ATTRIBUTE.sub(moved, _TOGGLE.sub("", page))
    about = f' data-root="{up}" data-page="{escape(address.path)}" data-runs="{" ".join(runs)}"'
    policy = f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    return _HEAD.sub(
        lambda m: f'<html lang="en"{m[1]}{about}>\n<head>\n<meta charset="utf-8">\n{policy}', found, count=1
    )
