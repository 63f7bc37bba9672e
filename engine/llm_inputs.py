"""What callers of the library pass, in vLLM's shapes: prompts as texts, token ids or dicts, and conversations. Checked
here, so that a wrong one is an InvalidRequest that names it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from engine.errors import InvalidRequest

if TYPE_CHECKING:
    from engine.text.tokenizer import Tokenizer

#: A text, its token ids, {"prompt": text} or {"prompt_token_ids": ids}.
Prompt = str | Sequence[int] | Mapping[str, Any]
#: A conversation: role and content of each message, as in OpenAI's API.
Messages = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class LoRARequest:
    """vLLM's name for an adapter: it is loaded from the folder when it is used for the first time."""

    lora_name: str
    lora_int_id: int  #: of no meaning here: names are unique
    lora_path: str


_FIELDS_OF_A_PROMPT = {"prompt", "prompt_token_ids"}
_Params = TypeVar("_Params")


def list_of_prompts(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """Several prompts, or one: a sequence that begins with a number is one prompt. Raises InvalidRequest."""
    if isinstance(prompts, str | Mapping):
        return [prompts]
    listed = _listed(prompts, "prompts")
    return [listed] if listed and isinstance(listed[0], int) else listed


def read_prompt(prompt: Prompt, tokenizer_of: Callable[[], "Tokenizer"]) -> tuple[str | None, list[int]]:
    """The text, where the prompt has one, and the token ids; a text is encoded with the special tokens that the
    tokenizer adds. tokenizer_of: raises InvalidRequest where there is none, as this does for other shapes."""
    if isinstance(prompt, Mapping):
        if unknown := sorted(map(str, prompt.keys() - _FIELDS_OF_A_PROMPT)):
            raise InvalidRequest(f"a prompt has no field {unknown[0]!r}", param="prompt")
        text, token_ids = prompt.get("prompt"), prompt.get("prompt_token_ids")
        if text is not None and not isinstance(text, str):
            raise InvalidRequest("the prompt of a dict must be a text", param="prompt")
        if token_ids is not None:
            return text, _checked_ids(token_ids)
        if text is None:
            raise InvalidRequest("a prompt needs `prompt` or `prompt_token_ids`", param="prompt")
        prompt = text
    if isinstance(prompt, str):
        return prompt, tokenizer_of().encode(prompt, add_special_tokens=True)
    return None, _checked_ids(prompt)


def list_of_conversations(messages: Messages | Sequence[Messages]) -> list[list[dict[str, Any]]]:
    """Several conversations, or one: a sequence that begins with a message is one. Contents are texts afterwards.
    Raises InvalidRequest."""
    listed = _listed(messages, "messages")
    conversations = [listed] if not listed or isinstance(listed[0], Mapping) else listed
    return [
        [_checked_message(message) for message in _listed(conversation, "messages")] for conversation in conversations
    ]


def one_per_prompt(params: _Params | Sequence[_Params] | None, default: _Params, count: int) -> list[_Params]:
    """One value for each prompt, of one for all or one for each. Raises InvalidRequest."""
    kind = type(default)
    if params is None or isinstance(params, kind):
        return [default if params is None else params] * count
    listed = [one for one in params if isinstance(one, kind)] if isinstance(params, list | tuple) else []
    if not isinstance(params, list | tuple) or len(listed) < len(params):
        raise InvalidRequest(f"params must be {kind.__name__}, or a list of them", param="params")
    if len(listed) != count:
        raise InvalidRequest(f"{count} prompts, but {len(listed)} params", param="params")
    return listed


def _listed(value: Any, param: str) -> list[Any]:
    if isinstance(value, str | bytes | Mapping):
        raise InvalidRequest(f"{param} must be a list", param=param)
    try:
        return list(value)
    except TypeError:
        raise InvalidRequest(f"{param} must be a list", param=param) from None


def _checked_ids(token_ids: Any) -> list[int]:
    is_list = isinstance(token_ids, Sequence)
    if not is_list or not all(isinstance(one, int) and not isinstance(one, bool) for one in token_ids):
        raise InvalidRequest("a prompt must be a text, a list of token ids, or a dict of one of these", param="prompt")
    return list(token_ids)


def _checked_message(message: Any) -> dict[str, Any]:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise InvalidRequest("a message must be a dict with role and content", param="messages")
    content = message.get("content")
    if isinstance(content, list | tuple):
        content = "".join(_text_of_part(part) for part in content)
    elif not isinstance(content, str | None):
        raise InvalidRequest("the content of a message must be a text, a list of parts, or None", param="messages")
    if not all(map(_is_call, _listed(message.get("tool_calls") or (), "tool_calls"))):
        raise InvalidRequest("a tool call needs a function with name and arguments", param="messages")
    return {**message, "content": content}


def _is_call(call: Any) -> bool:
    function = call.get("function") if isinstance(call, Mapping) else None
    return (
        isinstance(function, Mapping)
        and isinstance(function.get("name"), str)
        and isinstance(function.get("arguments"), str | Mapping)
    )


def _text_of_part(part: Any) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind != "text" or not isinstance(part.get("text"), str):
        raise InvalidRequest(f"parts of a message must be of type text, not {kind!r}", param="messages")
    return str(part["text"])
