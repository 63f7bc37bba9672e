"""Stop strings, ends, seeds, checks of prompts, and merged deltas."""

import itertools
import os
import subprocess
import sys
from collections.abc import Iterable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.config import ModelLimits
from engine.errors import InvalidRequest
from engine.request import (
    FinishReason,
    Request,
    RequestDelta,
    Sequence,
    StopStrings,
    TokenLogprob,
    check_prompt,
    merge_deltas,
    request_seed,
    sample_seed,
)
from engine.sampling_params import SamplingParams


def shown(stops: tuple[str, ...], *pieces: str) -> tuple[str, str | None]:
    """Everything that is emitted, and the stop string that was found."""
    matcher = StopStrings(stops)
    text = "".join(matcher.push(piece) for piece in pieces)
    if matcher.found is None:
        text += matcher.flush()
    return text, matcher.found


def test_text_ends_before_the_stop_string() -> None:
    assert shown(("END",), "one END two") == ("one ", "END")


def test_a_stop_string_cut_by_pieces_is_found_and_no_part_of_it_emitted() -> None:
    matcher = StopStrings(("END",))
    assert matcher.push("one E") == "one "
    assert matcher.push("N") == ""
    assert matcher.push("D two") == ""
    assert matcher.found == "END"


def test_held_back_text_comes_out_when_it_became_no_stop_string() -> None:
    matcher = StopStrings(("END",))
    assert matcher.push("E") == ""
    assert matcher.push("NE") == "EN"
    assert matcher.push("x") == "Ex"


def test_held_back_text_comes_out_at_the_end() -> None:
    assert shown(("END",), "all EN") == ("all EN", None)


def test_overlapping_beginnings_are_followed() -> None:
    assert shown(("aab",), "a", "a", "a", "b") == ("a", "aab")


def test_the_stop_string_that_ends_first_wins() -> None:
    assert shown(("abcd", "bc"), "xabcd") == ("xa", "bc")


def test_of_two_that_end_together_the_longer_is_cut_off() -> None:
    assert shown(("c", "bc"), "abc") == ("a", "bc")


ON_A_BUSY_MACHINE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@ON_A_BUSY_MACHINE
@given(
    text=st.text("ab", max_size=20),
    stops=st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3),
    cuts=st.lists(st.integers(0, 20)),
)
def test_the_result_does_not_depend_on_where_the_text_was_cut(text: str, stops: list[str], cuts: list[int]) -> None:
    edges = [0, *sorted(cut for cut in cuts if cut <= len(text)), len(text)]
    pieces = [text[start:end] for start, end in itertools.pairwise(edges)]
    assert shown(tuple(stops), *pieces) == shown(tuple(stops), text)


@ON_A_BUSY_MACHINE
@given(text=st.text("ab", max_size=20), stops=st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3))
def test_what_is_emitted_is_the_text_before_the_first_stop_string(text: str, stops: list[str]) -> None:
    ends = [text.index(stop) + len(stop) for stop in stops if stop in text]
    visible, found = shown(tuple(stops), text)
    if not ends:
        assert (visible, found) == (text, None)
    else:
        assert found is not None
        assert found == max((stop for stop in stops if text[: min(ends)].endswith(stop)), key=len)
        assert visible + found == text[: min(ends)]


def request_of(
    params: SamplingParams, output: Iterable[int], stop_ids: frozenset[int] = frozenset()
) -> tuple[Request, Sequence]:
    sequence = Sequence(0, 0, 0, [1, 2, *output], num_prompt_tokens=2)
    return Request("r", 0, (1, 2), params, [sequence], stop_ids=stop_ids, max_length=10), sequence


@pytest.mark.parametrize(
    ("params", "output", "reason"),
    [
        (SamplingParams(max_tokens=3), [5, 6], None),
        (SamplingParams(max_tokens=2), [5, 6], "length"),
        (SamplingParams(max_tokens=9), [5, 9], "stop"),
        (SamplingParams(max_tokens=2), [5, 9], "stop"),
        (SamplingParams(max_tokens=9, min_tokens=2), [5, 9], None),
        (SamplingParams(max_tokens=9, min_tokens=1), [5, 9], "stop"),
        (SamplingParams(max_tokens=99), [5] * 8, "length"),
    ],
)
def test_a_sequence_ends_by_stop_token_by_max_tokens_or_by_the_context(
    params: SamplingParams, output: list[int], reason: FinishReason | None
) -> None:
    request, sequence = request_of(params, output, stop_ids=frozenset({9}))
    assert request.finish_reason_after(sequence) == reason


def test_the_first_sample_has_the_seed_of_the_request_and_the_others_their_own() -> None:
    seeds = [sample_seed(2**64 - 1, index) for index in range(16)]
    assert seeds[0] == 2**64 - 1
    assert len(set(seeds)) == 16
    assert all(0 <= seed < 2**64 for seed in seeds)


def test_a_request_without_a_seed_gets_one_from_its_id_so_that_a_replica_draws_the_same() -> None:
    params = SamplingParams()
    code = "from engine.config import *; from engine.request import *; print(request_seed(SamplingParams(), 0, 'a'))"
    replica = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": "1"}, capture_output=True, check=True
    )
    assert request_seed(params, 0, "a") == int(replica.stdout)
    assert len({request_seed(params, 0, "a"), request_seed(params, 0, "b"), request_seed(params, 1, "a")}) == 3


def test_a_negative_seed_is_taken_as_64_bits() -> None:
    assert request_seed(SamplingParams(seed=-1), 0, "a") == 2**64 - 1


@pytest.mark.parametrize("prompt", [(), (-1,), (10,)])
def test_prompts_that_would_index_past_the_embedding_are_refused(prompt: tuple[int, ...]) -> None:
    with pytest.raises(InvalidRequest):
        check_prompt(prompt, ModelLimits(max_model_len=8, vocab_size=10))


def delta(
    text: str,
    token_ids: tuple[int, ...],
    *,
    logprobs: tuple[TokenLogprob, ...] | None = None,
    reason: FinishReason | None = None,
    num_output: int = 0,
) -> RequestDelta:
    return RequestDelta("r", 0, text, token_ids, logprobs, reason, 2, 0, num_output)


def test_merged_deltas_say_the_same_as_the_parts() -> None:
    one, two = TokenLogprob(5, -1.0), TokenLogprob(6, -2.0)
    merged = merge_deltas(
        [
            delta("a", (5,), logprobs=(one,), num_output=1),
            delta("b", (6,), logprobs=(two,), reason="stop", num_output=2),
        ]
    )
    assert merged == delta("ab", (5, 6), logprobs=(one, two), reason="stop", num_output=2)
