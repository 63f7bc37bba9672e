"""OLMo 3: OLMo 2 with windows in three layers of four, whose positions are not scaled."""

from dataclasses import replace

from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.llama import Llama
from engine.models.olmo2 import read_olmo2
from engine.models.rope import read_ropes
from engine.models.windows import read_windows


def olmo3(config: ConfigReader, weights: WeightSource) -> Llama:
    """Builds OLMo 3: windows in the layers that `layer_types` lists, or in three of four."""
    settings = read_olmo2(config)
    base = config.get("rope_theta", float, 500_000.0)
    rope, window_rope = read_ropes(config, default_base=base, default_window_base=base)
    rule = [(index + 1) % 4 != 0 for index in range(settings.num_layers)]
    windows = read_windows(config, config.get("sliding_window", int, 4096), rule)
    ropes = tuple(rope if window is None else window_rope for window in windows)
    return Llama(replace(settings, windows=windows, layer_ropes=ropes), weights)
