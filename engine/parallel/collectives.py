"""The Group of several processes: NCCL between GPUs, gloo between processes on CPU and for the leader's messages.

The groups of torch.distributed are made by hand, without the default group, so that a program may have one of its own
and several engines fit into one process. Used by one thread; only `abort` may be called by any.
"""

import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, ProcessGroupGloo, Store  # type: ignore[attr-defined]

from engine.errors import RankLost
from engine.parallel.group import Place
from engine.parallel.torchrun import own_address_towards_master

#: For all processes to connect to each other. Weights are loaded later.
_CONNECT_TIMEOUT = timedelta(minutes=5)
#: An idle engine sends nothing, for any length of time. The death of a process is noticed by its closed connection.
_IDLE_TIMEOUT = timedelta(days=3650)
#: A message of up to that many bytes takes one broadcast; most plans of decodes fit.
_FIRST_BYTES = 8192
_LENGTH_BYTES = 8


class TorchGroup:
    """Every method is a collective operation: all processes call it. Raises RankLost if one of them has gone."""

    def __init__(self, store: Store, place: Place, device: torch.device, *, is_local: bool) -> None:
        """device: of the tensors of `sum` and `join`. is_local: all processes are on this machine, and only connections
        of its loopback interface are accepted."""
        self.place = place
        self._device = device
        # Any: torch's annotations of these classes lack most of their methods.
        self._control: Any = _gloo(PrefixStore("gloo", store), place, is_local=is_local)
        self._compute: Any = self._control
        if device.type == "cuda":
            torch.cuda.set_device(device)
            nccl: Any = dist.ProcessGroupNCCL  # builds of torch without CUDA have none
            self._compute = nccl(PrefixStore("nccl", store), place.rank, place.size, nccl.Options())
        self._first = torch.empty(_FIRST_BYTES, dtype=torch.uint8)
        self._is_connected = device.type != "cuda"  # gloo is connected by now; NCCL connects at its first operation

    def sum(self, x: torch.Tensor) -> torch.Tensor:
        """The sum over all processes, written to x and returned. x is contiguous."""
        assert x.is_contiguous()
        self._await_all()
        _meet(lambda: self._compute.allreduce([x], dist.AllreduceOptions()))
        return x

    def join(self, x: torch.Tensor) -> torch.Tensor:
        """[*shape] of each process -> [size, *shape], by rank, newly allocated."""
        joined = torch.empty((self.place.size, *x.shape), dtype=x.dtype, device=x.device)
        self._await_all()
        _meet(lambda: self._compute._allgather_base(joined.flatten(0, 1), x.contiguous()))
        return joined

    def minimum(self, number: int) -> int:
        """The smallest of all processes' numbers; over gloo, also with GPUs."""
        numbers = torch.tensor([number])
        options = dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp(dist.ReduceOp.MIN)
        _meet(lambda: self._control.allreduce([numbers], options))
        return int(numbers)

    def tell(self, message: bytes) -> None:
        """Rank 0 only: send a message to all other ranks."""
        length = len(message).to_bytes(_LENGTH_BYTES, "little")
        start = min(len(message), _FIRST_BYTES - _LENGTH_BYTES)
        head = bytearray(length + message[:start])
        self._first[: len(head)] = torch.frombuffer(head, dtype=torch.uint8)
        self._broadcast(self._first)
        if start < len(message):
            self._broadcast(torch.frombuffer(bytearray(message[start:]), dtype=torch.uint8))

    def hear(self) -> bytes:
        """Other ranks: wait for the next message of rank 0, without a time limit."""
        self._broadcast(self._first)
        first = self._first.numpy().tobytes()
        length = int.from_bytes(first[:_LENGTH_BYTES], "little")
        message = first[_LENGTH_BYTES : _LENGTH_BYTES + length]
        if len(message) < length:
            rest = torch.empty(length - len(message), dtype=torch.uint8)
            self._broadcast(rest)
            message += rest.numpy().tobytes()
        return message

    def abort(self) -> None:
        """Make a thread that waits in an operation of GPUs continue with an error, since NCCL does not notice that a
        process has gone. May be called by any thread; the group cannot be used afterwards."""
        compute = self._compute
        if self._device.type == "cuda" and compute is not None:
            compute.abort()

    def close(self) -> None:
        """End the group's own threads. At the end of the interpreter one of them might otherwise free a tensor when
        torch is already torn down, and abort the process."""
        self.abort()
        self._compute = self._control = None

    def _await_all(self) -> None:
        """Wait for all processes before NCCL connects. NCCL waits for the other ranks only as long as the store's
        time-out, and loading times may differ by more."""
        if not self._is_connected:
            self.minimum(0)
            self._is_connected = True

    def _broadcast(self, x: torch.Tensor) -> None:
        options = dist.BroadcastOptions()
        options.rootRank = 0
        _meet(lambda: self._control.broadcast([x], options))


def _gloo(store: Store, place: Place, *, is_local: bool) -> Any:
    classes: Any = ProcessGroupGloo
    options = classes._Options()
    options._devices = [_device(classes, is_local=is_local)]
    options._timeout = _CONNECT_TIMEOUT
    group = classes(store, place.rank, place.size, options)
    group._set_default_timeout(_IDLE_TIMEOUT)
    return group


def _device(classes: Any, *, is_local: bool) -> Any:
    """Where this process listens for the others: the interface that GLOO_SOCKET_IFNAME names, or else the one that
    leads to the machine of rank 0. gloo's own choice is the address of the host's name, which often is loopback."""
    if is_local:
        return classes.create_device(hostname="127.0.0.1")
    if os.environ.get("GLOO_SOCKET_IFNAME"):
        return classes.create_default_device()
    return classes.create_device(hostname=own_address_towards_master(os.environ))


def _meet(start: Callable[[], dist.Work]) -> None:
    """Run an operation and wait for it. Both the call (NCCL) and the wait (gloo) may report that a process has gone."""
    try:
        start().wait()
    except RuntimeError as error:
        raise RankLost(f"another process of tensor parallelism does not answer: {error}") from error
