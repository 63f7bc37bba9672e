"""Request fields of the OpenAI API and of vLLM that Agon knows and does not serve: accepted without effect where they
cannot change the answer, refused by name where they can. Served fields are those of the request models.

docs/api-fields.md is generated from these tables, and a test sends every field.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SendValue = Any  #: any JSON value


@dataclass(frozen=True, slots=True)
class Accepted:
    """A field that cannot change the answer. Any value is taken. `example`: what clients send."""

    why: str
    example: SendValue = "x"


@dataclass(frozen=True, slots=True)
class Refused:
    """A field that would change the answer. `neutral`: values that ask for nothing and are taken; null and empty ones
    always are. `example`: a value that is refused."""

    why: str
    neutral: tuple[SendValue, ...] = ()
    example: SendValue = "x"


Known = Accepted | Refused

_BLANKS = "blanks in JSON are bounded for all"
_ROUTING = "models are chosen by `model` alone"

#: Fields of both kinds of completions.
COMMON: Mapping[str, Known] = {
    "user": Accepted("names the end user"),
    "metadata": Accepted("labels of the request, which is not kept", {"run": "7"}),
    "store": Accepted("nothing is kept", True),
    "service_tier": Accepted("there is one tier", "auto"),
    "safety_identifier": Accepted("names the end user"),
    "prompt_cache_key": Accepted("prefixes are found by their tokens"),
    "prompt_cache_retention": Accepted("prefixes are kept while there is room", "24h"),
    "prompt_cache_options": Accepted("prefixes are found by their tokens", {"mode": "implicit"}),
    "request_id": Accepted("the header X-Request-Id names a request"),
    "cache_prompt": Accepted("prefixes are always kept (llama.cpp)", True),
    "mm_processor_kwargs": Accepted("prompts have no media", {"num_crops": 4}),
    "media_io_kwargs": Accepted("prompts have no media", {"image": {}}),
    "spaces_between_special_tokens": Refused("texts are joined as they are", (True,), False),
    "logits_processors": Refused("no code of a request is run", example=["f"]),
    "kv_transfer_params": Refused("keys and values stay in the worker", example={"do_remote_decode": True}),
    "vllm_xargs": Refused("its fields are those of vLLM's plugins", example={"a": 1}),
    "repetition_detection": Refused("not served", example={"max_pattern_size": 3}),
    "logprob_token_ids": Refused("logprobs are those of the likeliest tokens", example=[1]),
    "ec_transfer_params": Refused("prompts have no media", example={"a": 1}),
    "guided_decoding_backend": Accepted("there is one", "auto"),
    "guided_whitespace_pattern": Refused(_BLANKS, example=" "),
    "models": Refused(_ROUTING, example=["a"]),
    "provider": Refused(_ROUTING, example={"only": ["a"]}),
    "mirostat": Refused("not served", (0,), 2),
    "prompt_logprobs": Refused("echo with logprobs gives them", example=1),
    "structural_tag": Refused("use structured_outputs.grammar", example="{}"),
}

#: Fields of structured_outputs.
STRUCTURED_OUTPUTS: Mapping[str, Known] = {
    "structural_tag": Refused("use grammar", example="{}"),
    "disable_fallback": Accepted("there is one backend", True),
    "disable_any_whitespace": Refused(_BLANKS, (False,), True),
    "disable_additional_properties": Refused("write additionalProperties into the schema", (False,), True),
    "whitespace_pattern": Refused(_BLANKS, example=" "),
}

CHAT: Mapping[str, Known] = {
    **COMMON,
    "prediction": Accepted("a hint for speed", {"type": "content", "content": "a"}),
    "include_reasoning": Refused("thoughts are a field of their own", (True,), False),
    "verbosity": Refused("models have no such setting", ("medium",), "low"),
    "modalities": Refused("answers are text", (["text"],), ["text", "audio"]),
    "audio": Refused("answers are text", example={"voice": "alloy", "format": "wav"}),
    "web_search_options": Refused("nothing is searched", example={"search_context_size": "low"}),
    "moderation": Refused("nothing is moderated", example={"model": "omni"}),
    "functions": Refused("deprecated: use tools", example=[{"name": "f"}]),
    "function_call": Refused("deprecated: use tool_choice", ("none", "auto"), {"name": "f"}),
    "echo": Refused("only in /v1/completions", (False,), True),
    "documents": Refused("put them into a message", example=[{"text": "a"}]),
    "chat_template": Refused("templates are code: only the model's own is run", example="{{ messages }}"),
    "plugins": Refused("nothing runs beside the model", example=[{"id": "web"}]),
    "transforms": Refused("messages go to the model as they are", example=["middle-out"]),
}

COMPLETIONS: Mapping[str, Known] = {
    **COMMON,
    "suffix": Refused("models here continue text, none fills a gap", example="end"),
}

#: Fields of a message in a chat: of replies that come back in the history, and hints for caches.
MESSAGE: Mapping[str, Known] = {
    "annotations": Accepted("of an earlier reply", [{"type": "url_citation"}]),
    "provider_specific_fields": Accepted("of an earlier reply (litellm)", {"a": 1}),
    "thinking_blocks": Accepted("of an earlier reply (litellm)", [{"type": "thinking"}]),
    "reasoning_details": Accepted("of an earlier reply (OpenRouter)", [{"type": "reasoning.text"}]),
    "cache_control": Accepted("prefixes are found by their tokens", {"type": "ephemeral"}),
    "id": Accepted("of an earlier reply"),
    "token_ids": Accepted("of an earlier reply", [1]),
    "weight": Accepted("for fine-tuning", 1),
    "images": Refused("messages are text", example=["aGk="]),
    "audio": Refused("messages are text", example={"id": "audio_1"}),
    "function_call": Refused("deprecated: use tool_calls", example={"name": "f", "arguments": "{}"}),
    "prefix": Refused("use continue_final_message", (False,), True),
}

#: Fields of a text part of a message.
PART: Mapping[str, Known] = {
    "cache_control": Accepted("prefixes are found by their tokens", {"type": "ephemeral"}),
    "annotations": Accepted("of an earlier reply", []),
    "logprobs": Accepted("of an earlier reply", []),
    "id": Accepted("of an earlier reply"),
}

#: Fields of `stream_options`.
STREAM_OPTIONS: Mapping[str, Known] = {
    "include_obfuscation": Accepted("chunks are not padded", True),
}

TOKENIZE: Mapping[str, Known] = {
    "user": Accepted("names the end user"),
    "mm_processor_kwargs": Accepted("prompts have no media", {"num_crops": 4}),
    "chat_template": Refused("templates are code: only the model's own is run", example="{{ messages }}"),
}
