"""Which layers of a checkpoint read the keys and values of an earlier one: Gemma 3n and Gemma 4 say how many of the
last layers do."""

from collections.abc import Sequence

from engine.errors import CheckpointError
from engine.models.config_reader import ConfigReader


def read_shared_layers(config: ConfigReader, windows: Sequence[int | None], default: int = 0) -> list[int | None]:
    """By layer: the earlier layer whose keys and values it reads, or None. Each of the last `num_kv_shared_layers`
    reads those of the last layer before them that has an equal window. default: for a config without that key."""
    num_storing = len(windows) - config.get("num_kv_shared_layers", int, default)
    storing = {window: index for index, window in enumerate(windows[: max(num_storing, 0)])}
    if not set(windows) <= set(storing):
        raise CheckpointError("config.json: num_kv_shared_layers leaves no layer that stores keys for some others")
    return [None if index < num_storing else storing[window] for index, window in enumerate(windows)]
