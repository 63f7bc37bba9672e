"""The request that another server gets for an answer: the fields of the OpenAI protocol, and those that the operator
adds or leaves out."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from model_worker.engine_protocol import PromptSource
from model_worker.remote.tools import request_messages, tool_fields
from wire.chat import SamplingOptions, TemplateKwargs
from wire.constraints import OutputConstraint
from wire.errors import ApiError, ErrorCode
from wire.hosted_models import HostedModel

#: Parameters that every OpenAI-compatible server understands. Any other is refused rather than ignored.
_PORTABLE = frozenset(
    {
        "max_tokens",
        "temperature",
        "top_p",
        "presence_penalty",
        "frequency_penalty",
        "logit_bias",
        "seed",
        "stop",
        "constraint",
    }
)
#: Values of other parameters that ask for nothing.
_MEANS_NOTHING: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "top_k": (-1,),
    "skip_special_tokens": (True,),
}


def url_of(model: HostedModel, path: str) -> str:
    """The URL of a path of the other server's API; a query of its base URL stays."""
    parts = urlsplit(model.url)
    return urlunsplit(parts._replace(path=parts.path.rstrip("/") + path))


def request_of(
    model: HostedModel,
    source: PromptSource,
    sampling: SamplingOptions,
    *,
    default_max_tokens: int,
    template_kwargs: TemplateKwargs,
) -> tuple[str, dict[str, Any]]:
    """Path and body of the request. Raises ApiError UNSUPPORTED_PARAMETER."""
    given = sampling.model_dump(mode="json", exclude_none=True)
    for name, value in sorted(given.items()):
        if name not in _PORTABLE and value and value not in _MEANS_NOTHING.get(name, ()):
            raise _unsupported(name)
    body: dict[str, Any] = {name: value for name, value in given.items() if name in _PORTABLE}
    limit = body.pop("max_tokens", default_max_tokens)
    if model.max_tokens != "none":
        body[model.max_tokens] = limit
    body.pop("constraint", None)
    if sampling.constraint is not None:
        body["response_format"] = _response_format(sampling.constraint)
    body |= {"model": model.model, "stream": True}
    if model.stream_usage:
        body["stream_options"] = {"include_usage": True}
    if isinstance(source, tuple):
        raise AssertionError("tokenise refuses token ids")
    if isinstance(source, str):
        return "/completions", _with_extra(body | {"prompt": source}, model)
    body |= {"messages": request_messages(source.messages), **tool_fields(source)}
    if kwargs := template_kwargs | source.chat_template_kwargs:
        body["chat_template_kwargs"] = kwargs
    return "/chat/completions", _with_extra(body, model)


def _with_extra(body: dict[str, Any], model: HostedModel) -> dict[str, Any]:
    return {name: value for name, value in (body | model.body).items() if name not in model.body or value is not None}


def _response_format(constraint: OutputConstraint) -> dict[str, Any]:
    match constraint.kind:
        case "json_object":
            return {"type": "json_object"}
        case "json_schema":
            schema = {"name": "answer", "schema": json.loads(constraint.value)}
            return {"type": "json_schema", "json_schema": schema}
        case _:
            raise _unsupported(constraint.param)


def _unsupported(name: str) -> ApiError:
    return ApiError(ErrorCode.UNSUPPORTED_PARAMETER, f"This model does not take {name!r}.", param=name)
