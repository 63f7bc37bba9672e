"""What a step's failure is blamed on where several processes share a model."""

import pytest
import torch
from torch.distributed import HashStore  # type: ignore[attr-defined]  # torch does not list it

from engine.batch import StepOutput, StepPlan, TokenMasks
from engine.errors import RankLost
from engine.parallel.collectives import TorchGroup
from engine.parallel.group import Place
from engine.runner.leader import Leader
from engine.runner.runner import run_step
from tests.engine.fakes import pool_plan

PLAN = StepPlan(0, (), (), ())


class FailingRunner:
    """A device that reports its error where a caller waits for it, as CUDA does, or when something is launched."""

    max_in_flight = 2
    mirror_plan = None
    pool_plan = pool_plan(1)

    def __init__(self, *, at_launch: bool) -> None:
        self._at_launch = at_launch

    def launch(self, plan: StepPlan) -> None:
        if self._at_launch:
            raise RuntimeError("CUDA error: unspecified launch failure")

    def supply_masks(self, masks: TokenMasks) -> None:
        self.launch(StepPlan(0, (), (), ()))

    def collect(self) -> StepOutput:
        raise RuntimeError("CUDA error: unspecified launch failure")

    def close(self) -> None:
        pass


class Ranks:
    def __init__(self, *, is_alive: bool) -> None:
        self.is_alive = is_alive

    def lost(self, timeout_s: float) -> str | None:
        return None if self.is_alive else "rank 1 of tensor parallelism was killed by SIGKILL"

    def close(self) -> None:
        pass


@pytest.mark.parametrize("at_launch", [True, False])
@pytest.mark.parametrize("is_alive", [True, False])
def test_an_error_of_the_device_is_of_the_process_that_has_gone_if_one_has(at_launch: bool, is_alive: bool) -> None:
    group = TorchGroup(HashStore(), Place(0, 1), torch.device("cpu"), is_local=True)
    leader = Leader(FailingRunner(at_launch=at_launch), group, Ranks(is_alive=is_alive))  # type: ignore[arg-type]
    expected = (RuntimeError, "CUDA error") if is_alive else (RankLost, "rank 1 .* was killed")
    with pytest.raises(expected[0], match=expected[1]):
        run_step(leader, PLAN)
    leader.close()
