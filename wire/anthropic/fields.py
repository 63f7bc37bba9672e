"""Fields of `/v1/messages` that Agon knows and does not serve (wire/openai/tolerance.py)."""

from collections.abc import Mapping

from wire.errors import ErrorCode
from wire.openai.fields import BOOKKEEPING, CACHE
from wire.openai.requests import ChatCompletionRequest
from wire.openai.tolerance import Known, Refused, accepted, served_by

#: The fields of what a prompt is made of, in messages and in counting their tokens.
CONVERSATION: Mapping[str, Known] = {
    **BOOKKEEPING,
    **accepted("names the end user", "metadata"),
    **accepted("features are chosen by their fields", "betas"),
    **accepted("nothing is billed", "billing_policy", "fallback_credit_token"),
    **accepted("no model here declines", "fallbacks"),
    **accepted("there are none", "diagnostics"),
    "mcp_servers": Refused("nothing runs beside the model; give their tools as tools", example=[{"name": "a"}]),
    "container": Refused("nothing runs beside the model; give tools of your own", example="container_1"),
    "thread": Refused(
        "conversations are not kept; send all messages",
        neutral=({"type": "create"},),
        example={"type": "continue", "previous_message_id": "msg_1"},
        code=ErrorCode.THREAD_NOT_FOUND,  # on which Anthropic's clients send all messages
    ),
}
MESSAGES: Mapping[str, Known] = {
    **served_by(ChatCompletionRequest, "/v1/chat/completions"),
    **CONVERSATION,
    **accepted("tokens are counted in any case", "stream_options"),
    **accepted("callers share no prefixes", "cache_salt"),
    "kv_transfer_params": Refused("keys and values stay in the worker", example={"do_remote_decode": True}),
    "compaction": Refused("ask for a summary with a message of your own", example={"type": "auto"}),
}
COUNT_TOKENS: Mapping[str, Known] = {
    **CONVERSATION,
    **accepted("the count is of the conversation as it was sent", "compaction"),
}

TOOL: Mapping[str, Known] = {
    **CACHE,
    **accepted("input is streamed as it comes", "eager_input_streaming"),
    **accepted("the model sees all tools", "defer_loading"),
    **accepted("chat templates show no examples", "input_examples"),
    "allowed_callers": Refused("only the model calls", (["direct"],), ["code_execution_20250825"]),
}
#: The fields of tools that the client runs and whose input Anthropic defines (wire/anthropic/client_tools.py).
CLIENT_TOOL: Mapping[str, Known] = {
    **TOOL,
    **accepted("the client cuts what it shows", "max_characters"),
}
THINKING: Mapping[str, Known] = accepted("thoughts are given as they are", "display")
OUTPUT_CONFIG: Mapping[str, Known] = accepted("a hint; max_tokens and thinking bound the answer", "task_budget")

#: The fields of messages and content blocks, which may come from an earlier answer.
BLOCK: Mapping[str, Known] = {
    **CACHE,
    **accepted("of an earlier answer", "citations", "caller", "toolset_name", "parsed", "parsed_output"),
    **accepted("thoughts are read as they are", "signature"),
    **accepted("the content says what failed", "is_error"),
}
MESSAGE: Mapping[str, Known] = {
    **CACHE,
    **accepted(
        "of an earlier answer",
        *("id", "type", "model", "stop_reason", "stop_sequence", "stop_details", "usage"),
        *("container", "context_management", "diagnostics", "parsed_output", "input_transformations"),
    ),
}
