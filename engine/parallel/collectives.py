"""The real group: NCCL between GPUs, gloo between processes on CPU and, always, for what the leader tells the others.

The groups of torch.distributed are made by hand: there is no default group, so that a program may have its own, and
several engines fit into one process. Used by one thread, but for `abort`.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, ProcessGroupGloo, Store  # type: ignore[attr-defined]

from engine.errors import RankLost
from engine.parallel.group import Place

#: For all processes to find each other. Weights are loaded later.
_CONNECT_TIMEOUT = timedelta(minutes=5)
#: An idle engine sends nothing for as long as it is idle. A process that dies is noticed by its closed connection.
_IDLE_TIMEOUT = timedelta(days=3650)
#: A message up to that many bytes goes in one piece; most plans of decodes fit.
_FIRST_BYTES = 8192
_LENGTH_BYTES = 8


class TorchGroup:
    """Every method is a meeting of all processes. Raises RankLost where one of them has gone."""

    def __init__(self, store: Store, place: Place, device: torch.device, *, is_local: bool) -> None:
        """device: where the tensors of `sum` and `join` lie. is_local: all processes are on this machine, and no
        connection but those of its loopback is accepted."""
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
        self._is_connected = device.type != "cuda"  # gloo is from here on; NCCL connects when it is first used

    def sum(self, x: torch.Tensor) -> torch.Tensor:
        assert x.is_contiguous()
        self._await_all()
        _meet(lambda: self._compute.allreduce([x], dist.AllreduceOptions()))
        return x

    def join(self, x: torch.Tensor) -> torch.Tensor:
        joined = torch.empty((self.place.size, *x.shape), dtype=x.dtype, device=x.device)
        self._await_all()
        _meet(lambda: self._compute._allgather_base(joined.flatten(0, 1), x.contiguous()))
        return joined

    def minimum(self, number: int) -> int:
        numbers = torch.tensor([number])
        options = dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp(dist.ReduceOp.MIN)
        _meet(lambda: self._control.allreduce([numbers], options))
        return int(numbers)

    def tell(self, message: bytes) -> None:
        """Rank 0: what the others hear."""
        length = len(message).to_bytes(_LENGTH_BYTES, "little")
        start = min(len(message), _FIRST_BYTES - _LENGTH_BYTES)
        head = bytearray(length + message[:start])
        self._first[: len(head)] = torch.frombuffer(head, dtype=torch.uint8)
        self._broadcast(self._first)
        if start < len(message):
            self._broadcast(torch.frombuffer(bytearray(message[start:]), dtype=torch.uint8))

    def hear(self) -> bytes:
        """All others: wait for what rank 0 tells, however long it takes."""
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
        """Let the thread that waits in a meeting of GPUs go on with an error: NCCL does not notice that a process has
        gone. May be called from any thread; the group is of no use afterwards."""
        compute = self._compute
        if self._device.type == "cuda" and compute is not None:
            compute.abort()

    def close(self) -> None:
        """End the group's own threads. Left to the end of the interpreter, one of them might give a tensor back when
        there is nobody left to give it to, and abort the process."""
        self.abort()
        self._compute = self._control = None

    def _await_all(self) -> None:
        """Before GPUs first meet, and NCCL connects: it looks for the others only as long as the store waits,
        and what loading takes may differ by more."""
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
    # Without a name: the interface of the host's name, or that of GLOO_SOCKET_IFNAME.
    device = classes.create_device(hostname="127.0.0.1") if is_local else classes.create_default_device()
    options._devices = [device]
    options._timeout = _CONNECT_TIMEOUT
    group = classes(store, place.rank, place.size, options)
    group._set_default_timeout(_IDLE_TIMEOUT)
    return group


def _meet(start: Callable[[], dist.Work]) -> None:
    """NCCL says already at the call that it was aborted, or that others cannot be reached; gloo says it later."""
    try:
        start().wait()
    except RuntimeError as error:
        raise RankLost(f"another process of tensor parallelism does not answer: {error}") from error
