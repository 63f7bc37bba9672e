"""Fields of `/v1/messages` that Agon knows and does not serve (wire/openai/fields.py has those of completions)."""

from collections.abc import Mapping

from wire.openai.fields import Accepted, Known, Refused

_CACHE = Accepted("prefixes are found by their tokens", {"type": "ephemeral"})

#: The fields of what a prompt is made of, in messages and in counting their tokens.
CONVERSATION: Mapping[str, Known] = {
    "cache_control": _CACHE,
    "speed": Accepted("there is one speed", "standard"),
    "user_profile_id": Accepted("names the end user"),
    "workspace_id": Accepted("names the account"),
    "mcp_servers": Refused("nothing runs beside the model", example=[{"name": "a"}]),
    "container": Refused("nothing runs beside the model", example="container_1"),
    "context_management": Refused("nothing is left out of the conversation", example={"edits": []}),
}
MESSAGES: Mapping[str, Known] = {
    **CONVERSATION,
    "metadata": Accepted("names the end user", {"user_id": "u"}),
    "service_tier": Accepted("there is one tier", "auto"),
    "inference_geo": Accepted("there is one place", "eu"),
    "diagnostics": Accepted("there are none", {"previous_message_id": "msg_1"}),
}

TOOL: Mapping[str, Known] = {
    "cache_control": _CACHE,
    "eager_input_streaming": Accepted("input is streamed as it comes", True),
    "input_examples": Refused("chat templates show no examples", example=[{"a": 1}]),
    "defer_loading": Refused("the model sees all tools", (False,), True),
    "allowed_callers": Refused("only the model calls", (["direct"],), ["code_execution_20250825"]),
}
THINKING: Mapping[str, Known] = {"display": Accepted("thoughts are given as they are", "summarized")}

#: The fields of content blocks, which may come from an earlier answer.
BLOCK: Mapping[str, Known] = {
    "cache_control": _CACHE,
    "citations": Accepted("of an earlier answer", [{"type": "char_location"}]),
    "signature": Accepted("thoughts are read as they are"),
    "caller": Accepted("of an earlier answer", {"type": "direct"}),
    "toolset_name": Accepted("of an earlier answer"),
    "is_error": Accepted("the content says what failed", True),
}
