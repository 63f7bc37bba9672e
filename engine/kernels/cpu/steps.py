"""Lists of steps that the library runs in one call (steps.h), and the structures that it reads.

A list is recorded once, part by part, from C++ operators. Every run fills in the rows, their pages and their rotations.
D = head dimension.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import torch

from engine.kernels.cpu.scratch import Scratch
from engine.kernels.operators import HeadNormWeights

_I, _P, _F = ctypes.c_int64, ctypes.c_void_p, ctypes.c_double


class AttentionLayer(ctypes.Structure):
    """AttentionLayer of attention.h."""

    _fields_ = (
        ("type", _I),
        ("rotation", _I),
        ("num_heads", _I),
        ("num_kv_heads", _I),
        ("head_dim", _I),
        ("value_dim", _I),
        ("stores_values", _I),
        ("page_tokens", _I),
        ("pages", _P),
        ("page_stride", _I),
        ("has_int8_pages", _I),
        ("stores", _I),
        ("reads", _I),
        ("window", _I),
        ("chunk", _I),
        ("normalizes_values", _I),
        ("query_norm", _P),
        ("key_norm", _P),
        ("sinks", _P),
        ("norm_eps", _F),
        ("scale", _F),
        ("softcap", _F),
    )


class PageTable(ctypes.Structure):
    """PageTable of attention.h."""

    _fields_ = (("pages", _P), ("stride", _I))


class StepRotation(ctypes.Structure):
    """StepRotation of attention.h."""

    _fields_ = (("cosines", _P), ("sines", _P), ("size", _I))


class Step(ctypes.Structure):
    """Step of steps.h."""

    _fields_ = (
        ("kind", _I),
        ("input", _I),
        ("update", _I),
        ("output", _I),
        ("num_inputs", _I),
        ("num_outputs", _I),
        ("weight", _P),
        ("bias", _P),
        ("grouped", _P),
        ("eps", _F),
        ("activation", _I),
        ("activated", _I),
        ("attention", _P),
    )


class GroupedWeights(ctypes.Structure):
    """GroupedWeights of grouped.h."""

    _fields_ = (
        ("packed", _P),
        ("scales", _P),
        ("offsets", _P),
        ("factors", _P),
        ("order", _P),
        ("book", _P),
        ("bits", _I),
        ("num_inputs", _I),
        ("num_columns", _I),
        ("group", _I),
        ("block", _I),
        ("zero", _I),
    )


class Inputs(ctypes.Structure):
    """Inputs of steps.h."""

    _fields_ = (
        ("num_rows", _I),
        ("buffers", _P),
        ("bytes", _P),
        ("row_blocks", _P),
        ("num_sequences", _I),
        ("starts", _P),
        ("lengths", _P),
        ("tables", _P),
        ("rotations", _P),
        ("num_tables", _I),
        ("runs", _P),
        ("num_runs", _I),
    )


class Kind(IntEnum):
    """Kinds of steps, as in steps.h."""

    NORM = 0
    LINEAR = 1
    ACTIVATE = 2
    ATTENTION = 3
    ADD = 4
    ADAPT = 5


class ActivationKind(IntEnum):
    """Activations, as in activation.h."""

    SILU_MUL = 0
    GELU_TANH_MUL = 1
    GELU_TANH = 2
    GELU = 3
    RELU = 4

    @property
    def is_gated(self) -> bool:
        """Whether the input has gates and ups side by side."""
        return self <= ActivationKind.GELU_TANH_MUL


#: Buffers of every list: the residual stream, and the update that has not been added to it yet.
STREAM, UPDATE = 0, 1


@dataclass(frozen=True, slots=True)
class AttentionCall:
    """A recorded attention step; the attention backend binds it to pages."""

    step: int  #: index of its step
    layer_id: int
    rotation: int | None  #: index among the run's rotations
    norms: HeadNormWeights | None


@dataclass
class StepList:
    """Recorded steps, and buffers by name. `owners` keeps alive what the steps point to."""

    steps: list[Step] = field(default_factory=list)
    attention_calls: list[AttentionCall] = field(default_factory=list)
    owners: list[object] = field(default_factory=list)
    widest_input: int = 0  #: of linears that take rows in 8 bits
    block_bytes: int = 0  #: of what a row's blocks were quantised with, at most
    _numbers: dict[str, int] = field(default_factory=dict)
    _widths: list[int] = field(default_factory=list)

    def buffer(self, name: str, width: int) -> int:
        """Number of the buffer of that name, with at least `width` elements per row. Layers share buffers."""
        number = self._numbers.setdefault(name, len(self._widths))
        if number == len(self._widths):
            self._widths.append(0)
        self._widths[number] = max(self._widths[number], width)
        return number + 2

    def add(self, kind: Kind, **values: object) -> None:
        """Append a step. values: its other fields."""
        step = Step(kind=kind, update=-1, activation=-1)
        for name, value in values.items():
            setattr(step, name, value)
        self.steps.append(step)

    def add_attention(
        self,
        layer_id: int,
        rotation: int | None,
        norms: HeadNormWeights | None,
        **buffers: int,
    ) -> None:
        """Append an attention step, still without pages. buffers: its input and output."""
        self.attention_calls.append(AttentionCall(len(self.steps), layer_id, rotation, norms))
        self.add(Kind.ATTENTION, **buffers)

    def buffers(self, stream: torch.Tensor, update: torch.Tensor, scratch: Scratch) -> "Buffers":
        """Addresses of all buffers for a run on these rows."""
        num_rows, item_bytes = stream.shape[0], stream.element_size()
        sizes = [-(-num_rows * width * item_bytes // _LINE) * _LINE for width in self._widths]
        sizes += [num_rows * self.widest_input, num_rows * self.block_bytes]
        address = scratch.address_of(sum(sizes) + _LINE)
        addresses = [stream.data_ptr(), update.data_ptr()]
        for size in sizes:
            addresses.append(address)
            address += -(-size // _LINE) * _LINE
        return Buffers((_P * len(addresses))(*addresses), addresses[-2], addresses[-1])


_LINE = 64  #: bytes of a cache line


@dataclass(frozen=True, slots=True)
class Buffers:
    """Addresses for one run; made by StepList.buffers."""

    addresses: "ctypes.Array[ctypes.c_void_p]"
    bytes: int  #: address of rows in 8 bits, for products with quantised weights
    row_blocks: int  #: address of what their blocks were quantised with


def array_of(steps: Sequence[Step]) -> "ctypes.Array[Step]":
    """The steps as a C array, copied."""
    return (Step * len(steps))(*steps)
