"""What each hop adds to the first token: intervals of the median, and times from the access log."""

import asyncio
import json
import math
import random
from pathlib import Path

from benchmarks.serving.hops import AnswerLog, median_interval


def test_the_interval_holds_the_true_median_as_often_as_it_says() -> None:
    draw = random.Random(0)
    held = 0
    for _ in range(2000):
        low, high = median_interval(sorted(draw.expovariate(1.0) for _ in range(80)))
        held += low < math.log(2) < high
    assert 0.94 < held / 2000 < 0.98


def test_few_values_give_all_that_they_have() -> None:
    assert median_interval([1.0, 2.0, 3.0]) == (1.0, 3.0)
    assert median_interval([5.0]) == (5.0, 5.0)


async def test_the_log_gives_the_time_of_the_next_answer_even_while_its_line_is_being_written(tmp_path: Path) -> None:
    def ended(ttft_s: float) -> str:
        return json.dumps({"event": "answer_ended", "ttft_s": ttft_s}) + "\n"

    path = tmp_path / "worker.log"
    path.write_text(ended(9.0))
    with path.open() as lines, path.open("a") as file:
        log = AnswerLog(lines)
        waiting = asyncio.create_task(log.first_token_ms())
        for part in ('{"event": "draining"}\n', ended(0.25)[:9], ended(0.25)[9:] + ended(7.0)):
            file.write(part)
            file.flush()
            await asyncio.sleep(0.01)
        assert await waiting == 250.0
        log.skip()
        file.write(ended(0.5))
        file.flush()
        assert await log.first_token_ms() == 500.0
