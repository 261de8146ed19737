"""Graphs: what a small declaration becomes, and what a wrong one is told."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atlas.errors import DeclarationError, NotFound
from atlas.graph.anchors import at
from atlas.graph.evidence import SourceRef
from atlas.graph.nodes import (
    Architecture,
    Component,
    Node,
    Operation,
    Parameter,
    Reference,
    Tensor,
    Use,
    no_reference,
)
from atlas.graph.resolve import Edge, Graph, is_cache, tex_number

HOOK = at("f").returns()


def tensor(path: str, *shape: str, **facts: Any) -> Tensor:
    text = {"name": path, "description": "A tensor.", "symbol": path.rsplit("/", 1)[-1][0]}
    return Tensor(path=path, shape=shape or ("batch", "d_model"), hook=HOOK, **{**text, **facts})


def operation(path: str, inputs: Iterable[str | Use], outputs: Iterable[str], **facts: Any) -> Operation:
    given_facts: dict[str, Any] = {"name": path, "description": "A step.", "equation": "y", "reference": lambda: 0}
    return Operation(path=path, inputs=tuple(inputs), outputs=tuple(outputs), **{**given_facts, **facts})


def component(path: str, **facts: Any) -> Component:
    return Component(path=path, name=path, description="A part.", **facts)


def declare(*nodes: Node, **facts: Any) -> Architecture:
    given_facts: dict[str, Any] = {
        "sizes": {"d_model": 4, "layers": 2},
        "settings": {"eps": 1e-05, "theta": 500000.0, "group": 4, "unset": None},
    }
    return Architecture(
        id="made-up",
        name="Made up",
        summary="Small.",
        kind="Dense decoder",
        attention="None",
        reference=Reference(runner="none", file=SourceRef(source="a", path="b"), block="B", forward="f"),
        nodes=nodes,
        **{**given_facts, **facts},
    )


WEIGHT = Parameter(
    path="blocks/mix/weight", name="W", description="Learned.", symbol="W", shape=("d_model", "d_model"), weight="w"
)
NODES: tuple[Node, ...] = (
    tensor("ids", "batch", "positions", symbol=r"\mathbf t"),
    component("blocks", repeat="layers"),
    tensor("blocks/inward", symbol="x_n"),
    component("blocks/mix"),
    WEIGHT,
    operation(
        "blocks/mix/apply",
        ["inward", Use(path="weight", named="w"), Use(path="ids", lends=True)],
        ["mixed"],
        equation=r"<mixed> = <inward>\,<weight> + <#eps> / <#d_model>",
        reference=lambda inward, w, eps, d_model, start_pos: inward @ w + eps / d_model + 0 * start_pos,
        explanation=r"Reads $<blocks/inward>$ with $\theta = <#theta>$.",
    ),
    tensor("blocks/mix/mixed", symbol="y"),
    operation("blocks/add", ["inward", "mix/mixed"], ["outward"], reference=lambda inward, mixed: inward + mixed),
    tensor("blocks/outward", symbol="x_{n+1}"),
)  # fmt: skip
FLOW: dict[str, Any] = {"loops": (("blocks/outward", "blocks/inward"),), "enters": (("ids", "blocks/inward"),)}


@pytest.fixture
def graph() -> Graph:
    return Graph(declare(*NODES, **FLOW))


def test_edges_run_from_inputs_to_outputs_through_operations(graph: Graph) -> None:
    assert [(edge.source, edge.target) for edge in graph.edges if not edge.next_layer and not edge.first_layer] == [
        ("blocks/inward", "blocks/mix/apply"),
        ("blocks/mix/weight", "blocks/mix/apply"),
        ("ids", "blocks/mix/apply"),
        ("blocks/mix/apply", "blocks/mix/mixed"),
        ("blocks/inward", "blocks/add"),
        ("blocks/mix/mixed", "blocks/add"),
        ("blocks/add", "blocks/outward"),
    ]
    assert Edge(source="blocks/outward", target="blocks/inward", next_layer=True) in graph.edges
    assert Edge(source="ids", target="blocks/inward", first_layer=True) in graph.edges
    assert [edge.source for edge in graph.edges if edge.lends] == ["ids"]


def test_a_node_knows_its_neighbours_and_its_place(graph: Graph) -> None:
    mixed = graph["blocks/mix/mixed"]
    assert (mixed.inputs, mixed.outputs) == (("blocks/mix/apply",), ("blocks/add",))
    assert mixed.in_blocks
    assert not graph["ids"].in_blocks
    assert graph["blocks/inward"].inputs == (), "what comes from the layer before is no input of this one"
    producer = graph.producer("blocks/mix/mixed")
    assert producer is not None
    assert producer.path == "blocks/mix/apply"
    assert graph.producer("ids") is None
    assert [node.path for node in graph.ancestors("blocks/mix/mixed")] == ["blocks", "blocks/mix"]
    assert [node.path for node in graph.children("")] == ["ids", "blocks"]
    assert [node.path for node in graph.operations] == ["blocks/mix/apply", "blocks/add"]
    assert not is_cache(mixed.node)


def test_an_equation_has_its_symbols_and_numbers_lit(graph: Graph) -> None:
    apply = graph["blocks/mix/apply"]
    assert apply.plain_equation == r"y = x_n\,W + 10^{-5} / 4"
    assert apply.equation == (
        r"\htmlData{node=blocks/mix/mixed}{y} = \htmlData{node=blocks/inward}{x_n}\,"
        r"\htmlData{node=blocks/mix/weight}{W} + \htmlData{axis=eps}{10^{-5}} / \htmlData{axis=d_model}{4}"
    )
    assert graph["blocks/mix/mixed"].equation == apply.equation, "a tensor's equation is that of its operation"
    assert apply.explanation == (
        r"Reads $\htmlData{node=blocks/inward}{x_n}$ with $\theta = \htmlData{axis=theta}{500000}$."
    )


def test_an_unknown_node_is_named_with_the_nearest(graph: Graph) -> None:
    with pytest.raises(NotFound) as caught:
        graph["blocks/mixed"]
    assert caught.value.hint == "Did you mean 'blocks/mix/mixed'?"
    assert caught.value.facts["nearest"] == "blocks/mix/mixed"


def test_an_input_that_stands_in_is_used_where_the_other_is_absent() -> None:
    absent = {"views": ("full", "prefill"), "absent": "One position needs no mask."}
    graph = Graph(
        declare(
            tensor("plain"),
            operation("mask", ["plain"], ["masked"], **absent),
            tensor("masked", **absent),
            operation("soft", ["masked", Use(path="plain", instead_of="masked")], ["weights"]),
            tensor("weights"),
        )
    )
    views = {(edge.source, edge.target): edge.views for edge in graph.edges}
    assert views["masked", "soft"] == ("full", "prefill")
    assert views["plain", "soft"] == ("decode",)
    assert views["plain", "mask"] == ("full", "prefill")
    assert graph["masked"].shape["decode"] is None


def test_views_may_make_a_value_in_ways_of_their_own() -> None:
    many = {"views": ("full", "prefill"), "absent": "It is made of something else."}
    one = {"views": ("decode",), "absent": "It is made of something else."}
    nodes = (
        tensor("x"),
        tensor("z"),
        operation("scan", ["x"], ["y"], equation="<y> = <x>", **many),
        operation("step", ["z"], ["y"], equation="<y> = <z>", **one),
        tensor("y"),
    )
    graph = Graph(declare(*nodes))
    assert {(edge.source, edge.views) for edge in graph.edges if edge.target == "y"} == {
        ("scan", ("full", "prefill")),
        ("step", ("decode",)),
    }
    assert graph["y"].inputs == ("scan", "step")
    makers = [graph.producer("y", view=view) for view in ("full", "decode")]
    assert [maker.path for maker in makers if maker] == ["scan", "step"]
    assert not graph.architecture.derived
    assert graph["y"].plain_equation == (
        r"\begin{aligned} & y = x && \text{(full sequence and prefill)} \\[4pt] "
        r"& y = z && \text{(decode)} \end{aligned}"
    )
    with pytest.raises(DeclarationError, match="'scan' and its output 'y' are computed in different views"):
        Graph(declare(*(node for node in nodes if node.path != "step")))


def test_a_graph_is_derived_as_long_as_nobody_has_written_all_of_its_equations() -> None:
    given_nodes = (tensor("x"), tensor("y"), operation("f", ["x"], ["y"], reference=no_reference, derived=True))
    graph = Graph(declare(*given_nodes))
    assert graph.architecture.derived
    with pytest.raises(DeclarationError, match="Nobody has written this operation's equation"):
        no_reference()


SHORT = {"views": ("full",), "absent": "Because."}


@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        ([tensor("x", "batch", "positoins")], ["x: Unknown axis 'positoins'", "'positions'"]),
        ([tensor("x", "d_mlp")], ["x: The axis 'd_mlp' has no size"]),
        ([component("blocks", repeat="layer")], ["blocks: Unknown axis 'layer'", "'layers'"]),
        ([tensor("x", sharded="vocab")], ["x: It is split along 'vocab'"]),
        ([tensor("x"), operation("f", ["nowhere"], ["x"])], ["an input of 'f' names 'nowhere', which is no node"]),
        ([tensor("x"), operation("f", ["x"], ["nowhere"])], ["an output of 'f' names 'nowhere'"]),
        ([tensor("x"), component("c"), operation("f", ["x"], ["c"])], ["'f' outputs 'c', which is no tensor"]),
        ([tensor("x"), tensor("x")], ["'x' is declared twice"]),
        ([tensor("X")], ["'X' is no node path"]),
        ([tensor("a/x")], ["'a/x' is inside 'a', which is no component"]),
        ([tensor("a"), tensor("a/x")], ["'a/x' is inside 'a', which is no component"]),
        (
            [tensor("x"), tensor("y"), operation("f", ["x"], ["y"], equation="<z> = 1")],
            ["the equation of 'f' names 'z', which is no node"],
        ),
        (
            [component("c"), tensor("x"), tensor("y"), operation("f", ["x"], ["y"], equation="<c>")],
            ["the equation of 'f' shows 'c', a component without a symbol"],
        ),
        (
            [tensor("x"), tensor("y"), operation("f", ["x"], ["y"], equation="<#esp>")],
            ["the equation of 'f' uses <#esp>, which is no size or setting", "'eps'"],
        ),
        (
            [tensor("x"), tensor("y"), operation("f", ["x"], ["y"], equation="<#unset>")],
            ["the equation of 'f' uses <#unset>, which this configuration leaves out"],
        ),
        ([tensor("x", explanation="As $<y>$ says.")], ["the explanation of 'x' names 'y'"]),
        (
            [tensor("x"), tensor("y"), operation("f", ["x"], ["y"], reference=lambda xx: xx)],
            ["The reference of 'f' takes 'xx', which is no input, size or setting", "'x'"],
        ),
        (
            [tensor("x"), tensor("y"), operation("f", ["x"], ["y"]), operation("g", ["x"], ["y"])],
            ["'y' is made by both 'f' and 'g'"],
        ),
        ([tensor("x"), operation("f", ["x"], [])], ["'f' has no inputs or no outputs"]),
        ([tensor("x"), operation("f", [], ["x"])], ["'f' has no inputs or no outputs"]),
        ([tensor("x", views=("full",))], ["'x' does not say why it is absent"]),
        (
            [tensor("x", **SHORT), tensor("y"), operation("f", ["x"], ["y"])],
            ["'f' is computed in prefill, where its input 'x' is not"],
        ),
        (
            [tensor("x"), tensor("y", **SHORT), operation("f", ["x"], ["y"])],
            ["'f' and its output 'y' are computed in different views"],
        ),
    ],
    ids=lambda value: "" if isinstance(value[0], Tensor | Component) else str(value[0]),
)
def test_what_does_not_hold_together_is_named_with_its_place(nodes: list[Node], says: list[str]) -> None:
    with pytest.raises(DeclarationError) as caught:
        Graph(declare(*nodes))
    for part in says:
        assert part in str(caught.value)


@pytest.mark.parametrize(("field", "what"), [("loops", "a loop"), ("enters", "an entry")])
def test_a_loop_to_nowhere_is_named(field: str, what: str) -> None:
    with pytest.raises(DeclarationError, match=f"{what} names 'nowhere'"):
        Graph(declare(tensor("x"), **{field: (("x", "nowhere"),)}))


@pytest.mark.parametrize(
    ("value", "tex"),
    [
        (4096, "4096"),
        (500000.0, "500000"),
        (1e-05, "10^{-5}"),
        (2.5e-07, r"2.5 \cdot 10^{-7}"),
        (1.3, "1.3"),
        (0.0, "0"),
        (-2.0, "-2"),
        (1e20, "10^{20}"),
        (1 / 3, "0.3333333333333333"),
        (True, r"\text{true}"),
    ],
)
def test_a_number_as_tex(value: float, tex: str) -> None:
    assert tex_number(value) == tex


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**12), 10**12))
def test_any_number_as_tex_reads_back(value: float) -> None:
    text = tex_number(value).replace(r" \cdot ", "")
    mantissa, power, exponent = text.partition("10^{") if "^" in text else (text, "", "")
    assert float(f"{mantissa or 1}e{exponent.rstrip('}')}" if power else mantissa) == value
