"""Meta's dense text models, with their configurations in `models/sku_list.py` of meta-llama/llama-models."""

from __future__ import annotations

from datetime import date

from atlas.graph.anchors import Anchor, at
from atlas.graph.evidence import Evidence, SourceRef
from atlas.models.entry import CitedConfiguration, ModelEntry

SKU_LIST = SourceRef(source="llama-models", path="models/sku_list.py")
CODE = SourceRef(source="llama-models", path="models/llama3/model.py")
VOCABULARY = at("").assigns("LLAMA3_VOCAB_SIZE")
SUPPLIES = (
    "supplies dimensions, head counts, vocabulary (LLAMA3_VOCAB_SIZE), rounding of the hidden width, epsilon, "
    "rope_theta and use_scaled_rope."
)


def _configuration(function: str, model: str, name: str, first: bool = False, variant: str = "") -> CitedConfiguration:
    """An entry of the catalogue; `first` shows it from the head of the function that lists it.

    `variant` tells entries of the same model apart.
    """
    entry = at(function).entry("core_model_id", f"CoreModelId.{model}")
    if variant:
        entry = at(function).entry("variant", repr(variant))
    shown: Anchor = at(function).through(entry) if first else entry
    return CitedConfiguration(
        file=SKU_LIST,
        values=entry.field("arch_args"),
        shown=(VOCABULARY, shown),
        claim=f"The base entry of Meta's catalogue for {name} {SUPPLIES}",
    )


SCALED = "computes alike but for the scaled RoPE of Llama 3.1"
SMALL_FACTOR = Evidence(
    id="rope-factor-erratum",
    kind="erratum",
    claim=(
        "The code divides slow frequencies by 8 for every model. Llama 3.2 1B and 3B were trained with a factor of 32 "
        "(llama-models issues 166 and 241), so their frequencies come out four times too large in the low pairs."
    ),
    file=CODE,
    anchors=(at("apply_scaling").assigns("scale_factor"),),
)
PARALLEL_405B = Evidence(
    id="405b-entries",
    kind="erratum",
    claim=(
        "The catalogue has several entries for 405B. The one for 16-way parallel checkpoints says 16 key and value heads; "
        "the model has 8, as the entry for 8-way parallel checkpoints, cited here, says."
    ),
    file=SKU_LIST,
    anchors=(at("llama3_1_base_models").entry("variant", "'bf16-mp16'"),),
)

MODELS = (
    ModelEntry(
        id="llama-3-8b",
        name="Llama 3 8B",
        publisher="Meta",
        released=date(2024, 4, 18),
        architecture="llama",
        configuration=_configuration("llama3_base_models", "llama3_8b", "Llama 3 8B", first=True),
        size="8B",
        rank=10,
    ),
    ModelEntry(
        id="llama-3.1-8b",
        name="Llama 3.1 8B",
        publisher="Meta",
        released=date(2024, 7, 23),
        architecture="llama",
        configuration=_configuration("llama3_1_base_models", "llama3_1_8b", "Llama 3.1 8B"),
        follows="llama-3-8b",
        reads_as=SCALED,
        size="8B",
        rank=11,
    ),
    ModelEntry(
        id="llama-3-70b",
        name="Llama 3 70B",
        publisher="Meta",
        released=date(2024, 4, 18),
        architecture="llama",
        configuration=_configuration("llama3_base_models", "llama3_70b", "Llama 3 70B"),
        size="70B",
        rank=30,
    ),
    ModelEntry(
        id="llama-3.1-70b",
        name="Llama 3.1 70B",
        publisher="Meta",
        released=date(2024, 7, 23),
        architecture="llama",
        configuration=_configuration("llama3_1_base_models", "llama3_1_70b", "Llama 3.1 70B"),
        follows="llama-3-70b",
        reads_as=SCALED,
        size="70B",
        rank=31,
    ),
    ModelEntry(
        id="llama-3.1-405b",
        name="Llama 3.1 405B",
        publisher="Meta",
        released=date(2024, 7, 23),
        architecture="llama",
        configuration=_configuration(
            "llama3_1_base_models", "llama3_1_405b", "Llama 3.1 405B (8-way parallel)", variant="bf16-mp8"
        ),
        follows="llama-3-70b",
        reads_as=SCALED,
        size="405B",
        rank=32,
        errata=(PARALLEL_405B,),
    ),
    ModelEntry(
        id="llama-3.2-1b",
        name="Llama 3.2 1B",
        publisher="Meta",
        released=date(2024, 9, 25),
        architecture="llama",
        configuration=_configuration("llama3_2_base_models", "llama3_2_1b", "Llama 3.2 1B"),
        follows="llama-3.1-8b",
        reads_as=SCALED,
        size="1B",
        rank=33,
        tied_embeddings=True,
        errata=(SMALL_FACTOR,),
    ),
    ModelEntry(
        id="llama-3.2-3b",
        name="Llama 3.2 3B",
        publisher="Meta",
        released=date(2024, 9, 25),
        architecture="llama",
        configuration=_configuration("llama3_2_base_models", "llama3_2_3b", "Llama 3.2 3B"),
        follows="llama-3.1-8b",
        reads_as=SCALED,
        size="3B",
        rank=34,
        tied_embeddings=True,
        errata=(SMALL_FACTOR,),
    ),
    ModelEntry(
        id="llama-3.3-70b",
        name="Llama 3.3 70B",
        publisher="Meta",
        released=date(2024, 12, 6),
        architecture="llama",
        configuration=_configuration("llama3_3_instruct_models", "llama3_3_70b_instruct", "Llama 3.3 70B"),
        follows="llama-3.1-70b",
        reads_as=SCALED,
        size="70B",
        rank=35,
    ),
)
