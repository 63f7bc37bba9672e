"""Which layers of a checkpoint read a sliding window, and of how many tokens: from config.json's `layer_types`, or by
the rule that its architecture had before that key existed."""

from collections.abc import Sequence

from engine.errors import CheckpointError
from engine.models.config_reader import ConfigReader

_IS_WINDOW = {"full_attention": False, "sliding_attention": True}


def read_windows(config: ConfigReader, window: int | None, is_window: Sequence[bool]) -> tuple[int | None, ...]:
    """By layer: the window in tokens, the query's own included, or None. is_window: the rule without layer_types."""
    listed = config.optional("layer_types", list)
    if listed is not None:
        if len(listed) != len(is_window) or not all(name in _IS_WINDOW for name in listed):
            raise CheckpointError(
                f"config.json: layer_types must name {len(is_window)} layers, each one of {', '.join(_IS_WINDOW)}"
            )
        is_window = [_IS_WINDOW[name] for name in listed]
    if not any(is_window):
        return (None,) * len(is_window)
    if window is None or window < 1:
        raise CheckpointError(f"config.json: sliding layers need a sliding_window of at least 1, got {window}")
    return tuple(window if is_it else None for is_it in is_window)
