"""Fields of `/v1/responses` that Agon knows and does not serve (wire/openai/fields.py has those of completions)."""

from collections.abc import Mapping

from wire.openai.fields import Accepted, Known, Refused

_NOT_KEPT = "answers are not kept, send the conversation as input"

RESPONSES: Mapping[str, Known] = {
    "user": Accepted("names the end user"),
    "safety_identifier": Accepted("names the end user"),
    "store": Accepted("nothing is kept", True),
    "service_tier": Accepted("there is one tier", "auto"),
    "prompt_cache_key": Accepted("prefixes are found by their tokens"),
    "prompt_cache_retention": Accepted("prefixes are kept while there is room", "24h"),
    "prompt_cache_options": Accepted("prefixes are found by their tokens", {"mode": "implicit"}),
    "max_tool_calls": Accepted("it counts calls of built-in tools", 3),
    "background": Refused("nothing runs in the background", (False,), True),
    "truncation": Refused("a too long input is refused", ("disabled",), "auto"),
    "previous_response_id": Refused(_NOT_KEPT, example="resp_1"),
    "conversation": Refused(_NOT_KEPT, example="conv_1"),
    "prompt": Refused("prompts are not kept, send instructions and input", example={"id": "pmpt_1"}),
    "context_management": Refused("nothing is left out of the input", example=[{"type": "compaction"}]),
    "moderation": Refused("nothing is moderated", example={"model": "omni"}),
}

#: The fields of `text`, `reasoning` and `stream_options`.
TEXT: Mapping[str, Known] = {"verbosity": Refused("models have no such setting", ("medium",), "low")}
REASONING: Mapping[str, Known] = {
    "summary": Accepted("thoughts are given as they are", "auto"),
    "generate_summary": Accepted("thoughts are given as they are", "auto"),
    "context": Accepted("the chat template decides which thoughts are read", "auto"),
    "mode": Refused("models have no such setting", ("standard",), "pro"),
}
STREAM_OPTIONS: Mapping[str, Known] = {"include_obfuscation": Accepted("events are not padded", True)}

#: The fields of a function among the tools.
TOOL: Mapping[str, Known] = {
    "output_schema": Accepted("results are not checked", {"type": "object"}),
    "defer_loading": Refused("the model sees all tools", (False,), True),
    "allowed_callers": Refused("only the model calls", (["direct"],), ["programmatic"]),
}

#: The fields of the items of the input, which may come from an earlier answer.
ITEM: Mapping[str, Known] = {
    "id": Accepted("of an earlier answer"),
    "status": Accepted("of an earlier answer", "completed"),
    "phase": Accepted("of an earlier answer", "final_answer"),
    "caller": Accepted("of an earlier answer", {"type": "direct"}),
    "namespace": Accepted("of an earlier answer"),
    "name": Accepted("the call has it"),
    "encrypted_content": Accepted("thoughts are read as they are"),
}
PART: Mapping[str, Known] = {
    "annotations": Accepted("of an earlier answer", [{"type": "url_citation"}]),
    "logprobs": Accepted("of an earlier answer", [{"token": "a"}]),
    "prompt_cache_breakpoint": Accepted("prefixes are found by their tokens", {"mode": "explicit"}),
}
