"""The beginning of a declaration, printed: a derived architecture as a module of `atlas/architectures` that loads.

What a person has to write is marked by what stands there instead: names of the code, calls for equations, and
`derived=True`. Knows the language of declarations, and of its users that they format with ruff.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from atlas.architectures._code import Code
from atlas.catalog import Derived
from atlas.graph.anchors import Anchor, Step
from atlas.graph.axes import VIEWS, Axis, Frozen
from atlas.graph.nodes import Alias, Component, Layers, Node, Operation, Parameter, Tensor, Use
from atlas.runtime.derivation.sizes import CHOSEN, LAYERS, STANDARD, VOCABULARY, WIDTH

WIDE = 120
SMALL_ENOUGH = 1_000_000
"""Parameters of a model that any machine runs at once, so that it can be the small one of a declaration."""


def draft(derived: Derived) -> str:
    """The text of the module. It can be imported as it is, and declares the graph that was derived."""
    return _Draft(derived).text()


DECLARED = (Alias, Axis, Layers, Use)


class _Draft:
    def __init__(self, derived: Derived) -> None:
        self.architecture, self.lock = derived.architecture, derived.lock
        self.arguments = self.architecture.reference.arguments
        self.code = code_of(derived)
        self.identity = self.code.model

    def text(self) -> str:
        """All of it."""
        name = self.architecture.name.removesuffix(" (derived)")
        parts = self._parts()
        body = "\n\n\n".join(self._function(function, nodes) for function, nodes in parts)
        numbers = {key: value for key, value in self.arguments.items() if _is_number(value)}
        others = {key: value for key, value in self.arguments.items() if not _is_number(value)}
        pieces = [
            self._docstring(name),
            self._imports(body),
            f"ID = {_flat(self.identity)}\nCODE = {self._code()}\n{self._small(numbers)}{self._others(others)}",
            self._declare(name, [function for function, _ in parts], bool(others)),
            HELPERS,
            body,
        ]
        return f"{pieces[0]}\n\n{pieces[1]}\n\n" + "\n\n\n".join(piece.strip("\n") for piece in pieces[2:]) + "\n"

    def _docstring(self, name: str) -> str:
        file = self.lock.files[0]
        return f'''"""{name}: say in a sentence what it has that its relatives have not.

Drafted from `{file.path.rsplit("/", 1)[-1]}` of {self.lock.carrier.distribution if self.lock.carrier else ""} \\
{self.lock.carrier.version if self.lock.carrier else ""} by `atlas draft`. It loads as it is. To make it a declaration:

1. Pin the source, in sources/transformers.toml:

    [[files]]
    path = "{file.path}"
    sha256 = "{file.sha256}"
    carried_as = "{file.carried_as}"

2. Give nodes the paths, names and symbols that other architectures have for the same quantity, drop what only lays
   numbers out again, and use the functions of `_attention`, `_gated`, `_norms` and `_rope` where they fit.
3. Replace each `step` by an `Operation` with its equation, as TeX and as a few lines of numpy.
4. Say of every size which setting gives it, and of every node why it is there.

CONTRIBUTING.md goes through all of this with an example.
"""'''.replace(" \\\n", " ")

    def _imports(self, body: str) -> str:
        names = ["Architecture", "Component", "Node", "Operation", "Tensor", "Use", "no_reference"]
        names += [name for name in ("Alias", "Layers", "Parameter") if f"{name}(" in body]
        axes = ["from atlas.graph.axes import Axis"] if self.architecture.axes else []
        whole = ", whole" if "whole(" in self._sizes()[0] else ""
        ordered = sorted(names, key=lambda name: (not name[0].isupper(), name))
        nodes = f"from atlas.graph.nodes import {', '.join(ordered)}"
        if len(nodes) > WIDE:
            nodes = "from atlas.graph.nodes import (\n" + "".join(f"    {name},\n" for name in ordered) + ")"
        return "\n".join(
            [
                "from __future__ import annotations",
                "",
                "from typing import Any",
                "",
                f"from atlas.architectures._code import Code, Config{whole}",
                "from atlas.graph.anchors import Anchor, at",
                *axes,
                nodes,
            ]
        )

    def _code(self) -> str:
        plain = Code(self.code.model, self.code.prefix)
        named = "".join(
            f", {field}={_flat(getattr(self.code, field))}"
            for field in ("block", "body", "head")
            if getattr(self.code, field) != getattr(plain, field)
        )
        return f"Code({_flat(self.code.model)}, {_flat(self.code.prefix)}{named})"

    def _small(self, numbers: Mapping[str, Any]) -> str:
        if self._parameters() > SMALL_ENOUGH:
            return "# SMALL: Config = {...}  # a model that any machine runs at once, for checks without weights\n"
        lines = "".join(f"    {_flat(key)}: {_flat(value)},\n" for key, value in numbers.items())
        return f'SMALL: Config = {{\n{lines}}}\n"""A model of a size that any machine runs at once."""\n'

    def _others(self, others: Mapping[str, Any]) -> str:
        if not others:
            return ""
        lines = "".join(f"    {_flat(key)}: {_python(value, 4, 8 + len(key))},\n" for key, value in others.items())
        return (
            f'OTHER: dict[str, Any] = {{\n{lines}}}\n"""Settings that are no numbers, as the checkpoint had them."""\n'
        )

    def _parameters(self) -> int:
        sizes = self.architecture.sizes
        total = 0
        for node in self.architecture.nodes:
            if isinstance(node, Parameter):
                count = sizes["layers"] if "{layer}" in node.weight else 1
                for axis in node.shape:
                    count *= sizes[axis]
                total += count
        return total

    def _declare(self, name: str, functions: list[str], others: bool) -> str:
        made = self.architecture
        axes = "".join(f"            {_python(axis, 12, 12)},\n" for axis in made.axes)
        settings = "{**config, **OTHER}" if others else "config"
        sizes, more = self._sizes()
        nodes = "".join(f"            *{function}(),\n" for function in functions)
        listed = f"        axes=(\n{axes}        ),\n" if axes else ""
        return f'''def declare(config: Config) -> Architecture:
    """The whole declaration for one configuration."""
    sizes = {{
{sizes}    }}
{more}    return Architecture(
        id=ID,
        name={_flat(name)},
        kind="Say what kind of model it is",
        attention="Say how positions exchange information",
        summary="Say in a few sentences what is its own, where that came from, and what it is for.",
        reference=CODE.reference({settings}),
        nodes=(
{nodes}        ),
{listed}        sizes=sizes,
        settings={{}},
        loops={_python(made.loops, 8, 14)},
        enters={_python(made.enters, 8, 15)},
    )'''

    def _sizes(self) -> tuple[str, str]:
        """Sizes in terms of the configuration as far as the names tell: those of settings, and those made of others."""
        sizes, lines, more = self.architecture.sizes, [], []
        made = {
            "head_dim": ("d_model", "//", "q_heads"),
            "q_width": ("q_heads", "*", "head_dim"),
            "kv_width": ("kv_heads", "*", "head_dim"),
        }
        for axis, size in sizes.items():
            setting = self._setting(axis, size)
            one, sign, other = made.get(axis, ("", "", ""))
            if setting:
                lines.append(f"        {_flat(axis)}: whole(config, {_flat(setting)}),\n")
            elif {one, other} <= sizes.keys() and size == _applied(sizes[one], sign, sizes[other]):
                more.append(
                    (
                        axis != "head_dim",
                        f"    sizes[{_flat(axis)}] = sizes[{_flat(one)}] {sign} sizes[{_flat(other)}]\n",
                    )
                )
            else:
                asked = "" if axis == "one" else "  # which settings give it?"
                lines.append(f"        {_flat(axis)}: {size},{asked}\n")
        return "".join(lines), "".join(line for _, line in sorted(more))

    def _setting(self, axis: str, size: int) -> str:
        """The setting that an axis has its size from; empty where none has that name and that number."""
        known = {"layers": LAYERS, "d_model": WIDTH, "vocab": VOCABULARY, "experts_per_token": CHOSEN, **dict(STANDARD)}
        candidates = [name for part in axis.split("_or_") for name in known.get(part, (part,))]
        return next((name for name in candidates if self.arguments.get(name) == size), "")

    # --- nodes

    def _parts(self) -> list[tuple[str, list[Node]]]:
        """What comes before the blocks, the blocks, and what comes after, each as a function."""
        nodes = list(self.architecture.nodes)
        inside = [number for number, node in enumerate(nodes) if node.path.partition("/")[0] == "blocks"]
        parts = (
            ("_before", nodes[: inside[0]]),
            ("_blocks", nodes[inside[0] : inside[-1] + 1]),
            ("_after", nodes[inside[-1] + 1 :]),
        )
        return [(name, part) for name, part in parts if part]

    def _function(self, name: str, nodes: Iterable[Node]) -> str:
        lines, around = [], None
        for node in nodes:
            component = node.path if isinstance(node, Component) else node.path.rpartition("/")[0]
            if component != around and component:
                lines.append(f"        # --- {component}")
            around = component
            lines.append(f"        {self._node(node)},")
        return f"def {name}() -> tuple[Node, ...]:\n    return (\n" + "\n".join(lines) + "\n    )"

    def _node(self, node: Node) -> str:
        if isinstance(node, Operation):
            said = {"inputs": tuple(map(_plain_use, node.inputs)), "outputs": node.outputs}
            made = {"path": node.path, "what": node.name, "made": node.evidence[0].anchors[0]}
            return _call("step", {**made, **said, **_parted(node)}, 8, positional=3)
        if isinstance(node, Tensor):
            own = {"name": node.name, "symbol": node.symbol, "description": node.description}
            facts = {"path": node.path, "made": node.hook, "shape": node.shape, **own, **_parted(node)}
            return _call("value", facts, 8, positional=3)
        facts = {key: value for key, value in _facts(node).items() if key not in ("evidence", "explanation")}
        return _call(type(node).__name__, facts, 8)


HELPERS = '''
def value(path: str, made: Anchor, shape: tuple[str, ...], **facts: Any) -> Tensor:
    """A tensor that is taken where the code makes it, and that cites this place."""
    evidence = CODE.direct("line", "This expression computes it.", made)
    return Tensor(path=path, hook=made, shape=shape, evidence=evidence, **facts)


def step(
    path: str, what: str, made: Anchor, inputs: tuple[str | Use, ...], outputs: tuple[str], **facts: Any
) -> Operation:
    """An operation that nobody has described: what the code calls, without an equation."""
    word = what.replace("_", r"\\_").replace(" ", r"\\ ")
    given = r",\\ ".join(f"<{item if isinstance(item, str) else item.path}>" for item in inputs)
    return Operation(
        path=path,
        name=what,
        inputs=inputs,
        outputs=outputs,
        equation=rf"<{outputs[0]}> = \\mathtt{{{word}}}\\!\\left({given}\\right)",
        reference=no_reference,
        derived=True,
        description="Read off the code: what goes in, and what comes out.",
        evidence=CODE.direct("line", "This expression computes it.", made),
        **facts,
    )
'''


def code_of(derived: Derived) -> Code:
    """How a declaration would speak of the code: by the prefix of its classes, where they have one."""
    reference = derived.architecture.reference
    model = derived.lock.files[0].path.rsplit("/", 2)[-2]
    names = (reference.block, reference.forward.removesuffix(".forward"), reference.model)
    prefix = reference.model.removesuffix("ForCausalLM").removesuffix("LMHeadModel")
    if not all(name.startswith(prefix) for name in names):
        prefix = ""
    block, body, head = (name.removeprefix(prefix) for name in names)
    return Code(model, prefix, block=block, body=body, head=head)


def _is_number(value: object) -> bool:
    return value is None or isinstance(value, bool | int | float)


def _plain_use(item: str | Use) -> str | Use:
    return item.path if isinstance(item, Use) and item == Use(path=item.path) else item


def _parted(node: Tensor | Operation) -> dict[str, Any]:
    """What is said of a node that is not in every view or layer."""
    found: dict[str, Any] = {}
    if node.views != VIEWS:
        found |= {"views": node.views, "absent": node.absent}
    if node.layers is not None:
        found["layers"] = node.layers
    return found


def _facts(declared: Frozen) -> dict[str, Any]:
    """The fields of a declaration that are not as they would be anyway."""
    fields = type(declared).model_fields
    return {
        name: getattr(declared, name)
        for name, field in fields.items()
        if name != "kind" and (field.is_required() or getattr(declared, name) != field.default)
    }


def _applied(one: int, sign: str, other: int) -> int:
    return one * other if sign == "*" else one // other


# --- Python


def _call(function: str, facts: Mapping[str, Any], margin: int, column: int | None = None, positional: int = 0) -> str:
    """A call in one line if it fits, else with an argument a line, as ruff formats it.

    `margin` is the indentation of the line in which it begins, `column` where in it.
    """
    named = ["" if number < positional else f"{name}=" for number, name in enumerate(facts)]
    flat = f"{function}({', '.join(name + _flat(value) for name, value in zip(named, facts.values(), strict=True))})"
    if len(flat) + (margin if column is None else column) < WIDE:
        return flat
    inner = " " * (margin + 4)
    lines = [
        f"{inner}{name}{_python(value, margin + 4, margin + 4 + len(name))},\n"
        for name, value in zip(named, facts.values(), strict=True)
    ]
    return f"{function}(\n{''.join(lines)}{' ' * margin})"


def _python(value: Any, margin: int = 0, column: int = 0) -> str:
    """A value as Python: in one line if it fits, else as ruff formats it. As `_call`."""
    flat = _flat(value)
    if len(flat) + column < WIDE or isinstance(value, str):
        return flat
    inner = " " * (margin + 4)
    if isinstance(value, Anchor):
        return f"\n{' ' * margin}".join([f"at({_flat(value.place)})", *_steps(value)])
    if isinstance(value, DECLARED):
        return _call(type(value).__name__, _facts(value), margin, column)
    if isinstance(value, Mapping):
        items = [f"{_flat(key)}: {_python(item, margin + 4, margin + 8)}" for key, item in value.items()]
    else:
        items = [_python(item, margin + 4, margin + 4) for item in value]
    opening, closing = "{}" if isinstance(value, Mapping) else "[]" if isinstance(value, list) else "()"
    lines = "".join(f"{inner}{item},\n" for item in items)
    return f"{opening}\n{lines}{' ' * margin}{closing}"


def _flat(value: Any) -> str:
    """A value as Python in one line."""
    if isinstance(value, Anchor):
        return f"at({_flat(value.place)})" + "".join(_steps(value))
    if isinstance(value, DECLARED):
        facts = ", ".join(f"{name}={_flat(fact)}" for name, fact in _facts(value).items())
        return f"{type(value).__name__}({facts})"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, tuple):
        return f"({_flat(value[0])},)" if len(value) == 1 else f"({', '.join(map(_flat, value))})"
    if isinstance(value, list):
        return f"[{', '.join(map(_flat, value))}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_flat(key)}: {_flat(item)}" for key, item in value.items()) + "}"
    return f'float("{value}")' if isinstance(value, float) and math.isinf(value) else repr(value)


def _text(value: str) -> str:
    """A string as ruff quotes it; TeX as it stands."""
    if "\\" in value and '"' not in value and value.isprintable():
        return f'r"{value}"'
    if '"' in value and not {"'", "\\"} & set(value) and value.isprintable():
        return f"'{value}'"
    return json.dumps(value, ensure_ascii=False)


def _steps(anchor: Anchor) -> list[str]:
    """An anchor as the calls that build it, from its place on."""
    found = [_step(step) for step in anchor.steps]
    if anchor.condition is not None:
        found.append(f".where({_flat(anchor.condition[0])}, {_flat(anchor.condition[1])})")
    if anchor.within is not None:
        found.append(f".inside({_flat(anchor.within)})")
    return found


def _step(step: Step) -> str:
    if step.kind == "index":
        return f"[{step.nth}]"
    if step.kind in ("left", "right", "receiver"):
        return f".{step.kind}"
    inner = ([_flat(step.name)] if step.name else []) + ([str(step.nth)] if step.nth is not None else [])
    return f".{step.kind}({', '.join(inner)})"
