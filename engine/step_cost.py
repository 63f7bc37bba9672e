"""What steps cost a host of several models: seconds of the device, and of the thread that plans steps and reads their
tokens. Knows no models and no clock: the core of a model tells what has passed.
"""

from typing import NamedTuple

from engine.batch import StepOutput, StepPlan


class StepCost(NamedTuple):
    """The cost of one step."""

    num_sequences: int = 0
    num_more_tokens: int = 0  #: beyond one for each sequence: of prompts, and proposed ones
    device_s: float = 0.0  #: page moves included
    thread_s: float = 0.0  #: plans, tokens and texts, and the computing itself where the thread does it, as on CPU

    @property
    def seconds(self) -> float:
        """The time of the device, or of the thread where that is more: the two work at the same time."""
        return max(self.device_s, self.thread_s)


class CostMeter:
    """Owner of the cost of the step that was collected last."""

    def __init__(self) -> None:
        self.last = StepCost()
        self._thread_s = 0.0  # since the step that was collected before

    def note_thread(self, seconds: float) -> None:
        """The thread has worked so long on steps, without waiting for one."""
        self._thread_s += seconds

    def note_collected(self, plan: StepPlan, output: StepOutput, seconds: float) -> None:
        """A step has been collected; the thread has worked so long on its tokens."""
        num_sequences = len(plan.sequences)
        thread_s, self._thread_s = self._thread_s + seconds, 0.0
        num_more_tokens = plan.num_tokens - num_sequences
        self.last = StepCost(num_sequences, num_more_tokens, output.compute_s + output.move_s, thread_s)
