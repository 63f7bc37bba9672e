"""A recorder for CPU that forbids and forgets what a CUDA graph does: it keeps the operators of one run with the
tensors they had, and repeats them on the same memory. Numbers that Python saw while recording are frozen, and looking
at a number on the host is an error, as it is while a CUDA graph is captured."""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _disable_current_modes,
    _get_current_dispatch_mode_stack,
)
from torch.utils._pytree import tree_leaves

#: Operators that wait for a device until a number or a shape is known on the host, or bring a number from the host.
_WAITING = {
    "aten::_local_scalar_dense",
    "aten::item",
    "aten::equal",
    "aten::nonzero",
    "aten::masked_select",
    "aten::_unique2",
    "aten::lift_fresh",
    "aten::is_nonzero",
}


class WaitsForDevice(Exception):
    """The host looked at what a device computes."""


class NoWaiting(TorchDispatchMode):
    """Raises where a device would make the host wait."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._schema.name in _WAITING:
            raise WaitsForDevice(func._schema.name)
        return func(*args, **(kwargs or {}))


class _Tape(NoWaiting):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, list[torch.Tensor]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_dispatch__(func, types, args, kwargs)
        read = {_memory(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)}
        outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        if func._schema.is_mutable:
            self.calls.append((func, args, kwargs or {}, []))
        elif not all(_memory(output) in read for output in outputs):  # else a view: it is there already
            self.calls.append((func, args, kwargs or {}, outputs))
        return result

    def replay(self) -> None:
        with torch.inference_mode():
            for func, args, kwargs, outputs in self.calls:
                result = func(*args, **kwargs)
                for output, again in zip(outputs, tree_leaves(result), strict=bool(outputs)):
                    output.copy_(again)


def opaque(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel that a tape takes as one call, whatever it does inside: what it is for a graph."""

    def call(*args: Any, **kwargs: Any) -> Any:
        tape = next((mode for mode in _get_current_dispatch_mode_stack() if isinstance(mode, NoWaiting)), None)
        if tape is None:
            return kernel(*args, **kwargs)
        with _disable_current_modes():
            result = kernel(*args, **kwargs)
        if isinstance(tape, _Tape):
            tape.calls.append((kernel, args, kwargs, [] if result is None else [result]))
        return result

    return call


class TapeRecorder:
    def __init__(self) -> None:
        self.num_replays: list[int] = []  #: of each recording
        self.piece_replays: list[list[int]] = []  #: of each recording in pieces, of each piece

    def record(self, program: Callable[[], None]) -> Callable[[], None]:
        program()
        tape, index = _Tape(), len(self.num_replays)
        with tape:
            program()
        self.num_replays.append(0)

        def replay() -> None:
            self.num_replays[index] += 1
            tape.replay()

        return replay

    def record_pieces(self, program: Callable[[Callable[[], None]], None]) -> list[Callable[[], None]]:
        program(lambda: None)
        tapes: list[_Tape] = []
        with ExitStack() as recording:

            def cut() -> None:
                recording.close()
                tapes.append(recording.enter_context(_Tape()))

            cut()
            program(cut)
        counts = [0] * len(tapes)
        self.piece_replays.append(counts)

        def replay(index: int) -> None:
            counts[index] += 1
            tapes[index].replay()

        return [partial(replay, index) for index in range(len(tapes))]

    def alias(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tape keeps all of its tensors: their memory is not reused."""
        return tensor


def _memory(tensor: torch.Tensor) -> int:
    return id(tensor) if tensor.is_mkldnn else tensor.untyped_storage().data_ptr()  # packed weights have no address
