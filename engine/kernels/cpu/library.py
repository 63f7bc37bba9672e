"""The built library as Python functions: one for each exported symbol and dtype. Knows no layers.

Calls release the interpreter lock. Nothing is checked here: callers pass tensors on CPU, with contiguous rows if there
is no stride among the arguments.
"""

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from engine.errors import OperatorsUnavailable

_POINTER, _INT, _FLOAT, _THREADS = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float, ctypes.c_int
_P, _I, _F = (_POINTER,), (_INT,), (_FLOAT,)
_SIGNATURES = {
    "pack_linear": 2 * _P + 2 * _I,
    "linear_grouped": _P + _I + 3 * _P + 3 * _I,
    "linear": _P + _I + 3 * _P + 4 * _I,
    "unpack_rows": 3 * _P + 2 * _I,
    "unpack_grouped": 3 * _P + _I,
    "norm": 5 * _P + 2 * _I + _F,
    "activation": _I + 2 * _P + 2 * _I,
    "argmax": _P + _I + _P + 2 * _I,
    "forbid": _P + _I + 2 * _P + 2 * _I,
    "draw": _P + _I + 7 * _P + 2 * _I,
    "causal_conv": _P + _I + 3 * _P + _I + 3 * _P + _I + _P + 3 * _I,
    "selective_scan": 5 * (_P + _I) + 3 * _P + _I + 3 * _P + _I + _P + 2 * _I,
    "choose_experts": _P + _I + 2 * _P + 4 * _I,
    "mix_experts": 2 * _P + _I + 3 * _P + _I,
    "gated_norm": 2 * _P + _I + 2 * _P + 4 * _I + _F,
    "gated_delta": 4 * (_P + _I) + 4 * _P + _I + 3 * _P + _I + _P + 4 * _I + _F,
    "channel_delta": 4 * (_P + _I) + 4 * _P + _I + 3 * _P + _I + _P + 4 * _I + _F,
    "head_scan": 4 * (_P + _I) + 3 * _P + 2 * _F + _P + _I + 3 * _P + _I + _P + 4 * _I,
    "add_adapters": 2 * (_P + _I) + 2 * _I + 2 * _P + _I,
    "run_steps": _P + _I + _P,
}
_SUFFIXES = {torch.float32: "f32", torch.bfloat16: "bf16"}


class Library:
    """The functions of one shared library, and the number of threads that they use. Raises OperatorsUnavailable if it
    cannot be loaded."""

    def __init__(self, path: Path, instruction_set: str, num_threads: int) -> None:
        self.instruction_set = instruction_set
        self.num_threads = num_threads
        try:
            self._library = ctypes.CDLL(str(path), mode=os.RTLD_NOW)
            self._library.agon_panel_outputs.restype = _INT
            self.panel_outputs = int(self._library.agon_panel_outputs())
            for name, arguments in _SIGNATURES.items():
                for suffix in ("f32", "bf16"):
                    self._declare(f"{name}_{suffix}", arguments)
            self._declare("pack_grouped", 2 * _P + 3 * _I)
            self._declare("round_groups", 5 * _P + 4 * _I)
        except (OSError, AttributeError) as error:
            raise OperatorsUnavailable(f"cannot load {path}: {error}") from error

    def function(self, name: str, dtype: torch.dtype) -> Callable[..., None]:
        """The function of that name for that dtype. Its arguments are those of the C++ source, pointers as integers (0:
        null), the last one num_threads."""
        symbol: Callable[..., None] = getattr(self._library, f"agon_{name}_{_SUFFIXES[dtype]}")
        return symbol

    @property
    def pack_grouped(self) -> Callable[..., None]:
        """agon_pack_grouped (grouped.cpp); arguments as of `function`."""
        symbol: Callable[..., None] = self._library.agon_pack_grouped
        return symbol

    @property
    def round_groups(self) -> Callable[..., None]:
        """agon_round_groups (rounding.cpp); arguments as of `function`."""
        symbol: Callable[..., None] = self._library.agon_round_groups
        return symbol

    def _declare(self, name: str, arguments: tuple[Any, ...]) -> None:
        symbol = getattr(self._library, f"agon_{name}")
        symbol.argtypes = (*arguments, _THREADS)
        symbol.restype = None
