"""From a checkpoint's config.json to what its layers store; nothing but numbers is read, no weights, no model code.

Any config with `layer_types` is understood; older ones by the rule of their architecture. Three keys are Agon's own,
because no published config has words for them: `kv_budgets` (tokens kept per layer, PyramidKV), `kv_shared_with` (for
each layer null or the earlier layer whose keys and values it reads) and `draft_model` (the config of a second model
in the same pool).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from engine.errors import CheckpointError
from engine.memory.spec import CHECKPOINT_TOKENS, LayerKind, LayerSpec

KVDType = Literal["auto", "bfloat16", "float16", "float32", "fp8", "int8"]

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
    """What a model stores. A layer with two states is two entries, so ids need not be the model's own layer numbers."""

    layers: tuple[LayerSpec, ...]
    max_model_len: int
    image_tokens: int = 0  #: tokens of one image of the largest size, where layers store image tokens


class _Config:
    """Typed look-ups in a config.json, whose text part may be nested."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        nested = values.get("text_config")
        self.values = {**values, **nested} if isinstance(nested, Mapping) else dict(values)
        self.top = values

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
    def model_type(self) -> str:
        nested, top = self.values.get("model_type"), self.top.get("model_type")
        return str(nested or top or "")

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
    "gemma2": {"num_key_value_heads": 4, "head_dim": 256, "sliding_window": 4096},
    "gemma3_text": {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "sliding_window": 4096},
    "gemma3": {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "sliding_window": 4096},
    "gemma3n_text": {"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256, "num_kv_shared_layers": 15},
    "llama4_text": {"head_dim": 128, "attention_chunk_size": 8192, "num_key_value_heads": 8},
    "llama4": {"head_dim": 128, "attention_chunk_size": 8192, "num_key_value_heads": 8},
    "jamba": {"num_key_value_heads": 8, "attn_layer_period": 8, "attn_layer_offset": 4},
    "mllama_text_model": {"num_key_value_heads": 8, "num_attention_heads": 32, "hidden_size": 4096},
    "mllama": {"num_key_value_heads": 8, "num_attention_heads": 32, "hidden_size": 4096, "num_hidden_layers": 40},
    "mistral": {"num_key_value_heads": 8},
    "ministral": {"num_key_value_heads": 8},
}


def layers_from_config(
    values: Mapping[str, Any],
    *,
    kv_dtype: KVDType = "auto",
    with_vision_cache: bool = False,
    checkpoint_tokens: int = CHECKPOINT_TOKENS,
    model: str = "main",
) -> ModelLayers:
    """What the model with this config.json stores. kv_dtype is that of keys and values; states keep the model's own.

    with_vision_cache adds the embeddings of images, where the model has images among its tokens. Raises
    CheckpointError for a config that does not say enough.
    """
    config = _Config(values)
    defaults = {**_DEFAULTS.get(str(values.get("model_type")), {}), **_DEFAULTS.get(config.model_type, {})}
    config.values = {**defaults, **{name: value for name, value in config.values.items() if value is not None}}
    layers: list[LayerSpec] = []
    ids: list[int] = []  # the first entry of each of the model's layers
    owners = _sharing(config)
    budgets = config.sequence("kv_budgets")
    if budgets is not None and len(budgets) != config.num_layers:
        raise CheckpointError(f"config.json: kv_budgets has {len(budgets)} entries for {config.num_layers} layers")
    for index, kind in enumerate(_layer_kinds(config)):
        ids.append(len(layers))
        if kind == "recurrent":
            layers += _states(config, checkpoint_tokens, model)
            continue
        spec = _attention(config, kind, kv_dtype, model)
        if budgets is not None and kind == "full":
            spec = replace(spec, kind="budgeted", span=int(budgets[index]))
        owner = owners[index]
        if owner is not None:
            spec = replace(spec, shares_with=ids[owner])
        layers.append(spec)
    image_tokens = _image_tokens(config)
    if with_vision_cache and image_tokens and not any(layer.kind == "cross" for layer in layers):
        layers.append(LayerSpec("vision", config.hidden_size * _ITEM_BYTES[config.dtype], config.dtype, model))
    max_model_len = config.integer("max_position_embeddings", "n_positions", "seq_length", default=131_072)
    draft = values.get("draft_model")
    if isinstance(draft, Mapping):
        other = layers_from_config(draft, kv_dtype=kv_dtype, checkpoint_tokens=checkpoint_tokens, model="draft")
        first = len(layers)
        layers += [
            layer if layer.shares_with is None else replace(layer, shares_with=layer.shares_with + first)
            for layer in other.layers
        ]
        max_model_len = min(max_model_len, other.max_model_len)
    needs_images = any(layer.kind in ("cross", "vision") for layer in layers)
    return ModelLayers(tuple(layers), max_model_len, image_tokens if needs_images else 0)


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
    if model_type in ("mamba", "mamba2", "falcon_mamba"):
        return "recurrent"
    if model_type == "jamba":
        period, offset = config.integer("attn_layer_period"), config.integer("attn_layer_offset")
        return "full" if index % period == offset else "recurrent"
    if model_type == "bamba":
        return "full" if index in (config.sequence("attn_layer_indices") or ()) else "recurrent"
    if model_type in ("llama4", "llama4_text"):
        rotated = config.sequence("no_rope_layers")
        interval = config.integer("no_rope_layer_interval", default=4)
        is_local = bool(rotated[index]) if rotated else (index + 1) % interval != 0
        return "chunked" if is_local and config.integer("attention_chunk_size", default=0) else "full"
    window = config.values.get("sliding_window")
    if isinstance(window, list):  # one per layer, repeated
        return "window" if window and window[index % len(window)] else "full"
    if not window or config.values.get("use_sliding_window") is False:
        return "full"
    if model_type == "gemma2":
        return "window" if index % 2 == 0 else "full"
    if model_type in ("gemma3", "gemma3_text", "gemma3n_text", "cohere2"):
        pattern = config.integer(
            "sliding_window_pattern", "_sliding_window_pattern", default=_WINDOW_PATTERNS[model_type]
        )
        return "window" if (index + 1) % pattern else "full"
    if model_type == "ministral" or _is_ministral_8b(config):
        return "window" if index % 4 else "full"
    if model_type in ("qwen2", "qwen2_moe", "qwen3", "qwen3_moe"):
        return "window" if index >= config.integer("max_window_layers", default=config.num_layers) else "full"
    return "window"


_WINDOW_PATTERNS = {"gemma3": 6, "gemma3_text": 6, "gemma3n_text": 5, "cohere2": 4}


def _is_ministral_8b(config: _Config) -> bool:
    """Ministral-8B-2410 is published as a plain Mistral with a window; that only three of four layers use it stands
    in its authors' own parameter file."""
    return config.model_type == "mistral" and config.num_layers == 36 and config.values.get("sliding_window") == 32768


def _sharing(config: _Config) -> list[int | None]:
    """For each of the model's layers the one whose keys and values it reads, None where it stores its own."""
    num_layers = config.num_layers
    listed = config.sequence("kv_shared_with")
    if listed is not None:
        if len(listed) != num_layers or any(
            owner is not None and not 0 <= owner < index for index, owner in enumerate(listed)
        ):
            raise CheckpointError("config.json: kv_shared_with must name an earlier layer, or null, for each layer")
        return list(listed)
    owners: list[int | None] = [None] * num_layers
    num_shared = config.integer("num_kv_shared_layers", default=0)
    if num_shared:  # the last ones read the last storing layer of their kind
        kinds = _layer_kinds(config)
        for index in range(num_layers - num_shared, num_layers):
            candidates = [i for i in range(num_layers - num_shared) if kinds[i] == kinds[index]]
            owners[index] = candidates[-1] if candidates else None
    return owners


def _attention(config: _Config, kind: LayerKind, kv_dtype: KVDType, model: str) -> LayerSpec:
    dtype = config.dtype if kv_dtype == "auto" else kv_dtype
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
    return LayerSpec(kind, bytes_per_token, dtype, model, span)


def _states(config: _Config, checkpoint_tokens: int, model: str) -> Sequence[LayerSpec]:
    """The convolution and the ssm state of a Mamba layer, of the first generation or of the second."""
    item = _ITEM_BYTES[config.dtype]
    expand = config.integer("mamba_expand", "expand", default=2)
    d_inner = config.integer("intermediate_size_mamba", "mamba_intermediate_size", default=expand * config.hidden_size)
    d_state = config.integer("mamba_d_state", "state_size", default=16)
    d_conv = config.integer("mamba_d_conv", "conv_kernel", default=4)
    num_heads = config.values.get("mamba_n_heads") or (
        config.values.get("num_heads") if config.model_type == "mamba2" else None
    )
    num_channels = d_inner
    if num_heads:  # the second generation convolves B and C too
        num_channels += 2 * config.integer("mamba_n_groups", "n_groups", default=1) * d_state
    sizes = {"conv": num_channels * (d_conv - 1) * item, "ssm": d_inner * d_state * item}
    return [LayerSpec("recurrent", size, config.dtype, model, checkpoint_tokens, part) for part, size in sizes.items()]


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
