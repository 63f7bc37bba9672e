"""best_of, priorities, bad words and the library's beam search."""

from dataclasses import replace

import pytest

from engine.errors import InvalidRequest
from engine.llm_beams import BeamSearchParams
from engine.sampling_params import SamplingParams
from tests.engine.small_engines import GREEDY, PAGE_BYTES, PROMPTS, SAMPLED, TinyModels, load


def test_the_likeliest_of_several_samples_are_the_answers(tiny_model: TinyModels) -> None:
    llm = load(tiny_model("llama").folder)
    (several,) = llm.generate([PROMPTS[3]], replace(SAMPLED, n=6, logprobs=0))
    ranked = sorted(several.outputs, key=lambda output: output.cumulative_logprob or 0.0, reverse=True)
    (best,) = llm.generate([PROMPTS[3]], replace(SAMPLED, n=2, best_of=6))
    assert [output.token_ids for output in best.outputs] == [output.token_ids for output in ranked[:2]]
    assert [output.text for output in best.outputs] == [output.text for output in ranked[:2]]
    assert [output.index for output in best.outputs] == [0, 1]
    assert [output.cumulative_logprob for output in best.outputs] == pytest.approx(
        [output.cumulative_logprob for output in ranked[:2]]
    )
    assert best.outputs[0].logprobs is None


def test_answers_of_best_of_come_together_at_the_end(tiny_model: TinyModels) -> None:
    core = load(tiny_model("llama").folder)._core
    core.add_request("best", PROMPTS[1], replace(SAMPLED, n=1, best_of=3))
    steps = [deltas for deltas in iter(lambda: core.step() if not core.is_idle else None, None) if deltas]
    assert [[delta.index for delta in deltas] for deltas in steps] == [[0]]
    core.add_request("aborted", PROMPTS[1], replace(SAMPLED, n=2, best_of=3))
    core.step()
    core.abort("aborted")
    assert [(delta.index, delta.finish_reason) for delta in core.step()] == [(0, "abort"), (1, "abort")]


def test_lower_priorities_start_first_and_equal_ones_in_order_of_arrival(tiny_model: TinyModels) -> None:
    core = load(tiny_model("llama").folder, max_running=1)._core
    for request_id, priority in (("a", 5), ("b", 0), ("c", -1), ("d", 5), ("e", 0)):
        core.add_request(request_id, [1, 2], replace(GREEDY, max_tokens=2, priority=priority))
    ended: list[str] = []
    while not core.is_idle:
        ended += [delta.request_id for delta in core.step() if delta.finish_reason is not None]
    assert ended == ["c", "b", "e", "a", "d"]


def test_the_highest_priority_value_is_preempted_first(tiny_model: TinyModels) -> None:
    llm = load(tiny_model("llama").folder, kv_cache_bytes=24 * PAGE_BYTES)
    core = llm._core
    for index, priority in enumerate((3, 0, 1, 0)):
        core.add_request(str(index), [index, 7, 9], replace(GREEDY, max_tokens=40, priority=priority))
    requests = {request.request_id: request for request in core._requests.all()}
    while not core.is_idle:
        core.step()
    assert core.stats().preemptions_total > 0
    assert requests["0"].num_preemptions > 0
    assert requests["1"].num_preemptions == 0


@pytest.mark.parametrize("overlap", [False, True])
def test_bad_words_never_occur_in_the_output(tiny_model: TinyModels, overlap: bool) -> None:
    llm = load(tiny_model("llama").folder, overlap=overlap)
    (free,) = llm.generate([PROMPTS[2]], GREEDY)
    tokens = tuple(free.outputs[0].token_ids)
    words = (tokens[3:4], tokens[5:8])
    (banned,) = llm.generate([PROMPTS[2]], replace(GREEDY, bad_words_ids=words))
    output = tuple(banned.outputs[0].token_ids)
    assert output[:3] == tokens[:3]
    for word in words:
        assert all(output[at : at + len(word)] != word for at in range(len(output)))
    (pair,) = llm.generate([PROMPTS[2]], replace(GREEDY, bad_words_ids=(tokens[:2],)))
    assert pair.outputs[0].token_ids[0] == tokens[0]
    assert pair.outputs[0].token_ids[1] != tokens[1]


def test_bad_words_are_encoded_by_the_library(tiny_model: TinyModels) -> None:
    llm = load(tiny_model("llama").folder)
    params = replace(SAMPLED, bad_words=("e", "th"), max_tokens=60, temperature=1.5)
    for result in llm.generate(PROMPTS[:4], params):
        assert "e" not in result.outputs[0].text
        assert "th" not in result.outputs[0].text
    with pytest.raises(InvalidRequest, match="bad_words"):
        llm._core.add_request("words", [1], params)


def test_the_library_searches_with_the_names_of_vllm(tiny_model: TinyModels) -> None:
    llm = load(tiny_model("llama").folder)
    (found,) = llm.beam_search([PROMPTS[3]], BeamSearchParams(beam_width=3, max_tokens=6, ignore_eos=True, logprobs=1))
    assert len(found.sequences) == 3
    assert found.sequences[0].cum_logprob >= found.sequences[-1].cum_logprob
    for sequence in found.sequences:
        assert sequence.tokens[: len(PROMPTS[3])] == PROMPTS[3]
        assert len(sequence.tokens) == len(PROMPTS[3]) + 6
        assert sequence.text == llm.tokenizer.decode(sequence.tokens)
        assert sequence.logprobs is not None
        assert len(sequence.logprobs) == 6


def test_samples_and_beams_save_the_pages_that_they_share(tiny_model: TinyModels) -> None:
    llm = load(tiny_model("llama").folder, max_running=8)
    core, shares = llm._core, {}
    long_prompt = PROMPTS[4]
    search = BeamSearchParams(8, 16, ignore_eos=True).sampling_params
    for name, params in (("samples", replace(SAMPLED, n=8)), ("beams", search)):
        core.add_request(name, long_prompt, params)
        parts: list[float] = []
        while not core.is_idle:
            core.step()
            stats = core.stats()
            parts.append(stats.kv_bytes_saved / max(1, stats.kv_bytes_saved + stats.kv_bytes_used))
        shares[name] = sum(parts) / len(parts)
    assert shares["beams"] > shares["samples"] > 0.4
    assert core.stats().kv_bytes_saved == 0


def test_one_stop_string_is_one_stop_string() -> None:
    assert SamplingParams(stop="ab").stop == ("ab",)  # type: ignore[arg-type]


@pytest.mark.parametrize("temperature", [1e-46, 1e-300, 1e-6])
def test_tiny_temperatures_are_greedy(temperature: float) -> None:
    assert SamplingParams(temperature=temperature).is_greedy


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"typical_p": 0.0}, "typical_p"),
        ({"best_of": 1, "n": 2}, "best_of"),
        ({"allowed_token_ids": ()}, "allowed_token_ids"),
        ({"bad_words_ids": ((),)}, "bad_words_ids"),
        ({"priority": 2**40}, "priority"),
    ],
)
def test_values_that_are_not_allowed_are_refused_by_name(changes: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        replace(SamplingParams(), **changes)  # type: ignore[arg-type]
    assert caught.value.param == field
