"""Lists of steps that the library goes through in one call (steps.h), and how they are recorded.

A list is recorded once, part by part, from operators that C++ has; every run of it fills in the rows, their pages and
their rotations. T = tokens of the step, H, K = query and key/value heads, D = head dimension.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import torch

_I, _P, _F = ctypes.c_int64, ctypes.c_void_p, ctypes.c_double


class AttentionLayer(ctypes.Structure):
    """attention.h"""

    _fields_ = (
        ("type", _I),
        ("rotation", _I),
        ("num_heads", _I),
        ("num_kv_heads", _I),
        ("head_dim", _I),
        ("page_tokens", _I),
        ("pages", _P),
        ("page_stride", _I),
        ("has_int8_pages", _I),
        ("window", _I),
        ("query_norm", _P),
        ("key_norm", _P),
        ("sinks", _P),
        ("norm_eps", _F),
        ("scale", _F),
        ("softcap", _F),
    )


class PageTable(ctypes.Structure):
    """attention.h"""

    _fields_ = (("pages", _P), ("stride", _I))


class StepRotation(ctypes.Structure):
    """attention.h"""

    _fields_ = (("cosines", _P), ("sines", _P), ("size", _I))


class Step(ctypes.Structure):
    """steps.h"""

    _fields_ = (
        ("kind", _I),
        ("input", _I),
        ("update", _I),
        ("output", _I),
        ("num_inputs", _I),
        ("num_outputs", _I),
        ("weight", _P),
        ("bias", _P),
        ("output_scales", _P),
        ("output_sums", _P),
        ("eps", _F),
        ("activation", _I),
        ("activated", _I),
        ("attention", _P),
    )


class Inputs(ctypes.Structure):
    """steps.h"""

    _fields_ = (
        ("num_rows", _I),
        ("buffers", _P),
        ("bytes", _P),
        ("row_scales", _P),
        ("num_sequences", _I),
        ("starts", _P),
        ("lengths", _P),
        ("tables", _P),
        ("rotations", _P),
        ("num_tables", _I),
    )


class Kind(IntEnum):
    NORM = 0
    LINEAR = 1
    ACTIVATE = 2
    ATTENTION = 3
    ADD = 4


class ActivationKind(IntEnum):
    """activation.h"""

    SILU_MUL = 0
    GELU_TANH_MUL = 1
    GELU_TANH = 2
    GELU = 3
    RELU = 4

    @property
    def is_gated(self) -> bool:
        return self <= ActivationKind.GELU_TANH_MUL


#: Buffers that every list has: the residual stream, and what the last part wants added to it.
STREAM, UPDATE = 0, 1


@dataclass(frozen=True, slots=True)
class AttentionCall:
    """What an attention step must know that belongs to the attention backend: it fills in the pages."""

    step: int  #: index of its step
    layer_id: int
    rotation: int | None  #: which of the run's rotations
    query_norm: torch.Tensor | None  #: [D] float32
    key_norm: torch.Tensor | None
    norm_eps: float


@dataclass
class StepList:
    """Steps, and buffers by name; what the steps point to is kept alive by `owners`."""

    steps: list[Step] = field(default_factory=list)
    attention_calls: list[AttentionCall] = field(default_factory=list)
    owners: list[object] = field(default_factory=list)
    widest_input: int = 0  #: of linears with int8 weights
    _numbers: dict[str, int] = field(default_factory=dict)
    _widths: list[int] = field(default_factory=list)
    _workspace: torch.Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.uint8))

    def buffer(self, name: str, width: int) -> int:
        """Number of the buffer of that name, with room for `width` elements in a row. Layers share their buffers."""
        number = self._numbers.setdefault(name, len(self._widths))
        if number == len(self._widths):
            self._widths.append(0)
        self._widths[number] = max(self._widths[number], width)
        return number + 2

    def add(self, kind: Kind, **values: object) -> None:
        step = Step(kind=kind, update=-1, activation=-1)
        for name, value in values.items():
            setattr(step, name, value)
        self.steps.append(step)

    def add_attention(
        self,
        layer_id: int,
        rotation: int | None,
        norms: tuple[torch.Tensor, torch.Tensor, float] | None,
        **buffers: int,
    ) -> None:
        query, key, eps = norms or (None, None, 0.0)
        self.attention_calls.append(AttentionCall(len(self.steps), layer_id, rotation, query, key, eps))
        self.add(Kind.ATTENTION, **buffers)

    def buffers(self, stream: torch.Tensor, update: torch.Tensor) -> "Buffers":
        """Addresses for a run on these rows. The memory between steps is kept: page faults cost more than the work."""
        num_rows, item_bytes = stream.shape[0], stream.element_size()
        sizes = [-(-num_rows * width * item_bytes // _LINE) * _LINE for width in self._widths]
        sizes += [num_rows * self.widest_input, num_rows * 4 if self.widest_input else 0]
        if sum(sizes) + 2 * _LINE > len(self._workspace):
            self._workspace = torch.empty(sum(sizes) + 2 * _LINE, dtype=torch.uint8)
        address = -(-self._workspace.data_ptr() // _LINE) * _LINE
        addresses = [stream.data_ptr(), update.data_ptr()]
        for size in sizes:
            addresses.append(address)
            address += -(-size // _LINE) * _LINE
        return Buffers((_P * len(addresses))(*addresses), addresses[-2], addresses[-1])


_LINE = 64  #: bytes of a cache line


@dataclass(frozen=True, slots=True)
class Buffers:
    addresses: "ctypes.Array[ctypes.c_void_p]"
    bytes: int  #: address of the rows as int8 weights take them
    row_scales: int


def array_of(steps: Sequence[Step]) -> "ctypes.Array[Step]":
    return (Step * len(steps))(*steps)
