"""Launches kernels, and keeps launches to repeat them on other tensors.

Triton finds the compiled variant of a kernel anew in every launch: it looks at the type and alignment of each argument,
which takes longer than the launch itself. The layers of a model repeat the same launches on tensors of the same shapes
at other addresses. So the launches of the first layer are kept, with the compiled kernels, and for the others only
addresses change (`CompiledKernel[grid](*arguments)`). In Triton's interpreter nothing is compiled, and nothing is kept.
"""

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from triton.runtime import driver

#: Triton compiles for pointers at multiples of this many bytes, and for others.
_ALIGNMENT = 16


@dataclass(frozen=True, slots=True)
class _Launch:
    compiled: Any  #: Triton's CompiledKernel; None in the interpreter
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]  #: all of the kernel's, by position


#: The launches of the innermost keep_launches that runs in this thread; None: nothing is kept.
_noted: ContextVar[list[_Launch] | None] = ContextVar("noted launches", default=None)


def launch(kernel: Any, grid: tuple[int, ...]) -> Callable[..., None]:
    """kernel[grid], a function of its arguments, whose launches keep_launches sees."""
    start = kernel[grid]

    def run(*arguments: Any, **named: Any) -> None:
        compiled = start(*arguments, **named)
        noted = _noted.get()
        if noted is not None:
            rest = kernel.arg_names[len(arguments) :]
            noted.append(_Launch(compiled, grid, (*arguments, *(named[name] for name in rest))))

    return run


def keep_launches(work: Callable[[], None], moving: Sequence[torch.Tensor | None]) -> "KeptLaunches | None":
    """Run `work` and keep its launches, as StepKernels.keep_launches defines."""
    noted: list[_Launch] = []
    token = _noted.set(noted)
    try:
        work()
    finally:
        _noted.reset(token)
    if any(done.compiled is None for done in noted):
        return None
    return KeptLaunches.of(noted, moving)


@dataclass(frozen=True, slots=True)
class _Kept:
    start: Callable[..., None]  #: CompiledKernel[grid]
    arguments: list[Any]  #: tensors by their addresses
    places: tuple[tuple[int, int, int], ...]  #: argument, index in the moving tensors, bytes behind its beginning


class KeptLaunches:
    """Launches that can be repeated on other tensors, on the stream that they were kept on."""

    def __init__(self, kept: Sequence[_Kept], addresses: Sequence[int]) -> None:
        """addresses: of the moving tensors, 0: None."""
        self._kept = kept
        self._addresses = addresses
        self._stream = driver.active.get_current_stream(driver.active.get_current_device())

    @classmethod
    def of(cls, launches: Sequence[_Launch], moving: Sequence[torch.Tensor | None]) -> "KeptLaunches | None":
        """None: an address belongs to more than one of the moving tensors."""
        addresses = [0 if tensor is None else tensor.data_ptr() for tensor in moving]
        if len(set(filter(None, addresses))) != len(list(filter(None, addresses))):
            return None
        # Only tensors without gaps may be passed in slices: pages of several layers lie in each other's gaps.
        ends = [
            address + (0 if tensor is None or not tensor.is_contiguous() else tensor.nbytes)
            for address, tensor in zip(addresses, moving, strict=True)
        ]

        def owner(address: int) -> tuple[int, int] | None:
            if address in addresses:
                return addresses.index(address), 0
            for index, (first, end) in enumerate(zip(addresses, ends, strict=True)):
                if first < address < end:
                    return index, address - first
            return None

        kept = []
        for done in launches:
            arguments = list(done.arguments)
            places = []
            for place, argument in enumerate(arguments):
                if isinstance(argument, torch.Tensor):
                    arguments[place] = argument.data_ptr()
                    found = owner(arguments[place])
                    if found is not None:
                        places.append((place, *found))
            grid = (*done.grid, 1, 1)[:3]
            kept.append(_Kept(done.compiled[grid], arguments, tuple(places)))
        return cls(kept, addresses)

    def repeat(self, moved: Sequence[torch.Tensor | None]) -> bool:
        """Queue the launches on these tensors in place of the moving ones. False, with nothing queued, if one of them
        is aligned differently, or is missing, which would need other variants of the kernels."""
        addresses = [0 if tensor is None else tensor.data_ptr() for tensor in moved]
        for old, new in zip(self._addresses, addresses, strict=True):
            if (old - new) % _ALIGNMENT or bool(old) != bool(new):
                return False
        for kept in self._kept:
            arguments = kept.arguments.copy()
            for place, index, offset in kept.places:
                arguments[place] = addresses[index] + offset
            kept.start(*arguments, stream=self._stream)
        return True
