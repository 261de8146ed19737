"""A Hugging Face directory as a checkpoint: configuration, safetensors in one file or in shards, tokenizer.

Which architecture it is of, its own configuration says. Weights go through the library that knows how each model's are
kept (transformers), except for Llama's, which are put in Meta's order here. Code that comes along is never run.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError, safe_open

from atlas.architectures._code import Code
from atlas.catalog import Derived, found_architectures
from atlas.errors import AtlasError, CheckpointError
from atlas.graph.nodes import Architecture, Parameter
from atlas.graph.resolve import Graph
from atlas.runtime import hugging_face_llama
from atlas.runtime.checkpoints import Checkpoint
from atlas.runtime.derivation.derive import derive
from atlas.runtime.files import remembered_sha256
from atlas.runtime.meter import Progress
from atlas.runtime.placement import IN_FULL, Placement, numbers_in, require_room
from atlas.runtime.references.hugging_face import NO_MARKS, library
from atlas.runtime.tokenizer_json import TokenizerJson, require_tokenizer

INDEX, WHOLE = "model.safetensors.index.json", "model.safetensors"
REFUSALS = (
    OSError,
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    RuntimeError,
    SafetensorError,
    StrictDataclassError,
)
"""What transformers raises for files that it can make nothing of."""
IMMATERIAL = frozenset(
    {
        *(
            "architectures",
            "dtype",
            "torch_dtype",
            "transformers_version",
            "use_cache",
            "initializer_range",
            "_name_or_path",
        ),
        *("bos_token_id", "eos_token_id", "pad_token_id", "output_router_logits", "router_aux_loss_coef"),
        *(
            "attention_dropout",
            "attn_pdrop",
            "embd_pdrop",
            "resid_pdrop",
            "max_window_layers",
            "sliding_window_pattern",
        ),
        *("num_mtp_layers", "num_nextn_predict_layers", "pretraining_tp", "router_jitter_noise", "default_theta"),
    }
)
"""Settings that no pass of an untrained or trained model depends on."""


def open_directory(
    path: Path, data_dir: Path, progress: Progress | None = None, placement: Placement = IN_FULL
) -> Checkpoint:
    """Opens a directory, its weights placed as asked. Raises CheckpointError that says what is wrong, what to do."""
    stated = read_configuration(path)
    files = weight_files(path)
    require_tokenizer(path)
    tell = progress or (lambda _stage, _share: None)
    room = require_room(path, sum(_numbers_in(file) for file in files), placement)
    name = architecture_name(path, stated)
    tell(f"opening {path.name}: {room}", None)
    hashes = {file: remembered_sha256(file, data_dir, progress) for file in (path / "config.json", *files)}
    derived: Derived | None = None
    if name == hugging_face_llama.CLASS:
        architecture, config, tensors = "llama", *hugging_face_llama.read(path, stated, files, placement)
    elif name in described():
        architecture, config, tensors = _read(path, name, placement)
    else:
        tell(f"watching the code of {name} run", None)
        model_class, configuration = known_class(path, name), configuration_of(path, name)
        derived = derived_from(path, name, data_dir)
        architecture, config = derived.ID, numbers_of(configuration)
        config["vocab_size"] = derived.architecture.sizes["vocab"]
        tensors = _tensors(path, model_class, placement)
    vocabulary = int(config.get("vocab_size") or 0)
    tokenizer = TokenizerJson(path, vocabulary, _ends(path, stated))
    hashes[path / "tokenizer.json"] = remembered_sha256(path / "tokenizer.json", data_dir)
    tied = bool(config.get("tied_embeddings"))
    distinct = {tensor.data_ptr(): tensor for tensor in tensors.values()}
    return Checkpoint(
        name=path.resolve().name,
        path=path,
        sha256=hashlib.sha256("".join(hashes.values()).encode()).hexdigest(),
        format="safetensors",
        architecture=architecture,
        config={name: value for name, value in config.items() if value is not None} | {"tied_embeddings": tied},
        quantization=None,
        tensors=tensors,
        parameter_count=sum(tensor.numel() for tensor in distinct.values()),
        tokenizer=tokenizer,
        warnings=hugging_face_llama.warnings(stated) if name == hugging_face_llama.CLASS else (),
        files=hashes,
        placement=placement,
        derived=derived,
    )


def read_configuration(path: Path) -> Mapping[str, Any]:
    """`config.json`. Refuses a directory without one, and one that brings code of its own."""
    try:
        stated = json.loads((path / "config.json").read_text("utf-8"))
    except FileNotFoundError:
        raise CheckpointError(
            f"{path} has no config.json, so nothing says what its weights are of.",
            "Give a Hugging Face directory (config.json, *.safetensors, tokenizer.json), one of Meta's "
            "(params.json, consolidated.*.pth, tokenizer.model), or a GGUF file.",
        ) from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path / 'config.json'} cannot be read: {error}.", "Download it again.") from error
    if not isinstance(stated, dict):
        raise CheckpointError(f"{path / 'config.json'} is no configuration.", "Download it again.")
    if stated.get("auto_map"):
        code = ", ".join(sorted({str(value) for value in dict(stated["auto_map"]).values()}))
        raise CheckpointError(
            f"{path} asks for code of its own to be run ({code}). That is never done.",
            "Use a version of the model that transformers itself knows.",
        )
    return stated


def architecture_name(path: Path, stated: Mapping[str, Any]) -> str:
    """The class that the configuration names."""
    named = stated.get("architectures")
    if not (isinstance(named, list) and len(named) == 1 and isinstance(named[0], str)):
        raise CheckpointError(
            f"{path / 'config.json'} does not say which class its weights are of (architectures: {named}).",
            'Add it, such as "architectures": ["MistralForCausalLM"].',
        )
    return named[0]


def weight_files(path: Path) -> list[Path]:
    """The safetensors files, all of which are there. Raises CheckpointError that lists those that are not."""
    if (path / INDEX).is_file():
        try:
            mapped = json.loads((path / INDEX).read_text("utf-8"))["weight_map"]
            names = sorted(set(mapped.values()))
        except (OSError, ValueError, KeyError, AttributeError) as error:
            raise CheckpointError(f"{path / INDEX} cannot be read: {error!r}.", "Download it again.") from error
        missing = [name for name in names if not (path / name).is_file()]
        if missing:
            raise CheckpointError(
                f"{path} lacks {len(missing)} of {len(names)} files of weights: {', '.join(missing[:4])}"
                + ("..." if len(missing) > 4 else "."),
                "Download them into it.",
            )
        return [path / name for name in names]
    if (path / WHOLE).is_file():
        return [path / WHOLE]
    pickles = sorted(one.name for one in path.iterdir() if one.suffix in (".bin", ".pt", ".pth"))
    if pickles:
        raise CheckpointError(
            f"{path} has its weights as pickles ({', '.join(pickles[:3])}), which can run code when they are read.",
            "Use a version with safetensors, or convert them where you trust them.",
        )
    raise CheckpointError(f"{path} has no weights ({WHOLE}, or {INDEX}).", "Download them into it.")


def described() -> dict[str, ModuleType]:
    """The architectures that transformers runs, by the class that each describes."""
    found = {}
    for module in found_architectures().values():
        code = getattr(module, "CODE", None)
        if isinstance(code, Code):
            found[f"{code.prefix}{code.head}"] = module
    return found


def _read(path: Path, name: str, placement: Placement) -> tuple[str, dict[str, Any], dict[str, torch.Tensor]]:
    """Architecture, configuration and weights by the names of the reference."""
    module, model_class, configuration = described()[name], known_class(path, name), configuration_of(path, name)
    config = numbers_of(configuration)
    try:
        architecture = module.declare(config)
    except AtlasError as error:
        raise CheckpointError(f"{path}: {error.detail}", error.hint) from error
    _require_same(path, configuration, model_class.config_class(**NO_MARKS, **architecture.reference.arguments))
    numbers = _declared_numbers(architecture, tied=bool(config["tied_embeddings"]))
    require_room(path, numbers, placement)  # what is packed in its file is not in memory
    return architecture.id, config, _tensors(path, model_class, placement)


def _declared_numbers(architecture: Architecture, *, tied: bool) -> int:
    """How many numbers the parameters of a declaration hold."""
    sizes = architecture.sizes
    layers, total = sizes["layers"], -sizes["vocab"] * sizes["d_model"] * tied
    for node in Graph(architecture).nodes.values():
        if isinstance(node.node, Parameter):
            copies = sum(node.exists_in(layer) for layer in range(layers)) if node.in_blocks else 1
            total += copies * numbers_in([[extent.size or 0 for extent in node.shape["full"] or ()]])
    return total


def known_class(path: Path, name: str) -> Any:
    """The class of that name in transformers. Raises CheckpointError for one that it does not have."""
    transformers = library()
    model_class = getattr(transformers, name, None) if name.isidentifier() else None
    if getattr(model_class, "config_class", None) is None:
        raise CheckpointError(
            f"{path} is of {name}, which transformers {transformers.__version__} does not know.",
            "Use a model of an architecture that it knows.",
        )
    return model_class


def configuration_of(path: Path, name: str) -> Any:
    """The configuration in a directory, as the class of that name reads it."""
    try:
        return known_class(path, name).config_class.from_pretrained(path, local_files_only=True)
    except REFUSALS as error:
        raise CheckpointError(f"{path / 'config.json'} is refused by transformers: {error}", "Check it.") from error


def derived_from(path: Path, name: str, data_dir: Path) -> Derived:
    """The architecture of a model that nothing describes, read off its code. Needs its configuration, and no weights.

    Raises CheckpointError for a class that is no causal language model, and as `derive`.
    """
    model_class, configuration = known_class(path, name), configuration_of(path, name)
    if name not in causal_classes():
        raise CheckpointError(
            f"{path} is of {name}, which is no model that continues text.", "Use one such as OlmoForCausalLM."
        )
    stated = configuration.to_dict()
    own = type(configuration).__annotations__.keys() - IMMATERIAL - {"id2label", "label2id"}
    arguments = {key: stated[key] for key in sorted(own & stated.keys())}
    _require_same(path, configuration, model_class.config_class(**NO_MARKS, **arguments))
    return derive(model_class, stated, arguments, data_dir / "sources")


def undescribed(path: Path, data_dir: Path) -> Derived:
    """The architecture of the model in a directory, of which the configuration is enough, if nothing describes it.

    Raises CheckpointError, also where a declaration describes it.
    """
    name = architecture_name(path, read_configuration(path))
    module = described().get(name)
    if name == hugging_face_llama.CLASS or module is not None:
        known = "llama" if module is None else module.__name__.rpartition(".")[2]
        raise CheckpointError(
            f"{path} is of {name}, which is described already.", f"See atlas/architectures/{known}.py."
        )
    return derived_from(path, name, data_dir)


def causal_classes() -> frozenset[str]:
    """The classes of transformers that continue text."""
    return frozenset(import_module("transformers.models.auto.modeling_auto").MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values())


def _tensors(path: Path, model_class: Any, placement: Placement) -> dict[str, torch.Tensor]:
    """The weights by the names of the reference: all that it has, and nothing else."""
    logging = library().logging
    level = logging.get_verbosity()
    logging.set_verbosity_error()  # what does not fit is said below
    share = placement.share
    try:
        load = model_class.from_pretrained if share is None else share.reader(model_class, placement.device)
        model, report = load(
            path,
            local_files_only=True,
            dtype=placement.dtype,
            output_loading_info=True,
            use_safetensors=True,
            ignore_mismatched_sizes=True,
        )
    except REFUSALS as error:
        raise CheckpointError(f"The weights in {path} cannot be read: {error}", "Download them again.") from error
    finally:
        logging.set_verbosity(level)
    misshapen = [
        f"{name} {list(found)} (should be {list(wanted)})" for name, found, wanted in report["mismatched_keys"]
    ]
    wrong = [
        f"{kind}: {', '.join(sorted(names)[:4])}" + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        for kind, names in (
            ("missing", report["missing_keys"]),
            ("extra", report["unexpected_keys"]),
            ("misshapen", misshapen),
        )
        if names
    ]
    if wrong:
        raise CheckpointError(
            f"The weights in {path} are not those that its configuration asks for: {'; '.join(wrong)}.",
            "Check that config.json and weights are of the same model.",
        )
    if share is None:
        return {name: tensor.detach() for name, tensor in model.to(placement.device).state_dict().items()}
    return _shares(model, placement)


def _shares(model: Any, placement: Placement) -> dict[str, torch.Tensor]:
    """What this process has of each weight, in memory of its own. What is tied stays so; the model is taken apart."""
    weights = model.state_dict()
    for module in model.modules():  # so that each weight, mapped or not, is let go of as soon as it is copied
        module._parameters.clear()
    made: dict[int, torch.Tensor] = {}
    shares = {}
    for name in tuple(weights):
        own = weights.pop(name)
        own = (own.to_local() if hasattr(own, "to_local") else own).detach()
        address = own.data_ptr()
        if address not in made:
            made[address] = own.to(placement.device, copy=True, memory_format=torch.contiguous_format)
        shares[name] = made[address]
    return shares


def numbers_of(configuration: Any) -> dict[str, Any]:
    """The numbers of a configuration of transformers, by the names that declarations use.

    Those of its rotary positions are taken out of their dictionary; where each kind of layer has its own, the theta of
    local layers is `rope_local_theta`. The pattern of local layers is how often a global one comes.
    """
    stated = configuration.to_dict()
    found = {name: value for name, value in stated.items() if value is None or isinstance(value, bool | int | float)}
    rope = stated.get("rope_parameters") or {}
    kinds = {kind: value for kind, value in rope.items() if isinstance(value, dict)}
    for kind, parameters in kinds.items() or {"": rope}.items():
        for name, value in parameters.items():
            if isinstance(value, bool | int | float):
                own = f"rope_local_{name.removeprefix('rope_')}" if kind == "sliding_attention" else name
                found[own] = value
    types = stated.get("layer_types")
    if isinstance(types, list) and "full_attention" in types and "sliding_attention" in types:
        found["sliding_window_pattern"] = types.index("full_attention") + 1
    found["tied_embeddings"] = bool(stated.get("tie_word_embeddings"))
    found["context_length"] = stated.get("max_position_embeddings") or stated.get("n_positions")
    return found


def _require_same(path: Path, theirs: Any, ours: Any) -> None:
    """The configuration that the declaration builds must be the checkpoint's, in all that a pass depends on."""
    one, other = theirs.to_dict(), ours.to_dict()
    names = set(type(theirs).__annotations__) - IMMATERIAL
    differ = [
        f"{name} is {one.get(name)!r}, not {other.get(name)!r}"
        for name in sorted(names)
        if one.get(name) != other.get(name)
    ]
    if differ:
        raise CheckpointError(
            f"{path} has a configuration that is not described here: {'; '.join(differ[:4])}.",
            "Extend the architecture's declaration, or use another checkpoint.",
        )


def _ends(path: Path, stated: Mapping[str, Any]) -> tuple[int, ...]:
    """The tokens at which generation ends, as the directory's settings say."""
    generation: Mapping[str, Any] = {}
    with contextlib.suppress(OSError, ValueError):  # not every model has one, and config.json says it too
        generation = json.loads((path / "generation_config.json").read_text("utf-8"))
    ends = generation.get("eos_token_id", stated.get("eos_token_id"))
    return tuple(one for one in (ends if isinstance(ends, list) else [ends]) if isinstance(one, int))


def _numbers_in(file: Path) -> int:
    """How many numbers a safetensors file holds."""
    try:
        with safe_open(file, framework="pt") as opened:
            total = 0
            for name in opened.keys():  # noqa: SIM118 - not a dictionary
                count = 1
                for size in opened.get_slice(name).get_shape():
                    count *= size
                total += count
            return total
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{file} is no whole safetensors file: {error}.", "Download it again.") from error
