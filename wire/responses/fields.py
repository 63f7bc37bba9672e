"""Fields of `/v1/responses` that Agon knows and does not serve (wire/openai/tolerance.py)."""

from collections.abc import Mapping

from wire.openai.fields import BOOKKEEPING, CACHE
from wire.openai.requests import ChatCompletionRequest
from wire.openai.tolerance import Known, Refused, accepted, served_by

_NOT_KEPT = "answers are not kept; send the whole conversation as input, the items of earlier answers included"

RESPONSES: Mapping[str, Known] = {
    **served_by(ChatCompletionRequest, "/v1/chat/completions"),
    **BOOKKEEPING,
    **accepted("it counts calls of hosted tools, of which there are none", "max_tool_calls"),
    **accepted("nothing runs in the background", "background_options"),
    **accepted("prompts have no media", "image", "mm_processor_kwargs"),
    "background": Refused("nothing runs in the background; use stream", (False,), True),
    "truncation": Refused("a too long input is refused; leave its oldest items out", ("disabled",), "auto"),
    "previous_response_id": Refused(_NOT_KEPT, example="resp_1"),
    "conversation": Refused(_NOT_KEPT, example="conv_1"),
    "previous_response": Refused(_NOT_KEPT, example={"id": "resp_1"}),
    "previous_input_messages": Refused(_NOT_KEPT, example=[{"role": "user"}]),
    "enable_response_messages": Refused("/tokenize tells the prompt", (False,), True),
    "prompt": Refused("prompts are not kept; send instructions and input", example={"id": "pmpt_1"}),
    "context_management": Refused(
        "nothing is left out of the input; summarise it in the client", example=[{"type": "compaction"}]
    ),
    "moderation": Refused("nothing is moderated", example={"model": "omni"}),
    "vllm_xargs": Refused("its fields are those of vLLM's plugins", example={"a": 1}),
}

#: The fields of `text`, `reasoning` and `stream_options`.
TEXT: Mapping[str, Known] = accepted("a hint; models have no such setting", "verbosity")
REASONING: Mapping[str, Known] = {
    **accepted("thoughts are given as they are", "summary", "generate_summary"),
    **accepted("the chat template decides which thoughts are read", "context"),
    "mode": Refused("models have no such setting; use effort", ("standard",), "pro"),
}
STREAM_OPTIONS: Mapping[str, Known] = accepted("events are not padded", "include_obfuscation")

#: The fields of a function among the tools.
TOOL: Mapping[str, Known] = {
    **CACHE,
    **accepted("results are not checked", "output_schema"),
    **accepted("the model sees all tools", "defer_loading"),
    **accepted("the client decides when it runs a call", "async"),
    "allowed_callers": Refused("only the model calls", (["direct"], ["direct", "programmatic"]), ["programmatic"]),
}

_EARLIER = "of an earlier answer"
#: The fields of the items of the input, which may come from an earlier answer.
ITEM: Mapping[str, Known] = {
    **CACHE,
    **accepted(_EARLIER, "id", "status", "phase", "caller", "parsed_arguments", "async", "role", "created_by"),
    **accepted("the call has it", "name", "namespace"),
    **accepted("thoughts are read as they are", "encrypted_content"),
}
PART: Mapping[str, Known] = {**CACHE, **accepted(_EARLIER, "annotations", "logprobs", "parsed")}
