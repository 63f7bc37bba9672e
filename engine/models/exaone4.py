"""EXAONE 4: Llama with norms of query and key heads, and with norms after attention and MLP in place of those before
them. Where some layers read a window, only those have positions."""

from dataclasses import replace

from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.llama import Llama, LlamaConfig
from engine.models.olmo2 import post_norm_layer
from engine.models.windows import read_windows


def exaone4(config: ConfigReader, weights: WeightSource) -> Llama:
    """Builds EXAONE 4: a window in three layers of four, or in those that `layer_types` lists, or none."""
    settings = LlamaConfig.read(config)
    num_layers = settings.num_layers
    window = config.optional("sliding_window", int) if "sliding_window" in config else 4096
    windows = read_windows(config, window, _window_rule(config, window, num_layers))
    ropes = tuple(settings.rope if window is None or own is not None else None for own in windows)
    return Llama(
        replace(
            settings,
            norm_eps=config.get("rms_norm_eps", float, 1e-5),
            windows=windows,
            layer_ropes=ropes,
            has_qkv_bias=False,
            has_output_bias=False,
            has_mlp_bias=False,
            has_head_norm=True,
            load_layer=post_norm_layer,
        ),
        weights,
    )


def _window_rule(config: ConfigReader, window: int | None, num_layers: int) -> list[bool]:
    """For a config without layer_types; with them the pattern may be letters instead of a number."""
    if window is None or config.optional("layer_types", list) is not None:
        return [False] * num_layers
    period = config.get("sliding_window_pattern", int, 4)
    return [(index + 1) % period != 0 for index in range(num_layers)]
