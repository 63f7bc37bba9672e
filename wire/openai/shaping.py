"""From the pieces of an answer to OpenAI's objects: chunks of a stream, or one whole completion."""

import json
from collections.abc import Mapping
from typing import Any, Literal

from wire.chat import FinishReason, Usage
from wire.openai.replies import OpenAIFinish
from wire.sse import SseEvent, encode

_OPENAI_FINISH: dict[FinishReason, OpenAIFinish] = {"stop": "stop", "length": "length", "abort": "stop"}


#: Compact and in the text's own characters. Made once: json.dumps with options makes an encoder at each call.
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def encode_chunk(chunk: Mapping[str, Any]) -> bytes:
    """One object of a stream as a server-sent event."""
    return encode(SseEvent(_ENCODER.encode(chunk)))


class CompletionShaper:
    """Turns the pieces of one answer into OpenAI objects: chunks while streaming, or one final object."""

    def __init__(self, *, kind: Literal["chat", "text"], completion_id: str, model: str, created: int) -> None:
        self._kind = kind
        self._base = {"id": completion_id, "created": created, "model": model}

    def first_chunk(self) -> dict[str, Any] | None:
        """Chat streams open with the role; text streams have no such chunk."""
        if self._kind == "text":
            return None
        return self._chunk({"delta": {"role": "assistant", "content": ""}}, finish_reason=None)

    def thought_chunk(self, thoughts: str) -> dict[str, Any]:
        """One delta of what the model thinks; only chats have thoughts."""
        return self._chunk({"delta": {"reasoning_content": thoughts}}, finish_reason=None)

    def text_chunk(self, text: str) -> dict[str, Any]:
        """One delta of the answer's text."""
        choice: dict[str, Any] = {"text": text} if self._kind == "text" else {"delta": {"content": text}}
        return self._chunk(choice, finish_reason=None)

    def finish_chunk(self, finish_reason: FinishReason) -> dict[str, Any]:
        """The last chunk with a choice: no text, only why the answer ended."""
        choice: dict[str, Any] = {"text": ""} if self._kind == "text" else {"delta": {}}
        return self._chunk(choice, finish_reason=_OPENAI_FINISH[finish_reason])

    def usage_chunk(self, usage: Usage) -> dict[str, Any]:
        """The extra last chunk of `stream_options.include_usage`: no choices, only usage."""
        return {**self._base, "object": self._chunk_object, "choices": [], "usage": usage.model_dump()}

    def delta_chunks(self, thoughts: str, text: str) -> bytes:
        """A piece of the answer as server-sent events; none if it is empty."""
        found = encode_chunk(self.thought_chunk(thoughts)) if thoughts else b""
        return found + encode_chunk(self.text_chunk(text)) if text else found

    def whole(self, text: str, finish_reason: FinishReason, usage: Usage, thoughts: str = "") -> dict[str, Any]:
        """The answer of a request without `stream`."""
        choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": _OPENAI_FINISH[finish_reason]}
        if self._kind == "chat":
            choice["message"] = {"role": "assistant", "content": text}
            if thoughts:
                choice["message"]["reasoning_content"] = thoughts
        else:
            choice["text"] = text
        whole_object = "chat.completion" if self._kind == "chat" else "text_completion"
        return {**self._base, "object": whole_object, "choices": [choice], "usage": usage.model_dump()}

    @property
    def _chunk_object(self) -> str:
        return "chat.completion.chunk" if self._kind == "chat" else "text_completion"

    def _chunk(self, choice: dict[str, Any], *, finish_reason: str | None) -> dict[str, Any]:
        return {
            **self._base,
            "object": self._chunk_object,
            "choices": [{"index": 0, **choice, "logprobs": None, "finish_reason": finish_reason}],
        }
