"""Where layers keep a budget of tokens, long prompts are computed at once and later tokens one by one."""

import pytest

from engine.scheduling.budgeted_chunks import budgeted_chunk_end, longest_prompt


@pytest.mark.parametrize(
    ("start", "target", "num_prompt_tokens", "room", "end"),
    [
        pytest.param(0, 16, 16, 100, 16, id="a prompt that fits"),
        pytest.param(0, 16, 16, 5, 5, id="a prompt that fits, in chunks"),
        pytest.param(0, 30, 12, 100, 16, id="recomputed up to the budget"),
        pytest.param(16, 30, 12, 100, 17, id="and one by one beyond"),
        pytest.param(0, 17, 17, 100, 17, id="a long prompt at once"),
        pytest.param(0, 17, 17, 1, 17, id="also beyond the room of the step"),
        pytest.param(0, 30, 17, 100, 17, id="recomputed: its prompt at once"),
        pytest.param(17, 30, 17, 100, 18, id="and its output one by one"),
    ],
)
def test_where_chunks_end(start: int, target: int, num_prompt_tokens: int, room: int, end: int) -> None:
    assert budgeted_chunk_end(start, target, num_prompt_tokens, 16, room) == end


def test_the_longest_prompt_fits_into_a_step_or_into_the_smallest_budget() -> None:
    assert [longest_prompt(None, 8), longest_prompt(16, 8), longest_prompt(16, 64)] == [None, 16, 64]
