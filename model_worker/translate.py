"""Converts between wire and engine: sampling options to SamplingParams, engine errors to ApiError. Imports no torch."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from engine.errors import ContextTooLong, EngineDead, EngineError, InvalidRequest, NotFinite, QueueFull
from engine.json_files import quoted
from engine.sampling_params import BeamSearch, Constraint, SamplingParams, ThoughtTags
from model_worker.errors import BadCheckpoint
from wire.chat import SamplingOptions
from wire.errors import ApiError, ErrorCode

Number = TypeVar("Number", int, float)
_MOST = 2**31  #: numbers of generation_config.json are smaller


@dataclass(frozen=True)
class SamplingDefaults:
    """Values of parameters that a request omits: those of the model's generation_config.json, else these."""

    temperature: float = 0.7
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0

    @classmethod
    def from_generation_config(cls, config: Mapping[str, Any]) -> "SamplingDefaults":
        """Raises BadCheckpoint for values that a request would be refused for."""
        names = [field.name for field in fields(cls)]
        given: dict[str, Any] = {name: config[name] for name in names if config.get(name) is not None}
        for name, value in given.items():
            kinds = (int,) if name == "top_k" else (int, float)
            if isinstance(value, bool) or not isinstance(value, kinds) or not abs(value) < _MOST:
                raise BadCheckpoint(f"generation_config.json: {name} cannot be {quoted(value)}")
        if config.get("do_sample") is False:
            given["temperature"] = 0.0
        try:
            SamplingParams(**given)
        except (InvalidRequest, TypeError) as error:
            raise BadCheckpoint(f"generation_config.json: {error}") from None
        return cls(**given)


def sampling_params(
    options: SamplingOptions,
    defaults: SamplingDefaults,
    *,
    request_id: str,
    room: int,
    default_max_tokens: int,
    thoughts: ThoughtTags | None = None,
) -> SamplingParams:
    """The engine's parameters of one request. `room`: tokens that fit after the prompt; `thoughts`: tags that separate
    them from the text. Raises ApiError.

    A request without a seed gets one from its id alone: a replica with other settings that continues the answer then
    draws the same numbers.
    """
    max_tokens = options.max_tokens if options.max_tokens is not None else max(1, min(room, default_max_tokens))
    if options.is_beam_search:  # nothing is drawn: only what the request says itself would be refused
        defaults = replace(defaults, temperature=0.0, top_k=0, top_p=1.0, min_p=0.0)
    try:
        return SamplingParams(
            max_tokens=max_tokens,
            temperature=_given(options.temperature, defaults.temperature),
            n=options.n or 1,
            best_of=options.best_of,
            beam=_beam(options),
            priority=options.priority or 0,
            typical_p=_given(options.typical_p, 1.0),
            allowed_token_ids=options.allowed_token_ids,
            bad_words=options.bad_words or (),
            top_k=max(0, _given(options.top_k, defaults.top_k)),
            top_p=_given(options.top_p, defaults.top_p),
            min_p=_given(options.min_p, defaults.min_p),
            repetition_penalty=_given(options.repetition_penalty, defaults.repetition_penalty),
            presence_penalty=options.presence_penalty or 0.0,
            frequency_penalty=options.frequency_penalty or 0.0,
            logit_bias=options.logit_bias or {},
            seed=options.seed if options.seed is not None else _seed_of(request_id),
            stop=options.stop or (),
            stop_token_ids=options.stop_token_ids or (),
            ignore_eos=bool(options.ignore_eos),
            min_tokens=options.min_tokens or 0,
            logprobs=options.logprobs,
            prompt_logprobs=options.prompt_logprobs,
            include_stop_str_in_output=bool(options.include_stop_str_in_output),
            skip_special_tokens=options.skip_special_tokens is not False,
            thoughts=thoughts,
            constraint=_constraint(options),
            # Without tags there are no thoughts, so that any budget is kept.
            thinking_budget=options.thinking_budget if thoughts is not None else None,
        )
    except InvalidRequest as error:
        raise as_api_error(error) from None


def as_api_error(error: EngineError) -> ApiError:
    """The ApiError for an engine's error. Only errors about the request keep their message."""
    match error:
        case ContextTooLong():
            return ApiError(ErrorCode.CONTEXT_LENGTH_EXCEEDED, str(error), param=error.param)
        case InvalidRequest():
            return ApiError(ErrorCode.INVALID_REQUEST, str(error), param=error.param)
        case QueueFull():
            return ApiError(ErrorCode.QUEUE_FULL, str(error), retry_after_s=error.retry_after_s)
        case NotFinite():
            return ApiError(ErrorCode.INTERNAL_ERROR, f"The answer cannot go on: {error}.")
        case EngineDead():
            return ApiError(ErrorCode.WORKER_FAILED, "The engine of this worker has stopped.")
        case _:
            return ApiError(ErrorCode.INTERNAL_ERROR, "The engine failed.")


def _beam(options: SamplingOptions) -> BeamSearch | None:
    if not options.is_beam_search:
        return None
    width = options.beam_width or options.n or 1
    return BeamSearch(width, _given(options.length_penalty, 1.0), options.early_stopping or False)


def _given(value: Number | None, default: Number) -> Number:
    return default if value is None else value


def _constraint(options: SamplingOptions) -> Constraint | None:
    return None if options.constraint is None else Constraint(options.constraint.kind, options.constraint.value)


def _seed_of(request_id: str) -> int:
    return int.from_bytes(hashlib.blake2b(request_id.encode(), digest_size=8).digest(), "little")
