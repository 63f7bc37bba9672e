"""What every runner is: of a CPU, of a device, or of several processes. core.py says what its users rely on."""

from typing import Protocol

from engine.batch import StepOutput, StepPlan
from engine.config import ModelLimits
from engine.memory.spec import PoolPlan


class StepRunner(Protocol):
    @property
    def limits(self) -> ModelLimits: ...

    @property
    def pool_plan(self) -> PoolPlan: ...

    @property
    def mirror_plan(self) -> PoolPlan | None: ...

    @property
    def max_in_flight(self) -> int: ...

    def launch(self, plan: StepPlan) -> None: ...

    def collect(self) -> StepOutput: ...

    def run(self, plan: StepPlan) -> StepOutput:
        """Launch and collect at once."""
        ...

    def close(self) -> None: ...
