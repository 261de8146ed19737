"""Words and names for what was seen: titles, paths and sentences in the names of the code, and what an expression does.

Knows values and expressions as text; no graph.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from typing import Any

from atlas.runtime.derivation.observation import BLOCK_INPUT, Value
from atlas.runtime.derivation.sizes import typed
from atlas.runtime.derivation.statements import RETURNED

OPERATORS: Mapping[type[ast.operator], str] = {
    ast.MatMult: "matmul",
    ast.Mult: "multiply",
    ast.Add: "add",
    ast.Sub: "subtract",
    ast.Div: "divide",
    ast.Pow: "power",
}
NAMESPACES = frozenset({"self", "torch", "nn", "F"})
PLUMBING = frozenset({"contiguous", "to", "float", "type_as", "reshape", "view", "expand", "unsqueeze", "take"})
NAMES = {
    "blocks": "Block",
    "embedding": "Embedding",
    "final-norm": "Final norm",
    "unembedding": "Unembedding",
    "blocks/block-input": "Block input",
    "blocks/block-output": "Block output",
    "embedding/embedded": "Embedded tokens",
    "final-norm/normalized": "Normalized",
    "unembedding/logits": "Logits",
}
"""What is called the same in every decoder."""


def kebab(name: str) -> str:
    """`Olmo2RMSNorm` as `olmo2-rms-norm`, `q_proj` as `q-proj`."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", name)
    return re.sub(r"[^a-z0-9]+", "-", spaced.lower()).strip("-") or "value"


def ancestors(path: str) -> list[str]:
    """A component and those around it."""
    parts = path.split("/") if path else []
    return ["/".join(parts[: depth + 1]) for depth in range(len(parts))]


def kebabs(module: str) -> list[str]:
    """The parts of a module's name, as a path has them."""
    return [kebab(part) for part in module.split(".") if part]


def free(path: str, taken: Iterable[str]) -> str:
    """The path, numbered if it is taken."""
    known, found, number = set(taken), path, 2
    while found in known:
        found, number = f"{path}-{number}", number + 1
    return found


def leaf_of(value: Value) -> str:
    """The last part of a value's path: its name in the code, with its number, and the function that a module calls."""
    name = kebab(value.name.removesuffix("()")) + ("-output" if value.name.endswith("()") else "")
    name += f"-{value.element + 1}" if value.element is not None else ""
    name += f"-{value.nth}" if value.nth > 1 else ""
    return name if "." in value.function else f"{kebab(value.function)}-{name}"


def titled(name: str) -> str:
    """`self_attn` as `Self attn`; what has capitals of its own keeps them."""
    return name.replace("_", " ").capitalize() if name.islower() else name.replace("_", " ")


def title(value: Value) -> str:
    """A short title: the variable, or the function whose result it is."""
    plain = value.function.rpartition(".")[2] if value.function.endswith(".forward") else value.function
    if value.name == RETURNED:
        owner = value.function.removesuffix(".forward").rpartition(".")[2] if plain == "forward" else plain
        return f"result of {owner}" + (f", part {value.element + 1}" if value.element is not None else "")
    if value.name.endswith("()"):
        return f"output of {value.name.removesuffix('()')}"
    return value.name + (f" ({value.nth})" if value.nth > 1 else "")


def symbol_of(value: Value) -> str:
    """Its name in the code as TeX, with its number."""
    name = value.function.rpartition(".")[2] if value.name == RETURNED else value.name.removesuffix("()")
    if name == "forward":
        name = value.function.removesuffix(".forward").rpartition(".")[2]
    return typed(name) + (f"_{{{value.nth}}}" if value.nth > 1 else "")


def sentence(value: Value) -> str:
    """A sentence that says what the value is in the code."""
    if value.key == BLOCK_INPUT:
        return f"What a block is given: the argument {value.name} of {value.function}."
    if value.name == RETURNED:
        return f"What {value.function} returns."
    if value.name.endswith("()"):
        return f"What the module {value.name.removesuffix('()')} gives in {value.function}."
    again = f", the {_ordinal(value.nth)} time" if value.nth > 1 else ""
    return f"What {value.function} assigns to {value.name}{again}."


def _ordinal(number: int) -> str:
    endings = {1: "st", 2: "nd", 3: "rd"}
    return f"{number}{'th' if number % 100 in (11, 12, 13) else endings.get(number % 10, 'th')}"


def what(text: str) -> str:
    """What an expression does, in the words of the code: the functions and operators on the way to its value, in the
    order in which they are applied. What only lays numbers out again is left out where there is something else.
    """
    node: ast.expr | None = _parsed(text)
    found: list[str] = []
    while node is not None:
        node, word = _step(node)
        found = [word, *found] if word else found
    told = [word for word in found if word not in PLUMBING] or found
    return ", ".join(told[-3:]) or "compute"


def _parsed(text: str) -> ast.expr:
    """An expression, which may go on over several lines; of `x += y` the sum."""
    try:
        return ast.parse(f"({text}\n)", mode="eval").body
    except SyntaxError:
        statement = ast.parse(text.strip()).body[0]
        assert isinstance(statement, ast.AugAssign)
        target = ast.parse(ast.unparse(statement.target), mode="eval").body
        return ast.BinOp(target, statement.op, statement.value)


def _step(node: ast.expr) -> tuple[ast.expr | None, str]:
    """The part of an expression that is applied last, as a word, and what it is applied to."""
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute):
            method = not isinstance(_root(node.func), ast.Name) or _root(node.func).id not in NAMESPACES
            return (node.func.value if method else None), node.func.attr
        return None, ast.unparse(node.func)
    if isinstance(node, ast.BinOp):
        return node.left, OPERATORS.get(type(node.op), "compute")
    if isinstance(node, ast.UnaryOp):
        return node.operand, "negate" if isinstance(node.op, ast.USub) else "invert"
    if isinstance(node, ast.Compare):
        return node.left, "compare"
    return (node.value, "take") if isinstance(node, ast.Subscript) else (None, "")


def _root(node: ast.expr) -> Any:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node
