"""The runner of rank 0 with tensor parallelism: sends every plan to the follower processes, then runs it itself.

All ranks run the same plans in the same order on shards of the same sizes, so page tables are equal everywhere. Tokens
are equal too: logits are gathered from all ranks, and each rank samples from them with the plan's seeds. So every rank
knows a pending token when the next step needs it. Used by one thread; only `is_alive` may be called by any.
"""

import contextlib

import numpy as np

from engine.batch import StepOutput, StepPlan, TokenMasks
from engine.config import ModelLimits
from engine.errors import RankLost
from engine.memory.spec import PoolPlan
from engine.parallel.codec import Codec
from engine.parallel.collectives import TorchGroup
from engine.parallel.followers import Followers
from engine.runner.runner import Runner
from engine.sampling_params import SamplingParams

#: Key of the store under which rank 0 puts the configuration of all ranks.
CONFIG_KEY = "config"
#: Key under which it puts the digest of its checkpoint; set before the configuration.
REVISION_KEY = "revision"
#: The last message, which ends the followers. An encoded plan is never empty.
END = b""
#: Between the loss of a process's connection and the end of that process.
_EXPLAIN_S = 5.0
_COUNT_BYTES = 8  #: of the number of masks in a message; the arrays after it are aligned
_GONE = "another process of tensor parallelism has gone"


def plan_codec() -> Codec[StepPlan]:
    """How plans are sent to followers; remembers sampling parameters, which come again in every step."""
    return Codec(StepPlan, repeated=(SamplingParams,))


def encode_masks(masks: TokenMasks) -> bytes:
    """The masks as a message: their number, then the bytes of both arrays. Words as text would be six times as long."""
    return len(masks.draws).to_bytes(_COUNT_BYTES, "little") + masks.draws.tobytes() + masks.words.tobytes()


def decode_masks(message: bytes) -> TokenMasks:
    """The masks of such a message."""
    count = int.from_bytes(message[:_COUNT_BYTES], "little")
    writable = bytearray(message)  # as torch wants its memory
    draws = np.frombuffer(writable, np.int64, count, _COUNT_BYTES)
    words = np.frombuffer(writable, np.int32, -1, _COUNT_BYTES + draws.nbytes)
    return TokenMasks(draws, words.reshape(count, -1) if count else words.reshape(0, 0))


class Leader:
    """The Runner of rank 0. Raises RankLost when another process has gone."""

    def __init__(self, runner: Runner, group: TorchGroup, followers: Followers | None) -> None:
        """followers: None if torchrun has started them; torchrun also ends all processes when one ends."""
        self._runner = runner
        self._group = group
        self._followers = followers
        self._codec = plan_codec()
        self._is_waited_for = True  # followers wait for the next plan; False after a step that failed half-way

    @property
    def limits(self) -> ModelLimits:
        """Context length, vocabulary size and end-of-sequence tokens of the model."""
        return self._runner.limits

    @property
    def pool_plan(self) -> PoolPlan:
        """The pool of each rank: equal everywhere."""
        return self._runner.pool_plan

    @property
    def mirror_plan(self) -> PoolPlan | None:
        """Layout of each rank's host memory for swapped-out pages; None: pages are not swapped."""
        return self._runner.mirror_plan

    @property
    def max_in_flight(self) -> int:
        """How many steps may be launched and not yet collected."""
        return self._runner.max_in_flight

    def launch(self, plan: StepPlan) -> None:
        """Send the plan to all ranks and launch it. Raises RankLost, also after a launch that failed half-way: the
        ranks are then out of step and would wait for each other for ever."""
        if not self._is_waited_for:
            raise RankLost("a step has ended half-way; the processes of tensor parallelism must be started again")
        self._is_waited_for = False
        try:
            self._group.tell(self._codec.encode(plan))
            self._runner.launch(plan)
        except (RankLost, RuntimeError) as error:
            raise self._blamed(error) from error
        self._is_waited_for = True

    def supply_masks(self, masks: TokenMasks) -> None:
        """Send the masks to all ranks, which sample from the same logits. Raises RankLost, as `launch` does."""
        self._is_waited_for = False
        try:
            self._group.tell(encode_masks(masks))
            self._runner.supply_masks(masks)
        except (RankLost, RuntimeError) as error:
            raise self._blamed(error) from error
        self._is_waited_for = True

    def collect(self) -> StepOutput:
        """Wait for the oldest step. Raises RankLost, also if the GPUs have finished a step without one of the ranks."""
        try:
            output = self._runner.collect()
        except RuntimeError as error:
            raise self._blamed(error) from error
        if not self.is_alive():
            raise explained(RankLost(_GONE), self._followers)
        return output

    def _blamed(self, error: Exception) -> Exception:
        """The error to report: a device error while a process has gone is caused by its missing GPU."""
        if isinstance(error, RankLost):
            return explained(error, self._followers)
        return error if self.is_alive() else explained(RankLost(f"{_GONE}: {error}"), self._followers)

    def is_alive(self) -> bool:
        """Whether all follower processes run; for any thread. Always True under torchrun."""
        return self._followers is None or self._followers.is_alive

    def close(self) -> None:
        """Send the end message, free the memory and end the follower processes."""
        if self._is_waited_for:
            with contextlib.suppress(RankLost):
                self._group.tell(END)
        try:
            self._runner.close()
        finally:  # also if a GPU has failed: the follower processes must end
            self._group.close()
            if self._followers is not None:
                self._followers.close()


def explained(error: RankLost, followers: Followers | None) -> RankLost:
    """The error with the reason why a follower process has ended, if that can be found out within some seconds."""
    reason = followers.lost(_EXPLAIN_S) if followers is not None else None
    return error if reason is None else RankLost(reason)
