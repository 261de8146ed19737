"""A page of a server as a page of a site of files: every address relative, none that leads nowhere.

Works on the HTML that the templates give. A link to what is not published stays as text. The signs that open a part of
a diagram in place are for scripts; without them one leads to the part's own page, and those that close are not there.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape, unescape

from atlas.web.published.address import Address, read, way_up

_TOGGLE = re.compile(r'<a class="toggle" href="[^"]*" data-toggle="([^"]*)" aria-label="(Open|Close)')
_NO_LINK = re.compile(r"<a(?= )(?![^>]* href=)[^>]*>")
_FOR_LINKS = re.compile(r' (?:aria-label|data-key|data-key-label)="[^"]*"')
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
    up: str | None = None,
) -> str:
    """The page as its file holds it. `static` gives the place of a static file's address in the site's folder.

    `up` is the way to that folder, by default from the page's own file.
    """
    up = way_up(address.file) if up is None else up
    model = address.path.split("/")[2] if address.path.count("/") > 1 else ""

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

    def sign(match: re.Match[str]) -> str:
        part, act = match.groups()
        name = "toggle" if act == "Open" else "toggle needs-script"
        query = "" if address.view == "full" else f"?view={address.view}"
        return f'<a class="{name}" href="/models/{model}/{part}{query}" data-toggle="{part}" aria-label="{act}'

    found = _ATTRIBUTE.sub(moved, _TOGGLE.sub(sign, page))
    found = _NO_LINK.sub(lambda match: _FOR_LINKS.sub("", match[0]), found)
    about = (
        f' data-root="{up}" data-page="{escape(address.path)}" data-page-view="{address.view}" '
        f'data-runs="{" ".join(runs)}"'
    )
    policy = f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    return _HEAD.sub(
        lambda m: f'<html lang="en"{m[1]}{about}>\n<head>\n<meta charset="utf-8">\n{policy}', found, count=1
    )
