"""The runner of rank 0 where several processes share a model: every plan goes to all of them before it is run here.

All ranks run the same plan in the same order on shards of the same sizes, so page tables are the same everywhere, and
so are the tokens: logits are joined from all ranks and each draws from them with the plan's seeds. A token that is
still pending is therefore known wherever the next step needs it. Used by one thread, but for `is_alive`.
"""

import contextlib

from engine.batch import StepOutput, StepPlan
from engine.config import ModelLimits, SamplingParams
from engine.errors import RankLost
from engine.memory.spec import PoolPlan
from engine.parallel.codec import Codec
from engine.parallel.collectives import TorchGroup
from engine.parallel.followers import Followers
from engine.runner.runner import Runner

#: Where rank 0 puts the configuration of all.
CONFIG_KEY = "config"
#: The message after which nothing follows. A plan is never empty.
END = b""
#: For a process whose connection has closed to be seen to have ended.
_EXPLAIN_S = 5.0
_GONE = "another process of tensor parallelism has gone"


def plan_codec() -> Codec[StepPlan]:
    return Codec(StepPlan, repeated=(SamplingParams,))


class Leader:
    def __init__(self, runner: Runner, group: TorchGroup, followers: Followers | None) -> None:
        """followers: None where torchrun has started them, which also ends all processes when one does."""
        self._runner = runner
        self._group = group
        self._followers = followers
        self._codec = plan_codec()
        self._is_waited_for = True  # the others wait for the next plan; not so after a step that failed half-way

    @property
    def limits(self) -> ModelLimits:
        return self._runner.limits

    @property
    def pool_plan(self) -> PoolPlan:
        """Of each rank."""
        return self._runner.pool_plan

    @property
    def mirror_plan(self) -> PoolPlan | None:
        return self._runner.mirror_plan

    @property
    def max_in_flight(self) -> int:
        return self._runner.max_in_flight

    def launch(self, plan: StepPlan) -> None:
        """Raises RankLost, also after a step that failed half-way or was broken off: then the ranks are not at the same
        place any more, and would wait for each other for ever."""
        if not self._is_waited_for:
            raise RankLost("a step has ended half-way; the processes of tensor parallelism must be started again")
        self._is_waited_for = False
        try:
            self._group.tell(self._codec.encode(plan))
            self._runner.launch(plan)
        except (RankLost, RuntimeError) as error:
            raise self._blamed(error) from error
        self._is_waited_for = True

    def collect(self) -> StepOutput:
        """Raises RankLost, also where GPUs went on computing without one of them."""
        try:
            output = self._runner.collect()
        except RuntimeError as error:
            raise self._blamed(error) from error
        if not self.is_alive():
            raise explained(RankLost(_GONE), self._followers)
        return output

    def _blamed(self, error: Exception) -> Exception:
        """An error of a device, while one of the processes has gone, is of that: its GPU has left the others."""
        if isinstance(error, RankLost):
            return explained(error, self._followers)
        return error if self.is_alive() else explained(RankLost(f"{_GONE}: {error}"), self._followers)

    def is_alive(self) -> bool:
        return self._followers is None or self._followers.is_alive

    def close(self) -> None:
        if self._is_waited_for:
            with contextlib.suppress(RankLost):
                self._group.tell(END)
        try:
            self._runner.close()
        finally:  # also where a GPU has failed: the other processes must end
            self._group.close()
            if self._followers is not None:
                self._followers.close()


def explained(error: RankLost, followers: Followers | None) -> RankLost:
    """The same with what became of the process that does not answer, where that can be known."""
    reason = followers.lost(_EXPLAIN_S) if followers is not None else None
    return error if reason is None else RankLost(reason)
