"""A diagram as pixels: a PNG of one fixed size with a title beside it, for sites that show a link with a picture.

Owns how the style sheets of a page become plain ones: custom properties filled in, the light theme taken, colours
mixed, since what draws here (resvg) knows no more of CSS than SVG 1.1 has. Fonts are those of the equations, so that
a picture is the same on every machine. Knows nothing of pages and models.
"""

from __future__ import annotations

import re
from functools import lru_cache
from html import escape

import resvg_py

from atlas.render.assets import static_dir, vendor_file
from atlas.render.diagram import text

WIDTH, HEIGHT = 1200, 630
"""What sites that show links ask for."""
PAD = 40.0
MOST = 640.0
"""The most width in px that a diagram takes of it."""
FONTS = ("Main-Regular", "Main-Bold", "Math-Italic", "SansSerif-Regular", "SansSerif-Bold")

_SIZE = re.compile(r'<svg [^>]*viewBox="0 0 ([\d.]+) ([\d.]+)" width="[\d.]+" height="[\d.]+"')
_RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
_MIX = re.compile(r"color-mix\(in srgb, (#\w+) (\d+)%, (#\w+|transparent)\)")
_VAR = re.compile(r"var\((--[\w-]+)(?:,\s*([^()]*))?\)")
_LIGHT = re.compile(r"light-dark\(([^(),]+),[^(),]+\)")
_SIMPLE = re.compile(r"[\w\s.>\[\]=\"-]+")


def card(diagram: str, title: str, lines: tuple[str, ...]) -> bytes:
    """A diagram (SVG with a viewBox from 0 0) and beside it a title and lines of text, as PNG, 1200 × 630 px.

    Raises ValueError for what is no such diagram, AssetMissing where the fonts are not installed.
    """
    size = _SIZE.match(diagram)
    if size is None:
        raise ValueError("This is no diagram: its size is not known.")
    wide, high = float(size[1]), float(size[2])
    scale = min(MOST / wide, (HEIGHT - 2 * PAD) / high, 1.6)
    drawn = _SIZE.sub(
        f'<svg class="diagram-svg" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:g} {high:g}" x="{PAD:g}" '
        f'y="{(HEIGHT - high * scale) / 2:g}" width="{wide * scale:g}" height="{high * scale:g}"',
        diagram,
        count=1,
    )
    picture = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}">'
        f"<style>{plain_style()}</style>"
        f'<rect class="ground" width="{WIDTH}" height="{HEIGHT}"/>{drawn}{_words(wide * scale, title, lines)}</svg>'
    )
    fonts = [str(vendor_file(f"katex/fonts/KaTeX_{name}.ttf")) for name in FONTS]
    return resvg_py.svg_to_bytes(
        svg_string=picture,
        skip_system_fonts=True,
        font_files=fonts,
        font_family="KaTeX_SansSerif",
        sans_serif_family="KaTeX_SansSerif",
        serif_family="KaTeX_Main",
    )


@lru_cache(maxsize=1)
def plain_style() -> str:
    """theme.css and diagram.css in the light theme, as far as they are about what is drawn."""
    theme, sheet = (_without_blocks((static_dir() / name).read_text("utf-8")) for name in ("theme.css", "diagram.css"))
    known: dict[str, str] = {}
    hues: dict[str, str] = {}
    for selector, body in _RULE.findall(theme + sheet):
        for name, value in _declarations(body):
            if name == "--hue":
                hues[selector.strip()] = value
            elif name.startswith("--"):
                known.setdefault(name, value)
    rules = [f".ground {{ fill: {_plain('var(--paper)', known)} }}"]
    for selectors, body in _RULE.findall(sheet):
        each = [one.strip() for one in selectors.split(",")]
        wanted = [one for one in each if _SIMPLE.fullmatch(one) and one.startswith((".diagram-svg", ".badge"))]
        kept = [(name, value) for name, value in _declarations(body) if not name.startswith("--")]
        for one in wanted:
            axes = hues if one.endswith("[data-axis]") else {"": ""}
            for axis, hue in axes.items():
                filled = {**known, "--hue": hue} if hue else known
                said = "; ".join(f"{name}: {_plain(value, filled)}" for name, value in kept)
                rules.append(f"{one.removesuffix('[data-axis]') + axis if axis else one} {{ {said} }}")
    ink, soft, accent = (_plain(f"var(--{name})", known) for name in ("ink", "ink-soft", "accent"))
    rules.append(
        f".title {{ fill: {ink}; font-family: KaTeX_Main; font-weight: 700 }} .said {{ fill: {soft} }} "
        f".said, .brand {{ font-family: KaTeX_SansSerif }} .brand {{ fill: {accent}; font-weight: 700 }}"
    )
    return "\n".join(rules)


def _words(left: float, title: str, lines: tuple[str, ...]) -> str:
    x = left + 2 * PAD
    room = WIDTH - PAD - x
    found, y = [f'<text class="brand" x="{x:g}" y="92" font-size="24">OpenModelAtlas</text>'], 170.0
    for words, name, size, step in ((title, "title", 54.0, 60.0), *((line, "said", 27.0, 36.0) for line in lines)):
        for part in text.broken(words, size, room, bold=name == "title")[:4]:
            found.append(f'<text class="{name}" x="{x:g}" y="{y:g}" font-size="{size:g}">{escape(part)}</text>')
            y += step
        y += 14
    return "".join(found)


def _declarations(body: str) -> list[tuple[str, str]]:
    pairs = (part.split(":", 1) for part in body.split(";") if ":" in part)
    return [(name.strip(), " ".join(value.split())) for name, value in pairs]


def _without_blocks(sheet: str) -> str:
    """Without comments and without what depends on a medium."""
    sheet = re.sub(r"/\*.*?\*/", "", sheet, flags=re.DOTALL)
    return re.sub(r"@media[^{]*\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}", "", sheet)


def _plain(value: str, known: dict[str, str]) -> str:
    """A value with its properties filled in, the light one of two colours taken and mixed colours mixed."""
    before = ""
    while before != value:
        before = value
        value = _LIGHT.sub(r"\1", value)
        value = _MIX.sub(_mixed, value)
        value = _VAR.sub(lambda found: known.get(found[1], found[2] or "none"), value)
    return value


def _mixed(found: re.Match[str]) -> str:
    share = int(found[2]) / 100
    if found[3] == "transparent":
        return found[1]
    one, other = (_channels(colour) for colour in (found[1], found[3]))
    return "#" + "".join(f"{round(a * share + b * (1 - share)):02x}" for a, b in zip(one, other, strict=True))


def _channels(colour: str) -> tuple[int, ...]:
    digits = colour[1:]
    if len(digits) in (3, 4):
        digits = "".join(digit * 2 for digit in digits)
    return tuple(int(digits[at : at + 2], 16) for at in (0, 2, 4))
