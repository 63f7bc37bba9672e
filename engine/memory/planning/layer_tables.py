"""What the layers of models that Agon does not serve store, by rules on config.json; no torch, no model code.

The rules cover two things. The first are architectures without model code (Gemma 3n, Mllama, ...):
`layer_types` is read where a config has it, older configs follow the rule of their architecture. The second is storage
that no served model has yet: the embeddings of images, and three keys of Agon's own, because published configs have no
fields for them. The keys are `kv_budgets` (tokens kept per layer, PyramidKV), `kv_shared_with` (for each layer null or
the earlier layer whose keys and values it reads) and `draft_model` (the config of a second model in the same pool).

For a served architecture the model code is the only source (engine/models/stored_layers.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from engine.config import KVDType
from engine.errors import CheckpointError
from engine.memory.spec import CHECKPOINT_TOKENS, LayerKind, LayerSpec

#: Data types of keys and values that a plan can be made for: those that the engine serves, and types that a model's own
#: weights may have.
PlannedKVDType = Literal[KVDType, "bfloat16", "float16", "float32"]

_ITEM_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4, "fp8": 1, "int8": 1}
#: Keys and values of 8 bits carry one float32 scale per token and head.
_SCALE_BYTES = {"int8": 4, "fp8": 4}

_KINDS: dict[str, LayerKind] = {
    "full_attention": "full",
    "attention": "full",
    "global": "full",
    "sliding_attention": "window",
    "local": "window",
    "chunked_attention": "chunked",
    "linear_attention": "recurrent",
    "mamba": "recurrent",
    "mamba2": "recurrent",
    "recurrent": "recurrent",
}


@dataclass(frozen=True, slots=True)
class ModelLayers:
    """What a model stores: one entry for each attention layer and for each state of a recurrent layer."""

    layers: tuple[LayerSpec, ...]
    max_model_len: int  #: context length in tokens
    image_tokens: int = 0  #: tokens of one image of the largest size, where layers store image tokens
    is_served: bool = False  #: whether all of it comes from model code, so that a worker can run it
    through_transformers: bool = False  #: whether that is transformers' code, because Agon has none


class _Config:
    """Typed look-ups in a config.json, whose text part may be nested."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        nested = values.get("text_config")
        merged = {**values, **nested} if isinstance(nested, Mapping) else dict(values)
        model_type = str(merged.get("model_type") or "")
        defaults = {**_DEFAULTS.get(str(values.get("model_type")), {}), **_DEFAULTS.get(model_type, {})}
        self.values = {**defaults, **{name: value for name, value in merged.items() if value is not None}}
        self.top = values
        self.model_type = model_type

    def integer(self, *names: str, default: int | None = None) -> int:
        for name in names:
            value = self.values.get(name)
            if isinstance(value, int) and not isinstance(value, bool):
                if value < 0:
                    raise CheckpointError(f"config.json: {name} must not be negative, got {value}")
                return value
            if value is not None:
                raise CheckpointError(f"config.json: {name} must be an integer, got {value!r}")
        if default is None:
            raise CheckpointError(f"config.json has no {names[0]}")
        return default

    def sequence(self, name: str) -> list[Any] | None:
        value = self.values.get(name)
        if value is not None and not isinstance(value, list):
            raise CheckpointError(f"config.json: {name} must be a list, got {value!r}")
        return value or None

    @property
    def num_layers(self) -> int:
        count = self.integer("num_hidden_layers", "n_layer", "num_layers", "n_layers")
        if count < 1:
            raise CheckpointError("config.json: a model needs at least one layer")
        return count

    @property
    def dtype(self) -> str:
        name = str(self.values.get("torch_dtype") or self.values.get("dtype") or "bfloat16").removeprefix("torch.")
        return name if name in _ITEM_BYTES else "bfloat16"

    @property
    def hidden_size(self) -> int:
        return self.integer("hidden_size", "n_embd", "d_model")


#: Sizes that the authors' configs leave out because they are their code's defaults.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "gemma3n_text": {"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256, "num_kv_shared_layers": 15},
    "mllama_text_model": {"num_key_value_heads": 8, "num_attention_heads": 32, "hidden_size": 4096},
    "mllama": {"num_key_value_heads": 8, "num_attention_heads": 32, "hidden_size": 4096, "num_hidden_layers": 40},
}
_WINDOW_PATTERNS = {"gemma3n_text": 5, "cohere2": 4}


def layers_by_rule(
    values: Mapping[str, Any],
    *,
    dtype: str | None = None,
    kv_dtype: PlannedKVDType = "auto",
    checkpoint_tokens: int = CHECKPOINT_TOKENS,
) -> ModelLayers:
    """What the model with this config.json stores, for an architecture that Agon does not serve.

    dtype: of the model and its states; None: the config's own. kv_dtype: of keys and values. Agon's own keys are not
    read here: see with_own_keys. Raises CheckpointError for an incomplete config.
    """
    config = _Config(values)
    dtype = dtype or config.dtype
    layers: list[LayerSpec] = []
    first_entry: list[int] = []  # of each of the model's layers
    owners = _shared_by_architecture(config)
    for kind, owner in zip(_layer_kinds(config), owners, strict=True):
        first_entry.append(len(layers))
        if kind == "recurrent":
            layers += _states(config, dtype, checkpoint_tokens)
        else:
            spec = _attention(config, kind, dtype if kv_dtype == "auto" else kv_dtype)
            layers.append(spec if owner is None else replace(spec, shares_with=first_entry[owner]))
    max_model_len = config.integer("max_position_embeddings", "n_positions", "seq_length", default=131_072)
    image_tokens = _image_tokens(config) if any(layer.kind == "cross" for layer in layers) else 0
    return ModelLayers(tuple(layers), max_model_len, image_tokens)


def with_own_keys(base: ModelLayers, values: Mapping[str, Any]) -> ModelLayers:
    """The layers with the budgets and the sharing that Agon's own keys ask for. Raises CheckpointError for a list that
    does not have one entry for each layer of `base`."""
    config = _Config(values)
    budgets, owners = config.sequence("kv_budgets"), config.sequence("kv_shared_with")
    if budgets is None and owners is None:
        return base
    for name, listed in (("kv_budgets", budgets), ("kv_shared_with", owners)):
        if listed is not None and len(listed) != len(base.layers):
            raise CheckpointError(f"config.json: {name} has {len(listed)} entries for {len(base.layers)} layers")
    layers = list(base.layers)
    for index, spec in enumerate(base.layers):
        if budgets is not None and spec.kind == "full":
            spec = replace(spec, kind="budgeted", span=int(budgets[index]))
        owner = None if owners is None else owners[index]
        if owner is not None:
            if not 0 <= owner < index:
                raise CheckpointError("config.json: kv_shared_with must name an earlier layer, or null, for each layer")
            spec = replace(spec, shares_with=owner)
        layers[index] = spec
    return replace(base, layers=tuple(layers), is_served=False)


def with_vision_cache(base: ModelLayers, values: Mapping[str, Any], dtype: str | None = None) -> ModelLayers:
    """The layers, plus a cache of image embeddings if the model has images among its tokens."""
    config = _Config(values)
    image_tokens = _image_tokens(config)
    if not image_tokens or any(layer.kind == "cross" for layer in base.layers):
        return base
    dtype = dtype or config.dtype
    embeddings = LayerSpec("vision", config.hidden_size * _ITEM_BYTES[dtype], dtype)
    return replace(base, layers=(*base.layers, embeddings), image_tokens=image_tokens, is_served=False)


def with_draft_model(base: ModelLayers, draft: ModelLayers) -> ModelLayers:
    """The layers of both models in one pool; the context is the shorter of the two."""
    first = len(base.layers)
    layers = [
        replace(layer, model="draft", shares_with=None if layer.shares_with is None else layer.shares_with + first)
        for layer in draft.layers
    ]
    max_model_len = min(base.max_model_len, draft.max_model_len)
    return replace(base, layers=(*base.layers, *layers), max_model_len=max_model_len, is_served=False)


def _layer_kinds(config: _Config) -> list[LayerKind]:
    """One kind per layer: what the config lists, else the rule of its architecture, else full attention everywhere."""
    num_layers, model_type = config.num_layers, config.model_type
    listed = config.sequence("layer_types") or config.sequence("layers_block_type")
    crossed = set(config.sequence("cross_attention_layers") or ())
    if model_type.startswith("mllama") and not crossed:
        crossed = {3, 8, 13, 18, 23, 28, 33, 38}
    if crossed:
        return ["cross" if index in crossed else "full" for index in range(num_layers)]
    if listed is not None:
        if len(listed) != num_layers:
            raise CheckpointError(f"config.json: layer_types has {len(listed)} entries for {num_layers} layers")
        unknown = {name for name in listed if name not in _KINDS}
        if unknown:
            raise CheckpointError(f"config.json: layer_types has {sorted(map(str, unknown))}, which Agon does not know")
        return [_KINDS[name] for name in listed]
    return [_kind_by_rule(config, index) for index in range(num_layers)]


def _kind_by_rule(config: _Config, index: int) -> LayerKind:
    model_type = config.model_type
    window = config.values.get("sliding_window")
    if isinstance(window, list):  # one per layer, repeated
        return "window" if window and window[index % len(window)] else "full"
    if not window or config.values.get("use_sliding_window") is False:
        return "full"
    if model_type in _WINDOW_PATTERNS:
        default = _WINDOW_PATTERNS[model_type]
        pattern = config.integer("sliding_window_pattern", "_sliding_window_pattern", default=default)
        return "window" if (index + 1) % pattern else "full"
    return "window"


def _shared_by_architecture(config: _Config) -> list[int | None]:
    """For each layer the earlier one whose keys and values it reads, None where it stores its own (Gemma 3n)."""
    num_layers = config.num_layers
    owners: list[int | None] = [None] * num_layers
    num_shared = config.integer("num_kv_shared_layers", default=0)
    if num_shared:  # the last ones read the last storing layer of their kind
        kinds = _layer_kinds(config)
        for index in range(num_layers - num_shared, num_layers):
            candidates = [i for i in range(num_layers - num_shared) if kinds[i] == kinds[index]]
            owners[index] = candidates[-1] if candidates else None
    return owners


def _attention(config: _Config, kind: LayerKind, dtype: str) -> LayerSpec:
    """dtype: of keys and values."""
    num_bytes, scale_bytes = _ITEM_BYTES[dtype], _SCALE_BYTES.get(dtype, 0)
    if "kv_lora_rank" in config.values:  # multi-head latent attention: one compressed vector per token
        latent = config.integer("kv_lora_rank") + config.integer("qk_rope_head_dim", default=0)
        bytes_per_token = latent * num_bytes + scale_bytes
    else:
        num_heads = config.integer("num_attention_heads", "n_head")
        num_kv_heads = config.integer("num_key_value_heads", "num_kv_heads", default=num_heads)
        head_dim = config.integer("head_dim", default=config.hidden_size // num_heads if num_heads else 0)
        bytes_per_token = 2 * num_kv_heads * (head_dim * num_bytes + scale_bytes)
    if bytes_per_token < 1:
        raise CheckpointError("config.json describes attention without heads")
    span = 0
    if kind == "window":
        windows = config.values.get("sliding_window")
        span = max(filter(None, windows)) if isinstance(windows, list) else config.integer("sliding_window")
    elif kind == "chunked":
        span = config.integer("attention_chunk_size")
    return LayerSpec(kind, bytes_per_token, dtype, span=span)


def _states(config: _Config, dtype: str, checkpoint_tokens: int) -> Sequence[LayerSpec]:
    """The convolution and the ssm state of a Mamba layer, of the first generation or of the second."""
    item = _ITEM_BYTES[dtype]
    expand = config.integer("mamba_expand", "expand", default=2)
    d_inner = config.integer("intermediate_size_mamba", "mamba_intermediate_size", default=expand * config.hidden_size)
    d_state = config.integer("mamba_d_state", "state_size", default=16)
    d_conv = config.integer("mamba_d_conv", "conv_kernel", default=4)
    num_channels = d_inner
    if config.values.get("mamba_n_heads"):  # the second generation convolves B and C too
        num_channels += 2 * config.integer("mamba_n_groups", "n_groups", default=1) * d_state
    sizes = {"conv": num_channels * (d_conv - 1) * item, "ssm": d_inner * d_state * item}
    return [LayerSpec("recurrent", size, dtype, span=checkpoint_tokens, part=part) for part, size in sizes.items()]


def _image_tokens(config: _Config) -> int:
    """Tokens of the largest single image; 0 for a model without images."""
    vision = config.top.get("vision_config")
    if not isinstance(vision, Mapping):
        return 0
    per_image = config.top.get("mm_tokens_per_image")
    if isinstance(per_image, int):
        return per_image
    size, patch = vision.get("image_size", 448), vision.get("patch_size", 14)
    if not isinstance(size, int) or not isinstance(patch, int) or patch < 1:
        return 0
    per_tile = (size // patch) ** 2 + 1
    tiles = vision.get("max_num_tiles", 4 if config.model_type.startswith("mllama") else 1)
    return per_tile * (tiles if isinstance(tiles, int) else 1)
