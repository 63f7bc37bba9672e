"""What every runner is: the eager one, the one of devices, and the leader of several processes."""

from typing import Protocol

from engine.batch import StepOutput, StepPlan
from engine.config import ModelLimits
from engine.memory.spec import PoolPlan


class Runner(Protocol):
    """What executes step plans, in the order in which they are launched. It may reuse its buffers between calls; an
    output must not refer to them."""

    @property
    def limits(self) -> ModelLimits: ...

    @property
    def pool_plan(self) -> PoolPlan: ...

    @property
    def mirror_plan(self) -> PoolPlan | None:
        """Layout of the host memory for swapped-out pages; None: there is none."""
        ...

    @property
    def max_in_flight(self) -> int:
        """How many steps may be launched and not yet collected. 1: no step overlaps with planning the next one."""
        ...

    def launch(self, plan: StepPlan) -> None:
        """Start a step. It may compute until `collect` returns its output: till then the pages that it touches hold
        what they held, except what steps launched before it write."""
        ...

    def collect(self) -> StepOutput:
        """Wait for the oldest step that was launched and not yet collected."""
        ...

    def close(self) -> None:
        """Give the memory back. Steps in flight are lost."""
        ...

    def run(self, plan: StepPlan) -> StepOutput:
        """Launch and collect at once."""
        ...
