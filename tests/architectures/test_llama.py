"""Llama's declaration: the nodes of the contract with their axes, and the cited lines of both reference files."""

from __future__ import annotations

import pytest

from atlas.architectures.llama import d_mlp
from atlas.catalog import Catalog, Model
from atlas.graph.axes import VIEWS, in_words
from atlas.graph.nodes import Component, Operation, Parameter, Quantity, Tensor

STREAM, FEATURES = "batch positions d_model", "batch positions d_mlp"
QUERY, KEY = "batch positions q_heads head_dim", "batch positions kv_heads head_dim"
CACHE, REPEATED = "batch keys kv_heads head_dim", "batch keys q_heads head_dim"
SCORES, NORMS = "batch q_heads queries keys", ("blocks/attention-norm", "blocks/feed-forward-norm", "final-norm")

TENSORS = {
    "token-ids": "batch positions",
    "embedding/embedded": STREAM,
    "rotary/inverse-frequencies": "pairs",
    "rotary/rotations": "positions pairs",
    "causal-mask": "queries keys",
    **dict.fromkeys(("blocks/block-input", "blocks/mid-residual", "blocks/block-output"), STREAM),
    **{f"{norm}/normalized": STREAM for norm in NORMS},
    **{f"{norm}/reciprocal-rms": "batch positions one" for norm in NORMS},
    **dict.fromkeys(("blocks/attention/queries", "blocks/attention/rotated-queries"), QUERY),
    **{f"blocks/attention/{name}": KEY for name in ("keys", "values", "rotated-keys")},
    **{f"blocks/attention/{name}-cache": CACHE for name in ("key", "value")},
    **{f"blocks/attention/repeated-{name}": REPEATED for name in ("keys", "values")},
    **{f"blocks/attention/{kind}similarities": SCORES for kind in ("", "scaled-", "masked-")},
    "blocks/attention/attention-weights": SCORES,
    "blocks/attention/head-outputs": "batch q_heads queries head_dim",
    "blocks/attention/merged-heads": "batch positions q_width",
    "blocks/attention/attention-update": STREAM,
    **{f"blocks/feed-forward/{name}": FEATURES for name in ("gate", "up", "activated-gate", "gated")},
    "blocks/feed-forward/feed-forward-update": STREAM,
    "unembedding/logits": "batch positions vocab",
}
PARAMETERS = {
    "embedding/weight": "vocab d_model",
    "unembedding/weight": "vocab d_model",
    **{f"{norm}/gain": "d_model" for norm in NORMS},
    "blocks/attention/query-weight": "q_width d_model",
    "blocks/attention/key-weight": "kv_width d_model",
    "blocks/attention/value-weight": "kv_width d_model",
    "blocks/attention/output-weight": "d_model q_width",
    "blocks/feed-forward/gate-weight": "d_mlp d_model",
    "blocks/feed-forward/up-weight": "d_mlp d_model",
    "blocks/feed-forward/down-weight": "d_model d_mlp",
}
COMPONENTS = (
    *("embedding", "rotary", "blocks", "blocks/attention-norm", "blocks/attention", "blocks/feed-forward-norm"),
    *("blocks/feed-forward", "final-norm", "unembedding"),
)
OPERATIONS = (
    *("embedding/look-up", "rotary/rotate", "build-mask", "unembedding/project"),
    *(f"{norm}/{step}" for norm in NORMS for step in ("rms", "scale")),
    *(f"blocks/attention/project-{name}" for name in ("queries", "keys", "values")),
    *(f"blocks/attention/rotate-{name}" for name in ("queries", "keys")),
    *(f"blocks/attention/{verb}-{name}" for verb in ("write", "repeat") for name in ("keys", "values")),
    *(f"blocks/attention/{step}" for step in ("compare", "scale-similarities", "apply-mask", "softmax", "mix-values")),
    *(f"blocks/attention/{step}" for step in ("merge-heads", "output-projection")),
    *("blocks/attention-residual", "blocks/feed-forward-residual"),
    *(f"blocks/feed-forward/{step}" for step in ("project-gate", "activate", "project-up", "multiply", "project-down")),
)
SCALED = {"rotary/scaled-frequencies": "pairs"}
SEVERAL_ONLY = {"causal-mask", "blocks/attention/masked-similarities", "build-mask", "blocks/attention/apply-mask"}


@pytest.fixture(params=["llama-3-8b", "llama-3.1-8b", "smollm2-135m"])
def model(request: pytest.FixtureRequest, catalog: Catalog) -> Model:
    found: Model = catalog[request.param]
    return found


def test_the_nodes_are_those_of_the_contract_with_their_axes(model: Model) -> None:
    scaled = model.id == "llama-3.1-8b"
    nodes = {path: found.node for path, found in model.graph.nodes.items()}
    tensors = {path: " ".join(node.shape) for path, node in nodes.items() if isinstance(node, Tensor)}
    assert tensors == TENSORS | (SCALED if scaled else {})
    assert {path: " ".join(n.shape) for path, n in nodes.items() if isinstance(n, Parameter)} == PARAMETERS
    assert {path for path, node in nodes.items() if isinstance(node, Component)} == set(COMPONENTS)
    operations = {path for path, node in nodes.items() if isinstance(node, Operation)}
    assert operations == {*OPERATIONS, *(["rotary/scale-frequencies"] if scaled else [])}
    caches = {path for path, node in nodes.items() if node.kind == "cache"}
    assert caches == {"blocks/attention/key-cache", "blocks/attention/value-cache"}
    assert nodes["rotary/rotations"].complex  # type: ignore[union-attr]


def test_a_node_has_a_shape_in_the_views_that_compute_it(model: Model) -> None:
    for path, found in model.graph.nodes.items():
        for view in VIEWS:
            there = isinstance(found.node, Quantity) and not (view == "decode" and path in SEVERAL_ONLY)
            assert (found.shape[view] is not None) == there, (path, view)
        if path in SEVERAL_ONLY:
            assert "more than one position" in found.node.absent  # type: ignore[union-attr]


def test_nodes_stand_in_the_order_of_data_flow(model: Model) -> None:
    order = {path: place for place, path in enumerate(model.graph.nodes)}
    for edge in model.graph.edges:
        if not edge.next_layer and not edge.first_layer:
            assert order[edge.source] < order[edge.target], edge


def test_every_quantity_is_made_or_given(model: Model) -> None:
    given = {"token-ids", "blocks/block-input", "rotary/inverse-frequencies"}
    for path, found in model.graph.nodes.items():
        if isinstance(found.node, Tensor):
            assert bool(found.inputs) == (path not in given), path
            # The embedding enters the first block by an edge of its own.
            assert found.outputs or path in ("embedding/embedded", "unembedding/logits"), path
        elif isinstance(found.node, Parameter):
            assert found.inputs == ()
            assert len(found.outputs) == 1, path


@pytest.mark.parametrize(
    ("model_id", "path", "view", "shape"),
    [
        ("llama-3-8b", "blocks/attention/attention-update", "decode", "[B batch, 1 position, 4096 d]"),
        ("llama-3-8b", "blocks/block-output", "full", "[B batch, T positions, 4096 d]"),
        ("llama-3.1-8b", "blocks/attention/similarities", "full", "[B batch, 32 q heads, T queries, T keys]"),
        ("llama-3.1-8b", "blocks/attention/similarities", "decode", "[B batch, 32 q heads, 1 query, T_k keys]"),
        ("llama-3-8b", "blocks/attention/key-cache", "prefill", "[B batch, P keys, 8 kv heads, 128 head dim]"),
        ("smollm2-135m", "blocks/attention/queries", "prefill", "[B batch, P positions, 9 q heads, 64 head dim]"),
        ("smollm2-135m", "rotary/rotations", "decode", "[1 position, 32 pairs]"),
        ("llama-3.1-405b", "blocks/feed-forward/gate-weight", "full", "[53248 mlp, 16384 d]"),
    ],
)
def test_shapes_in_words(catalog: Catalog, model_id: str, path: str, view: str, shape: str) -> None:
    found = next(extents for name, extents in catalog[model_id].graph[path].shape.items() if name == view)
    assert found is not None
    assert in_words(found) == shape


@pytest.mark.parametrize(
    ("model_id", "sizes"),
    [
        ("llama-3-8b", (32, 4096, 32, 8, 128, 14336, 128256)),
        ("llama-3.1-8b", (32, 4096, 32, 8, 128, 14336, 128256)),
        ("smollm2-135m", (30, 576, 9, 3, 64, 1536, 49152)),
        ("llama-3-70b", (80, 8192, 64, 8, 128, 28672, 128256)),
        ("llama-3.1-70b", (80, 8192, 64, 8, 128, 28672, 128256)),
        ("llama-3.3-70b", (80, 8192, 64, 8, 128, 28672, 128256)),
        ("llama-3.1-405b", (126, 16384, 128, 8, 128, 53248, 128256)),
        ("llama-3.2-1b", (16, 2048, 32, 8, 64, 8192, 128256)),
        ("llama-3.2-3b", (28, 3072, 24, 8, 128, 8192, 128256)),
    ],
)
def test_sizes_come_from_the_cited_configuration(catalog: Catalog, model_id: str, sizes: tuple[int, ...]) -> None:
    names = ("layers", "d_model", "q_heads", "kv_heads", "head_dim", "d_mlp", "vocab")
    found = catalog[model_id].architecture.sizes
    assert tuple(found[name] for name in names) == sizes
    assert (found["q_width"], found["kv_width"]) == (sizes[2] * sizes[4], sizes[3] * sizes[4])
    assert found["pairs"] * 2 == found["head_dim"]


def test_the_hidden_width_is_rounded_as_the_reference_rounds_it() -> None:
    assert d_mlp(4096, 1024, 1.3) == 14336
    assert d_mlp(576, 256, None) == 1536
    assert d_mlp(4096, 256, None) == 11008


# --- lines, as the pages of the earlier site print them, and of the file that runs

EARLIER_LINES = {
    ("blocks/attention/attention-update", "block-residuals-llama3"): ((236, 248),),
    ("blocks/attention/attention-update", "attn-output-llama3"): ((121, 127), (189, 190)),
    ("blocks/attention/attention-update", "attn-update-llama3"): ((190, 190),),
    ("blocks/block-output", "block-residuals-llama3"): ((236, 248),),
    ("blocks/block-output", "model-llama3"): ((258, 269), (298, 302)),
    ("blocks/block-output", "mlp-residual-llama3"): ((247, 247),),
    ("blocks/attention/scale-similarities", "attn-scale-llama3"): ((184, 184),),
    ("blocks/attention/similarities", "attn-similarity-llama3"): ((184, 184),),
    ("blocks/attention/apply-mask", "attn-mask-llama3"): ((186, 186),),
    ("blocks/attention/attention-weights", "attn-softmax-llama3"): ((187, 187),),
    ("blocks/attention/head-outputs", "attn-mix-llama3"): ((188, 188),),
    ("blocks/attention/merged-heads", "attn-merge-llama3"): ((189, 189),),
    ("blocks/attention/queries", "projected-queries-llama3"): ((154, 154),),
    ("blocks/attention/queries", "project-queries-llama3"): ((156, 156),),
    ("blocks/attention/keys", "project-keys-llama3"): ((157, 157),),
    ("blocks/attention/values", "project-values-llama3"): ((158, 158),),
    ("blocks/attention/key-cache", "read-keys-llama3"): ((168, 168),),
    ("blocks/attention/value-cache", "read-values-llama3"): ((169, 169),),
    ("blocks/attention/repeat-keys", "repeat-keys-llama3"): ((172, 174),),
    ("blocks/attention/repeat-values", "repeat-values-llama3"): ((175, 177),),
    ("blocks/attention/repeat-keys", "repeat-kv-llama3"): ((78, 87),),
    ("blocks/attention/rotate-queries", "rotate-queries-llama3"): ((65, 75),),
    ("blocks/attention/rotated-keys", "rotated-keys-llama3"): ((75, 75),),
    ("blocks/attention-norm/scale", "rms-norm-llama3"): ((41, 46),),
    ("rotary", "rotary-table-llama3"): ((49, 54),),
    ("embedding", "embedding-built-llama3"): ((258, 260),),
    ("embedding/look-up", "look-up-llama3"): ((280, 280),),
    ("blocks/feed-forward", "swiglu-llama3"): ((219, 219),),
    ("blocks/feed-forward", "mlp-width-llama3"): ((194, 206),),
    ("unembedding/logits", "logits-llama3"): ((301, 301),),
}
RUNNING_LINES = {
    ("token-ids", "token-ids"): ((281, 281),),
    ("embedding/look-up", "look-up"): ((283, 283),),
    ("rotary/inverse-frequencies", "frequencies"): ((66, 66),),
    ("rotary/scale-frequencies", "scale-frequencies"): ((45, 62), (69, 69)),
    ("rotary/rotations", "rotations"): ((285, 285),),
    ("causal-mask", "mask"): ((289, 289), (291, 291), (303, 303)),
    ("blocks/block-input", "block-input"): ((245, 247),),
    ("blocks/attention-norm/normalized", "blocks/attention-norm-normalized"): ((252, 252),),
    ("blocks/attention-norm/normalized", "rms-norm"): ((37, 42),),
    ("blocks/attention/queries", "project-queries"): ((174, 174),),
    ("blocks/attention/rotate-queries", "rotate-queries"): ((83, 93),),
    ("blocks/attention/rotated-keys", "rotated-keys"): ((93, 93),),
    ("blocks/attention/write-keys", "write-keys"): ((183, 183),),
    ("blocks/attention/key-cache", "read-keys"): ((186, 186),),
    ("blocks/attention/repeat-values", "repeat-values"): ((191, 191),),
    ("blocks/attention/similarities", "attn-similarity"): ((196, 196),),
    ("blocks/attention/scaled-similarities", "attn-scale"): ((196, 196),),
    ("blocks/attention/masked-similarities", "attn-mask"): ((198, 198),),
    ("blocks/attention/attention-weights", "attn-softmax"): ((199, 199),),
    ("blocks/attention/head-outputs", "attn-mix"): ((200, 200),),
    ("blocks/attention/merged-heads", "attn-merge"): ((201, 201),),
    ("blocks/attention/attention-update", "attn-update"): ((202, 202),),
    ("blocks/attention/attention-update", "attn-output"): ((139, 145), (201, 202)),
    ("blocks/mid-residual", "attn-residual"): ((252, 252),),
    ("blocks/feed-forward/gate", "project-gate"): ((225, 225),),
    ("blocks/feed-forward", "mlp-width"): ((206, 218),),
    ("blocks/block-output", "mlp-residual"): ((253, 253),),
    ("blocks/block-output", "block-residuals"): ((242, 254),),
    ("blocks/block-output", "model"): ((264, 271), (305, 309)),
    ("final-norm/normalized", "final-norm-normalized"): ((307, 307),),
    ("unembedding/logits", "logits"): ((308, 308),),
}


@pytest.mark.parametrize(("node", "evidence"), [*EARLIER_LINES, *RUNNING_LINES])
def test_a_citation_has_the_lines_that_it_should(catalog: Catalog, node: str, evidence: str) -> None:
    citation = next(piece for piece in catalog["llama-3.1-8b"].evidence(node) if piece.id == evidence)
    earlier = evidence.endswith("-llama3")
    assert citation.lines == (EARLIER_LINES if earlier else RUNNING_LINES)[node, evidence]
    repository, revision = ("llama3", "a0940f9cf706") if earlier else ("llama-models", "0e0b8c519242")
    assert (citation.repository, citation.short_revision) == (f"meta-llama/{repository}", revision)
    first, last = citation.lines[0]
    assert citation.url.endswith(f"/{citation.path}#L{first}-L{last}")
    assert citation.available or earlier
    assert "Llama 3 Community License" in citation.license


@pytest.mark.parametrize(
    ("model_id", "lines"),
    [
        ("llama-3-8b", ((19, 19), (188, 207))),
        ("llama-3.1-8b", ((19, 19), (231, 248))),
    ],
)
def test_the_configuration_has_the_lines_that_it_should(
    catalog: Catalog, model_id: str, lines: tuple[tuple[int, int], ...]
) -> None:
    model = catalog[model_id]
    assert model.configuration.lines == lines
    assert [piece.start for piece in model.configuration.excerpt] == [first for first, _ in lines]
    assert model.config["use_scaled_rope"] is (model_id == "llama-3.1-8b")
    for node in ("blocks/attention/attention-update", "blocks/attention/scale-similarities"):
        assert model.evidence(node)[-1] == model.configuration


@pytest.mark.parametrize(
    ("node", "name"),
    [
        ("blocks/attention/attention-update", "self.wo(output)"),
        ("blocks/block-output", "out"),
        ("blocks/attention/scale-similarities", "/ math.sqrt(self.head_dim)"),
        ("blocks/attention/scaled-similarities", "scores"),
        ("blocks/attention/query-weight", "self.attention.wq.weight"),
        ("blocks/attention", "self.attention"),
        ("blocks", ""),
        ("blocks/attention/apply-mask", "scores + mask"),
        ("blocks/attention-residual", "+ self.attention(self.attention_norm(x), start_pos, freqs_cis, mask)"),
    ],
)
def test_a_node_is_called_what_the_code_calls_it(catalog: Catalog, node: str, name: str) -> None:
    assert catalog["llama-3-8b"].code_name(node) == name


def test_the_earlier_file_keeps_the_lines_of_all_that_is_cited_in_it(catalog: Catalog) -> None:
    """Or an unsynced source would have a citation without lines."""
    lock = catalog.store.locks["llama3"]
    kept = set(lock.files[0].lines)
    cited = {
        str(anchor)
        for entry in catalog
        for found in catalog[entry.id].graph.nodes.values()
        for evidence in found.node.evidence
        if evidence.file.source == "llama3"
        for anchor in evidence.anchors
    }
    assert cited <= kept


def test_direct_evidence_comes_first_and_each_piece_once(model: Model) -> None:
    for path in model.graph.nodes:
        pieces = model.evidence(path)
        assert len({piece.id for piece in pieces}) == len(pieces), path
        order = [["direct", "erratum", "contextual"].index(piece.kind) for piece in pieces[:-1]]
        assert order == sorted(order), path
        assert pieces[-1] == model.configuration


def test_every_node_can_be_explained_and_cited(model: Model) -> None:
    for path, found in model.graph.nodes.items():
        assert found.node.description.endswith("."), path
        assert found.explanation, path
        assert found.node.evidence, path
        assert all(piece.claim.endswith(".") for piece in found.node.evidence), path
        if isinstance(found.node, Operation):
            assert r"\htmlData{node=" in found.equation, path
