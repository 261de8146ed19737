"""A graph of what was seen of a model's code: in the code's own names, with the module tree as its components.

Blocks are folded into one. Nodes are assignments, returns and calls of modules; edges are what flowed. No equations:
those a person has to write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from atlas.errors import CheckpointError
from atlas.graph.anchors import at
from atlas.graph.axes import VIEWS, View
from atlas.graph.evidence import Evidence, SourceRef
from atlas.graph.nodes import (
    Alias,
    Architecture,
    Component,
    Layers,
    Node,
    Operation,
    Parameter,
    Reference,
    Tensor,
    Use,
    no_reference,
)
from atlas.runtime.derivation.observation import BLOCK_INPUT, LAYER, TOKENS, Observation, Pass, Value
from atlas.runtime.derivation.observer import BEFORE, LOGITS, PASSES
from atlas.runtime.derivation.sizes import Sizes, typed
from atlas.runtime.derivation.statements import RETURNED
from atlas.runtime.derivation.wording import (
    NAMES,
    ancestors,
    free,
    kebab,
    kebabs,
    leaf_of,
    sentence,
    symbol_of,
    title,
    titled,
    what,
)

WHOLE = 40  # lines of a function that is shown whole beside a value
ABSENT = "The code does not come to this line in such a pass."


def graph_of(
    identity: str,
    name: str,
    settings: Mapping[str, Any],
    arguments: Mapping[str, Any],
    seen: Observation,
    file: SourceRef,
) -> Architecture:
    """The graph of a model of class `name`, whose configuration has these settings, from what was seen of it.

    `arguments` are what its configuration class takes, `file` is where its code stands. Raises `CheckpointError` where
    no stream of features or no logits were seen.
    """
    return _Graph(identity, name, settings, arguments, seen, file).architecture()


class _Graph:
    def __init__(
        self,
        identity: str,
        name: str,
        settings: Mapping[str, Any],
        arguments: Mapping[str, Any],
        seen: Observation,
        file: SourceRef,
    ) -> None:
        self.identity, self.name, self.arguments, self.seen, self.file = identity, name, arguments, seen, file
        self.sizes = Sizes(
            settings,
            width=self._width(BLOCK_INPUT, "a stream that blocks hand on"),
            vocabulary=self._width(seen.named.get(LOGITS, ""), "logits"),
            passes=PASSES,
            before=BEFORE,
        )
        self.sizes.also(size for weight in seen.weights.values() for size in weight.shape)
        self.settings = settings
        self.kinds: dict[tuple[int, ...], str] = {}
        self.functions = {value.function for value in seen.values.values()}
        self.paths = self._paths()
        self.weights = self._weights()
        self.nodes: dict[str, Node] = {}

    def _width(self, key: str, what: str) -> int:
        value = self.seen.values.get(key)
        shape = value.shapes.get("full", ()) if value is not None else ()
        if len(shape) != 3:
            raise CheckpointError(
                f"{self.name} was run, and {what} [batch, positions, features] did not come to be.",
                "It cannot be derived; a declaration of it would need a runner of its own.",
            )
        return shape[-1]

    def architecture(self) -> Architecture:
        """The whole graph."""
        self.nodes["token-ids"] = self._tokens()
        for value in self._in_order():
            self._add(value)
        for key in self.seen.weights:  # of modules that gave no value of their own
            self._add_parameter(key)
        named = {path: self.paths[key] for path, key in self.seen.named.items()}
        chosen = {"experts_per_token": self.seen.chosen} if self.seen.chosen else {}
        plain = self.name.removesuffix("ForCausalLM").removesuffix("LMHeadModel")
        return Architecture(
            id=self.identity,
            name=f"{plain} (derived)",
            kind="Derived from its code",
            attention="Nobody has described it yet",
            summary=(
                "Nobody has described this architecture. What is shown was read off its code while it ran, once in "
                "each view, at its true size: components are its modules, nodes its assignments and calls by the "
                "code's own names, edges what flowed, and axes have the names of settings with the same number. There "
                "are no equations, and no explanations but the code itself."
            ),
            reference=Reference(
                runner="hugging_face",
                file=self.file,
                block=self.seen.block,
                forward=f"{self.seen.body}.forward",
                model=self.name,
                arguments=self.arguments,
            ),
            nodes=tuple(self.nodes.values()),
            axes=tuple(self.sizes.axes.values()),
            sizes={"layers": self.seen.layers, **self.sizes.sizes, **chosen},
            settings={},
            loops=((named["blocks/block-output"], "blocks/block-input"),) if "blocks/block-output" in named else (),
            enters=tuple((source, "blocks/block-input") for source in self._entering()),
        )

    def _in_order(self) -> list[Value]:
        """What comes before the blocks, the blocks, and what comes after."""
        values = list(self.seen.values.values())
        inside = [number for number, value in enumerate(values) if self._in_blocks(value)]
        before, after = values[: inside[0]], values[inside[-1] + 1 :]
        outside = [value for value in values[inside[0] : inside[-1]] if not self._in_blocks(value)]
        return [*before, *(values[number] for number in inside), *outside, *after]

    def _in_blocks(self, value: Value) -> bool:
        return value.module.startswith(f"{self.seen.blocks}.{LAYER}")

    def _entering(self) -> Iterable[str]:
        """What the first block takes: what its input was seen to be made of, outside the blocks."""
        sources = self.seen.values[BLOCK_INPUT].sources
        return [self.paths[key] for key in sources if key in self.paths and not self.paths[key].startswith("blocks/")]

    # --- names

    def _component(self, module: str) -> str:
        """The path of a module: blocks are `blocks`, the ends have the names that they have everywhere."""
        for name, path in self.seen.ends.items():
            if module == name or module.startswith(f"{name}."):
                return "/".join([path, *kebabs(module.removeprefix(name))])
        block = f"{self.seen.blocks}.{LAYER}"
        if module == block or module.startswith(f"{block}."):
            return "/".join(["blocks", *kebabs(module.removeprefix(block))])
        body = self.seen.blocks.rpartition(".")[0]
        inside = body and (module == body or module.startswith(f"{body}."))
        path = "/".join(kebabs(module.removeprefix(body) if inside else module))
        return f"outer-{path}" if path.partition("/")[0] == "blocks" else path

    def _paths(self) -> dict[str, str]:
        """A path for each value: of its component and its name in the code, numbered where that is taken."""
        standard = {key: path for path, key in self.seen.named.items()}
        around = {self._component(value.module) for value in self.seen.values.values()}
        around |= {path.rpartition("/")[0] for path in self.seen.named}
        components = {part for path in around for part in ancestors(path)}
        taken = {"token-ids", "blocks/block-input", *standard.values(), *components}
        found = {BLOCK_INPUT: "blocks/block-input", **standard}
        for key, value in self.seen.values.items():
            if key not in found:
                component = self._component(value.module)
                path = "/".join(filter(None, (component, leaf_of(value))))
                found[key] = free(f"{path}-value" if path in components else path, taken)
                taken.add(found[key])
        return found

    def _weights(self) -> dict[str, str]:
        """A path for each parameter, which no value has.

        A module in which nothing was seen but its result, such as a projection, is no component: its parameters are
        those of the module around it, `q-proj-weight`.
        """
        living = {part for path in self.paths.values() for part in ancestors(path.rpartition("/")[0])}
        taken = {*self.paths.values(), *living}
        found = {}
        for key, weight in self.seen.weights.items():
            module, _, leaf = weight.name.rpartition(".")
            component, leaf = self._component(module), kebab(leaf)
            while component and component not in living:
                component, _, last = component.rpartition("/")
                leaf = f"{last}-{leaf}"
            path = "/".join(filter(None, (component, leaf)))
            found[key] = free(f"{path}-parameter" if path in taken else path, taken)
            taken.add(found[key])
        return found

    # --- nodes

    def _add(self, value: Value) -> None:
        path = self.paths[value.key]
        self._add_components(path)
        tensor = self._tensor(value, path)
        for views, uses in self._made(value):
            parent, _, leaf = path.rpartition("/")
            maker = free("/".join(filter(None, (parent, f"make-{leaf}"))), {*self.nodes, *self.paths.values()})
            self.nodes[maker] = self._operation(value, maker, path, uses, views)
        self.nodes[path] = tensor

    def _made(self, value: Value) -> list[tuple[tuple[View, ...], list[Use]]]:
        """What goes into a value, for each group of views that have the same inputs."""
        if value.key == BLOCK_INPUT:
            return []
        paths = {source: path for source in value.sources if (path := self._source(source))}
        found: dict[tuple[str, ...], tuple[list[View], list[Use]]] = {}
        for view in (view for view in VIEWS if view in value.shapes):
            passes = {source: {at for at in value.sources[source] if at[0] == view} for source in paths}
            here = [source for source in paths if passes[source]]
            if here:
                uses = [Use(path=paths[source], layers=self._layers_of_use(value, passes[source])) for source in here]
                found.setdefault(tuple(here), ([], uses))[0].append(view)
        return [(tuple(views), uses) for views, uses in found.values()]

    def _source(self, key: str) -> str:
        """The path of what a value was made of; a parameter is put before it."""
        if key == TOKENS:
            return "token-ids"
        if key in self.seen.weights:
            return self._add_parameter(key)
        return self.paths.get(key, "")

    def _layers_of_use(self, value: Value, passes: Iterable[Pass]) -> Layers | None:
        layers = {layer for _, layer in passes}
        return self._layers(layers) if value.layers - layers else None

    def _add_components(self, path: str) -> None:
        parts = path.split("/")[:-1]
        for depth in range(1, len(parts) + 1):
            component = "/".join(parts[:depth])
            if component not in self.nodes:
                self.nodes[component] = self._component_node(component)

    def _component_node(self, path: str) -> Component:
        module = next((name for name in self.seen.modules if name and self._component(name) == path), "")
        kind = self.seen.modules.get(module, "")
        blocks = path == "blocks"
        return Component(
            path=path,
            name=NAMES.get(path) or titled(module.rpartition(".")[2] or path.rpartition("/")[2]),
            repeat="layers" if blocks else None,
            plural="blocks" if blocks else "",
            description=f"A module of the class {kind}." if kind else "A part of the model.",
            module=module,
            evidence=self._code(path, kind),
        )

    def _code(self, path: str, kind: str) -> tuple[Evidence, ...]:
        """The code of a component: its class's pass; of all blocks also the pass that has them."""
        places = {"module": f"{kind}.forward"} if f"{kind}.forward" in self.functions else {}
        if path == "blocks":
            places["model"] = f"{self.seen.body}.forward"
        return tuple(self._around(key, place) for key, place in places.items())

    def _around(self, key: str, place: str) -> Evidence:
        return Evidence(id=key, kind="contextual", claim=f"{place}, whole.", file=self.file, anchors=(at(place),))

    def _add_parameter(self, key: str) -> str:
        weight, path = self.seen.weights[key], self.weights[key]
        if path in self.nodes:
            return path
        module, _, leaf = weight.name.rpartition(".")
        self._add_components(path)
        self.nodes[path] = Parameter(
            path=path,
            name=titled(path.rpartition("/")[2].replace("-", "_")),
            symbol=typed(path.rpartition("/")[2].replace("-", "_")),
            shape=tuple(self.sizes.fixed(size) for size in weight.shape),
            weight=weight.name,
            description=f"The parameter {leaf} of {module or 'the model'}.",
            aliases=(Alias(name=weight.name, of="Hugging Face"),),
            layers=self._layers(weight.layers) if path.startswith("blocks/") else None,
        )
        return path

    def _tokens(self) -> Tensor:
        anchor = at(f"{self.seen.body}.forward").argument("input_ids")
        evidence = Evidence(
            id="token-ids", kind="direct", claim="The pass takes token ids.", file=self.file, anchors=(anchor,)
        )
        return Tensor(
            path="token-ids",
            name="Token ids",
            symbol=r"\mathbf{t}",
            shape=("batch", "positions"),
            hook=anchor,
            description="The tokens of this pass, as rows of the vocabulary.",
            evidence=(evidence,),
        )

    def _tensor(self, value: Value, path: str) -> Tensor:
        views = tuple(view for view in VIEWS if view in value.shapes)
        several = f" The line runs {value.turns} times in a pass; the last value is shown." if value.turns > 1 else ""
        return Tensor(
            path=path,
            name=NAMES.get(path) or title(value),
            symbol=symbol_of(value),
            shape=self._shape(value),
            hook=value.anchor,
            views=views,
            absent="" if len(views) == len(VIEWS) else ABSENT,
            layers=self._layers(value.layers) if path.startswith("blocks/") else None,
            description=f"{sentence(value)}{several}",
            evidence=self._line(value),
            aliases=(Alias(name=value.name.removesuffix("()"), of="the code"),) if value.name != RETURNED else (),
        )

    def _operation(self, value: Value, maker: str, path: str, uses: list[Use], views: tuple[View, ...]) -> Operation:
        given = r",\ ".join(f"<{use.path}>" for use in uses)
        return Operation(
            path=maker,
            name=what(value.text),
            inputs=tuple(uses),
            outputs=(path,),
            equation=rf"<{path}> = {typed(what(value.text))}\!\left({given}\right)",
            reference=no_reference,
            derived=True,
            views=views,
            absent="" if len(views) == len(VIEWS) else ABSENT,
            layers=self._layers(value.layers) if path.startswith("blocks/") else None,
            description="Read off the code: what goes in, and what comes out.",
            evidence=self._line(value),
        )

    def _line(self, value: Value) -> tuple[Evidence, ...]:
        """The expression, and the function that it stands in, if that can be taken in at a glance."""
        claim = "This expression computes it."
        line = Evidence(id="line", kind="direct", claim=claim, file=self.file, anchors=(value.anchor,))
        short = self.seen.lengths[value.function] <= WHOLE
        return (line, self._around("function", value.function)) if short else (line,)

    def _layers(self, numbers: Iterable[int | None] | None) -> Layers | None:
        known = tuple(sorted(number for number in numbers or () if number is not None))
        if not known or len(known) == self.seen.layers:
            return None
        if known not in self.kinds:
            told = len(self.kinds)
            self.kinds[known] = self._kind(known) or (("some", "other")[told] if told < 2 else f"group {told + 1}")
        return Layers(name=self.kinds[known], numbers=known)

    def _kind(self, numbers: tuple[int, ...]) -> str:
        """What the configuration calls these layers, if it has a word for each and these are all of one word."""
        for words in self.settings.values():
            if (
                isinstance(words, list)
                and len(words) == self.seen.layers
                and all(isinstance(one, str) for one in words)
            ):
                word = words[numbers[0]]
                if tuple(number for number, one in enumerate(words) if one == word) == numbers:
                    return str(word).replace("_", " ")
        return ""

    def _shape(self, value: Value) -> tuple[str, ...]:
        shapes = value.shapes
        rank = len(next(iter(shapes.values())))
        return tuple(self.sizes.axis({view: shape[index] for view, shape in shapes.items()}) for index in range(rank))
