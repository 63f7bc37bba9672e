"""The protocol that every runner implements: EagerRunner, DeviceRunner, and the Leader of several processes.

The engine core launches a step and collects it later. All methods are called by the engine thread.
"""

from typing import Protocol

from engine.batch import StepOutput, StepPlan, TokenMasks
from engine.config import ModelLimits
from engine.memory.spec import PoolPlan


class Runner(Protocol):
    """Executes step plans in the order in which they are launched. A runner may reuse its buffers between calls, so an
    output must not refer to them.

    Runners of several models over one pool are on one device and used by one thread: page moves are done when `launch`
    returns, and page copies come before everything that any of them launches later.
    """

    @property
    def limits(self) -> ModelLimits:
        """Context length, vocabulary size and end-of-sequence tokens of the model."""
        ...

    @property
    def pool_plan(self) -> PoolPlan:
        """How the page pool is divided into pages of each layer type."""
        ...

    @property
    def mirror_plan(self) -> PoolPlan | None:
        """Layout of the host memory for swapped-out pages; None: pages are not swapped."""
        ...

    @property
    def max_in_flight(self) -> int:
        """How many steps may be launched and not yet collected. 1: steps do not overlap with planning."""
        ...

    def launch(self, plan: StepPlan) -> None:
        """Start a step. It may compute until `collect` returns its output. Until then the caller must keep the pages
        that the step touches: only steps launched before it may write to them."""
        ...

    def supply_masks(self, masks: TokenMasks) -> None:
        """Which tokens the step launched last may sample. Called once after the launch of a plan that needs masks, and
        of no other, before the next launch and before the step is collected. Until then the step samples nothing."""
        ...

    def collect(self) -> StepOutput:
        """Wait for the oldest step in flight and return its output."""
        ...

    def close(self) -> None:
        """Free the memory. Steps in flight are lost; the runner cannot be used afterwards."""
        ...


def run_step(runner: Runner, plan: StepPlan) -> StepOutput:
    """Launch a step and wait for its output: for warm-up, tests and benchmarks. No other step may be in flight."""
    runner.launch(plan)
    return runner.collect()
