"""The formula of one number as TeX, numbers put in. An input's number carries its node, so that a page can light it."""

from __future__ import annotations

from collections.abc import Mapping

from atlas.inspection.formulas import Applied, Constant, Formula, Gathered, Leaf, finite

TERMS = 2
"""Terms of a sum that are written out."""

INFIX = {"add": ("+", 1), "subtract": ("-", 1), "multiply": (r"\cdot", 2), "matmul": (r"\cdot", 2)}
NAMED = {"exp": r"\exp", "tanh": r"\tanh", "cos": r"\cos", "sin": r"\sin", "log": r"\ln"}
ATOM = 9


def formula_tex(formula: Formula, paths: Mapping[str, str]) -> str:
    """TeX of a formula. `paths` are the nodes of its inputs' names."""
    return _tex(formula, paths)[0]


def number_tex(value: complex, digits: int = 5) -> str:
    """A number with some digits: `-1.234 \\cdot 10^{-5}`; both parts of a complex one."""
    if isinstance(value, complex):
        if value == 1j:
            return r"\mathrm i"
        sign = "-" if value.imag < 0 else "+"
        return rf"{number_tex(value.real, digits)} {sign} {number_tex(abs(value.imag), digits)}\,\mathrm i"
    if not finite(value):
        return {"inf": r"\infty", "-inf": r"-\infty"}.get(str(value), r"\mathrm{nan}")
    text = f"{value:.{digits}g}"
    mantissa, _, exponent = text.partition("e")
    return rf"{mantissa} \cdot 10^{{{int(exponent)}}}" if exponent else mantissa


def _tex(formula: Formula, paths: Mapping[str, str]) -> tuple[str, int]:
    """TeX, and how tightly it binds: 1 a sum, 2 a product, 3 a power, 9 what needs no brackets."""
    match formula:
        case Leaf(value=value, name=name):
            return rf"\htmlData{{node={paths[name]}}}{{{number_tex(value)}}}", _strength(value)
        case Constant(value=value):
            return number_tex(value), _strength(value)
        case Gathered():
            return _gathered(formula, paths)
        case Applied(function=function, parts=parts):
            return _applied(formula, function, parts, paths)
    return number_tex(formula.value), _strength(formula.value)


def _strength(value: complex) -> int:
    if value == 1j:
        return ATOM
    if isinstance(value, complex) or value < 0:
        return 1
    return 2 if "cdot" in number_tex(value) else ATOM


def _inside(part: Formula, paths: Mapping[str, str], strength: int) -> str:
    """A part, in brackets if it binds less tightly than what stands around it."""
    tex, own = _tex(part, paths)
    return tex if own > strength else rf"\left({tex}\right)"


def _applied(formula: Formula, function: str, parts: tuple[Formula, ...], paths: Mapping[str, str]) -> tuple[str, int]:
    if function == "pick":
        return _tex(parts[0], paths)
    if function in INFIX and len(parts) > 1:
        sign, strength = INFIX[function]
        first = _inside(parts[0], paths, strength - 1)
        return f" {sign} ".join([first, *(_inside(part, paths, strength) for part in parts[1:])]), strength
    if function in ("divide", "true_divide"):
        return rf"\frac{{{_tex(parts[0], paths)[0]}}}{{{_tex(parts[1], paths)[0]}}}", 2
    if function in ("power", "float_power", "square"):
        exponent = "2" if function == "square" else _tex(parts[1], paths)[0]
        return rf"{_inside(parts[0], paths, 3)}^{{{exponent}}}", 3
    if function == "negative":
        return f"-{_inside(parts[0], paths, 2)}", 1
    if function == "sqrt":
        return rf"\sqrt{{{_tex(parts[0], paths)[0]}}}", ATOM
    if function == "absolute":
        return rf"\left|{_tex(parts[0], paths)[0]}\right|", ATOM
    if function in ("real", "imag"):
        name = r"\operatorname{Re}" if function == "real" else r"\operatorname{Im}"
        return rf"{name}\left[{_tex(parts[0], paths)[0]}\right]", ATOM
    named = NAMED.get(function, rf"\operatorname{{{function.replace('_', ' ')}}}")
    inner = r",\, ".join(_tex(part, paths)[0] for part in parts)
    return (rf"{named}\left({inner}\right)", ATOM) if parts else (number_tex(formula.value), ATOM)


def _gathered(formula: Gathered, paths: Mapping[str, str]) -> tuple[str, int]:
    if formula.how in ("max", "min"):
        return rf"\underset{{{formula.count}}}{{\{formula.how}}}\;{_inside(formula.shown[0], paths, 2)}", ATOM
    sign = r"\cdot" if formula.how == "product" else "+"
    shown = [_inside(part, paths, 1) for part in formula.shown[:TERMS]]
    more = [r"\cdots"] if formula.count > len(shown) else []
    written = f" {sign} ".join([*shown, *more])
    under = rf"\underbrace{{{written}}}_{{{formula.count}}}" if more else rf"\left({written}\right)"
    return (rf"\frac{{1}}{{{formula.count}}}\,{under}", 2) if formula.how == "mean" else (under, ATOM)
