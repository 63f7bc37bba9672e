"""The end of an answer with one or several samples."""

from engine.request import RequestDelta
from wire.answers import Finished
from wire.chat import FinishReason, Usage


class SampleUsage:
    """Counts the tokens of the samples as they end."""

    def __init__(self, num_samples: int) -> None:
        self._num_open = num_samples
        self._finish_reason: FinishReason = "stop"
        self._num_output = 0
        self._num_thoughts = 0

    def take(self, last: RequestDelta) -> Finished | None:
        """The last delta of a sample. Returns the end of the answer if it was that of the last sample."""
        assert last.finish_reason is not None
        if last.index == 0 or last.finish_reason == "abort":
            self._finish_reason = last.finish_reason
        self._num_output += last.num_output_tokens
        self._num_thoughts += last.num_thought_tokens
        self._num_open -= 1
        if self._num_open:
            return None
        usage = Usage.counted(
            last.num_prompt_tokens, self._num_output, last.num_cached_tokens, num_thoughts=self._num_thoughts
        )
        return Finished(self._finish_reason, usage)
