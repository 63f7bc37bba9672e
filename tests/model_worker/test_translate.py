import pytest

from engine.errors import CheckpointError, ContextTooLong, EngineDead, EngineError, InvalidRequest, QueueFull
from engine.sampling_params import SamplingParams
from model_worker.errors import BadCheckpoint
from model_worker.translate import SamplingDefaults, as_api_error, sampling_params
from wire.chat import SamplingOptions
from wire.errors import ApiError, ErrorCode


def translate(
    options: SamplingOptions, defaults: SamplingDefaults | None = None, *, request_id: str = "r", room: int = 100
) -> SamplingParams:
    return sampling_params(
        options, defaults or SamplingDefaults(), request_id=request_id, room=room, default_max_tokens=50
    )


def test_what_is_absent_comes_from_the_model() -> None:
    defaults = SamplingDefaults.from_generation_config({"temperature": 0.6, "top_p": 0.9, "top_k": 20, "eos": 1})
    params = translate(SamplingOptions(top_p=0.5), defaults)
    assert (params.temperature, params.top_p, params.top_k, params.min_p) == (0.6, 0.5, 20, 0.0)


def test_what_the_model_does_not_say_has_a_default() -> None:
    assert translate(SamplingOptions()).temperature == 0.7


def test_model_that_does_not_sample_is_greedy_by_default() -> None:
    defaults = SamplingDefaults.from_generation_config({"do_sample": False, "temperature": 1.0})
    assert translate(SamplingOptions(), defaults).is_greedy


def test_zero_is_a_value_and_not_absence() -> None:
    params = translate(SamplingOptions(temperature=0, top_k=0), SamplingDefaults(temperature=0.9, top_k=40))
    assert (params.temperature, params.top_k) == (0.0, 0)


def test_penalties_are_passed_on_and_absent_ones_change_nothing() -> None:
    given = SamplingOptions(repetition_penalty=1.2, presence_penalty=-0.5, frequency_penalty=0.25, logit_bias={7: -100})
    params = translate(given)
    assert (params.repetition_penalty, params.presence_penalty, params.frequency_penalty) == (1.2, -0.5, 0.25)
    assert params.logit_bias == {7: -100.0}
    assert not translate(SamplingOptions()).needs_history
    defaults = SamplingDefaults.from_generation_config({"repetition_penalty": 1.05})
    assert translate(SamplingOptions(), defaults).repetition_penalty == 1.05
    assert not translate(SamplingOptions(repetition_penalty=1.0), defaults).needs_history


@pytest.mark.parametrize(("room", "wanted", "given"), [(100, None, 50), (30, None, 30), (0, None, 1), (30, 99, 99)])
def test_token_limit_is_what_fits_unless_the_request_names_one(room: int, wanted: int | None, given: int) -> None:
    assert translate(SamplingOptions(max_tokens=wanted), room=room).max_tokens == given


def test_seed_depends_on_the_request_id_alone() -> None:
    first, again, other = (translate(SamplingOptions(), request_id=name).seed for name in ("a", "a", "b"))
    assert first == again != other
    assert translate(SamplingOptions(seed=5), request_id="a").seed == 5


def test_contradiction_is_refused_with_its_parameter() -> None:
    with pytest.raises(ApiError) as refusal:
        translate(SamplingOptions(min_tokens=10, max_tokens=5))
    assert (refusal.value.code, refusal.value.param) == (ErrorCode.INVALID_REQUEST, "min_tokens")


@pytest.mark.parametrize(
    "config",
    [
        {"temperature": -1},
        {"temperature": True},
        {"temperature": float("inf")},
        {"top_p": 7},
        {"top_p": []},
        {"top_k": "many"},
        {"top_k": 0.5},
        {"top_k": float("inf")},
        {"top_k": 10**400},
        {"repetition_penalty": float("nan")},
    ],
)
def test_generation_config_that_no_request_could_use_is_a_bad_checkpoint(config: dict[str, object]) -> None:
    with pytest.raises(BadCheckpoint, match="generation_config"):
        SamplingDefaults.from_generation_config(config)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ContextTooLong("too long", num_prompt_tokens=5, max_tokens=5), ErrorCode.CONTEXT_LENGTH_EXCEEDED),
        (InvalidRequest("no", param="stop"), ErrorCode.INVALID_REQUEST),
        (QueueFull("full", retry_after_s=7.0), ErrorCode.QUEUE_FULL),
        (EngineDead("KeyError: secret"), ErrorCode.WORKER_FAILED),
        (CheckpointError("path"), ErrorCode.INTERNAL_ERROR),
    ],
)
def test_engine_errors_become_wire_errors(error: EngineError, code: ErrorCode) -> None:
    translated = as_api_error(error)
    assert translated.code is code
    assert "secret" not in translated.message
    assert translated.param == getattr(error, "param", None)


def test_full_queue_says_when_to_come_back() -> None:
    assert as_api_error(QueueFull("full", retry_after_s=7.0)).headers == {"Retry-After": "7"}
