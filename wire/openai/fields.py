"""Fields of the OpenAI API and of vLLM that Agon knows and does not serve (tolerance.py)."""

from collections.abc import Mapping

from wire.openai.tolerance import Accepted, Known, Refused, accepted

_BLANKS = "blanks in JSON are bounded for all; leave it out"
_ROUTING = "models are chosen by `model` alone"
_EARLIER = "of an earlier reply"
_CODE = "templates are code: only the model's own is run, with chat_template_kwargs"
_NO_MEDIA = "prompts have no media"

#: Every object may carry these.
CACHE: Mapping[str, Known] = accepted(
    "prefixes are found by their tokens", "cache_control", "prompt_cache_breakpoint", "cache_reference"
)
#: What a client says of itself and of the request, in every dialect.
BOOKKEEPING: Mapping[str, Known] = {
    **CACHE,
    **accepted("names the end user", "user", "safety_identifier", "user_profile_id"),
    **accepted("names the account or the session", "workspace_id", "session_id", "client_metadata", "access_programs"),
    **accepted("the header X-Request-Id names a request", "request_id"),
    **accepted("nothing is kept", "store"),
    **accepted("there is one tier, one speed and one place", "service_tier", "speed", "inference_geo"),
    **accepted("prefixes are found by their tokens", "prompt_cache_key", "prompt_cache_options"),
    **accepted("prefixes are kept while there is room", "prompt_cache_retention"),
}

#: Fields of both kinds of completions.
COMMON: Mapping[str, Known] = {
    **BOOKKEEPING,
    **accepted("labels of the request, which is not kept", "metadata"),
    **accepted("prefixes are always kept (llama.cpp)", "cache_prompt"),
    **accepted(_NO_MEDIA, "mm_processor_kwargs", "media_io_kwargs", "return_mm_kwargs"),
    **accepted("there is one", "guided_decoding_backend"),
    **accepted("pieces are sent as they come", "stream_interval"),
    **accepted("of vLLM's render endpoints", "return_token_offsets"),
    **accepted("experts are not told", "routed_experts_prompt_start"),
    "spaces_between_special_tokens": Refused("texts are joined as they are", (True,), False),
    "logits_processors": Refused("no code of a request is run; use logit_bias", example=["f"]),
    "kv_transfer_params": Refused("keys and values stay in the worker", example={"do_remote_decode": True}),
    "vllm_xargs": Refused("its fields are those of vLLM's plugins", example={"a": 1}),
    "repetition_detection": Refused("use repetition_penalty", example={"max_pattern_size": 3}),
    "logprob_token_ids": Refused("logprobs are those of the likeliest tokens", example=[1]),
    "ec_transfer_params": Refused(_NO_MEDIA, example={"a": 1}),
    "guided_whitespace_pattern": Refused(_BLANKS, example=" "),
    "models": Refused(_ROUTING, example=["a"]),
    "provider": Refused(_ROUTING, example={"only": ["a"]}),
    "mirostat": Refused("use temperature, top_p or min_p", (0,), 2),
    "prompt_logprobs": Refused("/v1/completions gives them with echo and logprobs", example=1),
    "prompt_embeds": Refused("prompts are text or tokens", example="AAAA"),
    "structural_tag": Refused("use structured_outputs.grammar", example="{}"),
    "truncation_side": Refused("prompts keep their end", ("left",), "right"),
    "watermarking": Refused("answers have no watermark", (False,), True),
}

#: Fields of structured_outputs.
STRUCTURED_OUTPUTS: Mapping[str, Known] = {
    "structural_tag": Refused("use grammar", example="{}"),
    "disable_fallback": Accepted("there is one backend"),
    "disable_any_whitespace": Refused(_BLANKS, (False,), True),
    "disable_additional_properties": Refused("write additionalProperties into the schema", (False,), True),
    "whitespace_pattern": Refused(_BLANKS, example=" "),
}

CHAT: Mapping[str, Known] = {
    **COMMON,
    **accepted("a hint for speed", "prediction"),
    **accepted("a hint; models have no such setting", "verbosity"),
    **accepted("/tokenize tells the prompt", "return_prompt_text"),
    "include_reasoning": Refused("thoughts are a field of their own, which a client may ignore", (True,), False),
    "modalities": Refused("answers are text", (["text"],), ["text", "audio"]),
    "audio": Refused("answers are text", example={"voice": "alloy", "format": "wav"}),
    "web_search_options": Refused("nothing is searched; give a tool of your own", example={"user_location": {"a": 1}}),
    "moderation": Refused("nothing is moderated", example={"model": "omni"}),
    "functions": Refused("deprecated: use tools", example=[{"name": "f"}]),
    "function_call": Refused("deprecated: use tool_choice", ("none", "auto"), {"name": "f"}),
    "echo": Refused("only in /v1/completions", (False,), True),
    "documents": Refused("put them into a message", example=[{"text": "a"}]),
    "chat_template": Refused(_CODE, example="{{ messages }}"),
    "plugins": Refused("nothing runs beside the model", example=[{"id": "web"}]),
    "transforms": Refused("messages go to the model as they are", example=["middle-out"]),
}

COMPLETIONS: Mapping[str, Known] = {
    **COMMON,
    "suffix": Refused("models here continue text, none fills a gap", example="end"),
}

#: Fields of a message in a chat: of replies that come back in the history, and hints for caches.
MESSAGE: Mapping[str, Known] = {
    **CACHE,
    **accepted(_EARLIER, "annotations", "id", "token_ids", "parsed", "prompt_token_ids", "type", "status"),
    **accepted("of an earlier reply (litellm)", "provider_specific_fields"),
    **accepted("for fine-tuning", "weight"),
    **accepted("the content says what failed", "is_error"),
    "images": Refused("messages are text", example=["aGk="]),
    "audio": Refused("messages are text", example={"id": "audio_1"}),
    "function_call": Refused("deprecated: use tool_calls", example={"name": "f", "arguments": "{}"}),
    "prefix": Refused("use continue_final_message", (False,), True),
}

#: Fields of a text part of a message.
PART: Mapping[str, Known] = {**CACHE, **accepted(_EARLIER, "annotations", "logprobs", "id", "parsed")}

#: Fields of a call in the history, and of its function.
CALL: Mapping[str, Known] = {
    **accepted(_EARLIER, "index", "parsed_arguments", "provider_specific_fields", "extra_content"),
    "custom": Refused("only functions are called", example={"name": "f", "input": "a"}),
}

#: Fields of `stream_options`.
STREAM_OPTIONS: Mapping[str, Known] = accepted("chunks are not padded", "include_obfuscation")

EMBEDDINGS: Mapping[str, Known] = {
    **BOOKKEEPING,
    **accepted("labels of the request, which is not kept", "metadata"),
    **accepted("callers share no prefixes", "cache_salt"),
    **accepted(_NO_MEDIA, "mm_processor_kwargs"),
    "priority": Refused("inputs have no order", (0,), 1),
    "truncate_prompt_tokens": Refused("inputs must fit into the context; cut them", example=8),
    "truncation_side": Refused("inputs must fit into the context; cut them", example="right"),
    "add_special_tokens": Refused("the tokenizer adds its own; send token ids", (True,), False),
    "use_activation": Refused("use normalize", (True,), False),
    "embed_dtype": Refused("numbers are float32", ("float32",), "float16"),
    "endianness": Refused("numbers are little-endian", ("native", "little"), "big"),
    "messages": Refused("write them as input", example=[{"role": "user", "content": "a"}]),
    "input_type": Refused("write it into the text", example="query"),
}

TOKENIZE: Mapping[str, Known] = {
    **BOOKKEEPING,
    **accepted(_NO_MEDIA, "mm_processor_kwargs", "media_io_kwargs"),
    "chat_template": Refused(_CODE, example="{{ messages }}"),
}
