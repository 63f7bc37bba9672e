"""SmolLM3: Llama, but every fourth layer has no positions, or those that the config lists."""

from dataclasses import replace

from engine.errors import CheckpointError
from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.llama import Llama, LlamaConfig
from engine.models.rope import read_rope
from engine.models.windows import read_windows


def smollm3(config: ConfigReader, weights: WeightSource) -> Llama:
    """Builds SmolLM3. If windows are on, layers without positions have one, or those that `layer_types` lists."""
    settings = LlamaConfig.read(config)
    is_rotated = _read_rotated(config, settings.num_layers)
    rope = read_rope(config, default_base=2_000_000.0)
    window = config.optional("sliding_window", int) if config.get("use_sliding_window", bool, False) else None
    rule = [window is not None and not is_it for is_it in is_rotated]
    return Llama(
        replace(
            settings,
            windows=read_windows(config, window, rule),
            layer_ropes=tuple(rope if is_it else None for is_it in is_rotated),
            is_tied=config.get("tie_word_embeddings", bool, True),
        ),
        weights,
    )


def _read_rotated(config: ConfigReader, num_layers: int) -> list[bool]:
    """By layer: whether its heads are rotated."""
    listed = config.optional("no_rope_layers", list)
    if listed is None:
        period = config.get("no_rope_layer_interval", int, 4)
        return [(index + 1) % period != 0 for index in range(num_layers)]
    if len(listed) < num_layers or not all(value in (0, 1) for value in listed):
        raise CheckpointError(f"config.json: no_rope_layers must be 0 or 1 for each of {num_layers} layers")
    return [bool(value) for value in listed[:num_layers]]
