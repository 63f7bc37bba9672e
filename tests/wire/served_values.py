"""A value for every served field of the requests, for the tests of docs/api-fields.md."""

from collections.abc import Mapping
from typing import Any

from wire.chat import DrawingFields

Values = Mapping[str, Any]

_SCHEMA = {"type": "object", "properties": {}}
_FUNCTION = {"type": "function", "function": {"name": "add", "parameters": _SCHEMA}}
_MESSAGES = [{"role": "user", "content": "Hello"}]
_ANSWERED = [*_MESSAGES, {"role": "assistant", "content": "Well"}]

_COMMON: Values = {
    "model": "raven",
    "max_tokens": 5,
    "temperature": 0.5,
    "top_p": 0.5,
    "top_k": 3,
    "min_p": 0.1,
    "repetition_penalty": 1.1,
    "presence_penalty": 0.5,
    "frequency_penalty": 0.5,
    "seed": 7,
    "ignore_eos": True,
    "min_tokens": 2,
    "n": 2,
    "thinking_budget": 3,
    "include_stop_str_in_output": True,
    "skip_special_tokens": False,
    "logit_bias": {"5": -100},
    "stop": ["end"],
    "stop_token_ids": [5],
    "allowed_token_ids": [5],
    "bad_words": ["bad"],
    "typical_p": 0.5,
    "best_of": 2,
    "use_beam_search": True,
    "beam_width": 2,
    "length_penalty": 0.5,
    "early_stopping": True,
    "priority": 1,
    "structured_outputs": {"regex": "a+"},
    "guided_json": _SCHEMA,
    "guided_regex": "a+",
    "guided_choice": ["a", "b"],
    "guided_grammar": "start: /a+/",
    "json_schema": _SCHEMA,
    "regex": "a+",
    "ebnf": 'root ::= "a"',
    "grammar": 'root ::= "a"',
    "thinking_token_budget": 3,
    "stream": True,
    "stream_options": {"include_usage": True},
    "add_special_tokens": True,
    "truncate_prompt_tokens": 5,
    "return_token_ids": True,
    "return_tokens_as_token_ids": True,
    "cache_salt": "mine",
    "response_format": {"type": "json_object"},
}
CHAT: Values = {
    **_COMMON,
    "messages": _ANSWERED,
    "max_completion_tokens": 5,
    "chat_template_kwargs": {"enable_thinking": False},
    "reasoning_effort": "low",
    "logprobs": True,
    "top_logprobs": 2,
    "add_generation_prompt": False,
    "continue_final_message": True,
    "tools": [_FUNCTION],
    "tool_choice": "required",
    "parallel_tool_calls": False,
}
#: What a body must have besides, for fields that need another one.
CHAT_COMPANIONS: Mapping[str, Values] = {
    "stream_options": {"stream": True},
    "length_penalty": {"use_beam_search": True},
    "early_stopping": {"use_beam_search": True},
    "top_logprobs": {"logprobs": True},
    "continue_final_message": {"messages": _ANSWERED},
    "tool_choice": {"tools": [_FUNCTION]},
}
COMPLETIONS: Values = {**_COMMON, "prompt": ["a", "b"], "echo": True, "logprobs": 2}
STREAM_OPTIONS: Values = {"include_usage": False, "continuous_usage_stats": True}
STRUCTURED_OUTPUTS: Values = {
    "json": _SCHEMA,
    "regex": "a+",
    "choice": ["a", "b"],
    "grammar": "start: /a+/",
    "json_object": True,
}
MESSAGE: Values = {
    "role": "assistant",
    "content": "Well",
    "reasoning_content": "hm",
    "refusal": "no",
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}],
    "tool_call_id": "c1",
    "name": "add",
}
MESSAGE_COMPANIONS: Mapping[str, Values] = {"tool_calls": {"role": "assistant"}, "tool_call_id": {"role": "tool"}}
TWO_TOOLS = [_FUNCTION, {"type": "function", "function": {"name": "mul"}}]
_MUL = {"type": "function", "function": {"name": "mul"}}
TOOL: Values = _MUL
FUNCTION: Values = {"name": "mul", "description": "Multiplies.", "parameters": _SCHEMA, "strict": True}
TOOL_CALL: Values = {"id": "c2", "type": "function", "function": {"name": "mul", "arguments": "{}"}}
CALLED_FUNCTION: Values = {"name": "mul", "arguments": "{}"}
NAMED_CHOICE: Values = {"type": "function", "function": {"name": "mul"}}
ALLOWED_TOOLS: Values = {"mode": "required", "tools": [_MUL]}
ALLOWED_CHOICE: Values = {"type": "allowed_tools", "allowed_tools": ALLOWED_TOOLS}
JSON_SCHEMA: Values = {"name": "a", "description": "b", "strict": True, "schema": _SCHEMA}
RESPONSE_FORMAT: Values = {"type": "json_object", "json_schema": JSON_SCHEMA}
TOKENIZE: Values = {
    "model": "raven",
    "prompt": "Bye",
    "messages": _MESSAGES,
    "add_special_tokens": True,
    "return_token_strs": True,
    "add_generation_prompt": False,
    "continue_final_message": True,
    "chat_template_kwargs": {"enable_thinking": False},
    "tools": [_FUNCTION],
}
TOKENIZE_COMPANIONS: Mapping[str, Values] = {"messages": {"prompt": None}}
EMBEDDINGS: Values = {
    "model": "raven",
    "input": ["a", "b"],
    "encoding_format": "base64",
    "dimensions": 2,
    "pooling": "mean",
    "normalize": False,
}

_DRAWING: Values = {name: _COMMON[name] for name in DrawingFields.model_fields}
RESPONSES: Values = {
    **_DRAWING,
    "stop": "end",
    "cache_salt": "mine",
    "model": "raven",
    "input": [{"role": "user", "content": "Bye"}],
    "instructions": "Be brief.",
    "max_output_tokens": 5,
    "tools": [{"type": "function", "name": "add"}],
    "tool_choice": "required",
    "parallel_tool_calls": False,
    "text": {"format": {"type": "json_object"}},
    "reasoning": {"effort": "low"},
    "top_logprobs": 2,
    "include": ["message.output_text.logprobs"],
    "stream": True,
    "stream_options": {"include_obfuscation": False},
    "metadata": {"run": "7"},
}
RESPONSES_TOOL: Values = {
    "type": "function",
    "name": "mul",
    "description": "Adds.",
    "parameters": _SCHEMA,
    "strict": True,
}
NAMESPACE: Values = {"type": "namespace", "name": "m", "description": "a", "tools": [RESPONSES_TOOL]}
CHOICE: Values = {"type": "function", "name": "mul", "namespace": "n"}
ALLOWED: Values = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "mul"}]}
PLAIN_FORMAT: Values = {"type": "json_object"}
SCHEMA_FORMAT: Values = {
    "type": "json_schema",
    "name": "b",
    "schema": _SCHEMA,
    "description": "c",
    "strict": True,
}
TEXT: Values = {"format": {"type": "json_object"}}
REASONING: Values = {"effort": "low"}
ITEM_MESSAGE: Values = {"type": "message", "role": "system", "content": "Bye"}
ITEM_CALL: Values = {"type": "function_call", "call_id": "c2", "name": "mul", "namespace": "n", "arguments": "{"}
ITEM_OUTPUT: Values = {"type": "function_call_output", "call_id": "c2", "output": "3"}
ITEM_REASONING: Values = {
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "hm"}],
    "content": [{"type": "reasoning_text", "text": "hm"}],
}
PART_TEXT: Values = {"type": "output_text", "text": "Bye"}
PART_REFUSAL: Values = {"type": "refusal", "refusal": "never"}

CONVERSATION: Values = {
    "model": "raven",
    "messages": _ANSWERED,
    "system": "Be brief.",
    "tools": [{"name": "add", "input_schema": _SCHEMA}],
    "tool_choice": {"type": "any"},
    "thinking": {"type": "adaptive"},
    "output_config": {"effort": "low"},
    "output_format": {"type": "json_schema", "schema": _SCHEMA},
    "context_management": {"edits": []},
    "chat_template_kwargs": {"enable_thinking": False},
}
MESSAGES: Values = {
    **CONVERSATION,
    **_DRAWING,
    "max_tokens": 5,
    "stop_sequences": ["end"],
    "stream": True,
}
ANTHROPIC_TOOL: Values = {
    "type": "custom",
    "name": "mul",
    "description": "Adds.",
    "input_schema": {"type": "object"},
    "strict": True,
}
ANTHROPIC_MESSAGE: Values = {
    "role": "system",
    "content": "Bye",
    "clear_at": "never",
    "output_config": {"effort": "low"},
}
CLIENT_TOOL: Values = {"type": "bash_20250124", "name": "shell", "strict": True}
ANTHROPIC_CHOICE: Values = {"type": "tool", "name": "mul", "disable_parallel_tool_use": True}
OUTPUT_FORMAT: Values = {"type": "json_schema", "schema": _SCHEMA}
OUTPUT_CONFIG: Values = {"effort": "low", "format": OUTPUT_FORMAT}
CONTEXT_MANAGEMENT: Values = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}
CLEAR_TOOL_USES: Values = {
    "type": "clear_tool_uses_20250919",
    "trigger": {"type": "tool_uses", "value": 5},
    "keep": {"type": "tool_uses", "value": 1},
    "clear_at_least": {"type": "input_tokens", "value": 7},
    "exclude_tools": ["add"],
    "clear_tool_inputs": True,
}
CLEAR_THINKING: Values = {"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 2}}
THINKING_ENABLED: Values = {"type": "enabled", "budget_tokens": 9}
THINKING_MODE: Values = {"type": "disabled"}
BLOCK_TEXT: Values = {"type": "text", "text": "Bye"}
BLOCK_THINKING: Values = {"type": "thinking", "thinking": "so"}
BLOCK_REDACTED: Values = {"type": "redacted_thinking", "data": "y"}
BLOCK_CALL: Values = {"type": "tool_use", "id": "t2", "name": "mul", "input": {"a": 1}}
BLOCK_RESULT: Values = {"type": "tool_result", "tool_use_id": "t2", "content": "3"}
