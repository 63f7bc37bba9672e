"""From the pieces of an answer to the chunks of an OpenAI stream. wire/openai/whole.py makes whole completions."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wire.answers import Delta, Finished, PromptEcho, TokenLogprob
from wire.chat import FinishReason, Usage
from wire.openai.logprobs import TextLogprobs, chat_logprobs
from wire.openai.replies import OpenAIFinish
from wire.openai.shape import AnswerHead, AnswerShape
from wire.sse import SseEvent, encode

#: OpenAI's finish reasons: its clients know no abort.
OPENAI_FINISH: dict[FinishReason, OpenAIFinish] = {
    "stop": "stop",
    "length": "length",
    "abort": "stop",
    "tool_calls": "tool_calls",
}

#: Compact and in the text's own characters. Made once: json.dumps with options makes an encoder at each call.
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def encode_chunk(chunk: Mapping[str, Any]) -> bytes:
    """One object of a stream as a server-sent event."""
    return encode(SseEvent(_ENCODER.encode(chunk)))


def total_usage(usages: Sequence[Usage]) -> Usage:
    """The usage of all prompts together."""
    if len(usages) == 1:
        return usages[0]
    return Usage.counted(
        sum(usage.prompt_tokens for usage in usages),
        sum(usage.completion_tokens for usage in usages),
        sum(usage.prompt_tokens_details.cached_tokens for usage in usages),
        sum(usage.completion_tokens_details.reasoning_tokens for usage in usages),
    )


@dataclass(slots=True)
class _Choice:
    """A choice while its chunks come."""

    index: int
    logprobs: TextLogprobs
    is_open: bool = False  #: its first chunk has been sent
    is_finished: bool = False
    num_tokens: int = 0


@dataclass(slots=True)
class _Prompt:
    """The echo of one prompt, and deltas that wait until it can be sent."""

    choices: list[_Choice]
    echo: PromptEcho | None = None
    logprobs: tuple[TokenLogprob | None, ...] | None = None
    held: list[Delta] = field(default_factory=list)


class StreamShaper:
    """Makes the events of one stream. Every event of every prompt is handed to `delta` or `finished`, then `end` gives
    the last bytes. A choice of a chat begins with a chunk that has the role."""

    def __init__(self, shape: AnswerShape, head: AnswerHead) -> None:
        self._shape = shape
        self._is_chat = shape.kind == "chat"
        self._is_plain = not (shape.logprobs or shape.token_ids or shape.echo)
        name = "chat.completion.chunk" if self._is_chat else "text_completion"
        self._base = {"id": head.id, "object": name, "created": head.created, "model": head.model}
        self._usages: list[Usage] = []
        self._prompts = [
            _Prompt(
                [
                    _Choice(prompt * shape.n + sample, TextLogprobs(ids_as_tokens=shape.ids_as_tokens))
                    for sample in range(shape.n)
                ]
            )
            for prompt in range(shape.num_prompts)
        ]

    def delta(self, which: int, delta: Delta) -> bytes:
        """The events of a delta of prompt `which`; none while there is nothing to say. Called for every token."""
        prompt = self._prompts[which]
        if delta.prompt is not None:
            prompt.echo = delta.prompt
            return self._echo(prompt) if self._shape.echo and not self._shape.logprobs else b""
        if self._shape.echo and self._shape.logprobs and prompt.logprobs is None:
            prompt.held.append(delta)
            if delta.prompt_logprobs is None:
                return b""
            prompt.logprobs = delta.prompt_logprobs
            held, prompt.held = prompt.held, []
            return self._echo(prompt) + b"".join(self._sample(prompt, one) for one in held)
        return self._sample(prompt, delta)

    def finished(self, which: int, finished: Finished) -> bytes:
        """The end of prompt `which`: closes the one sample that has had no finish reason of its own."""
        self._usages.append(finished.usage)
        prompt = self._prompts[which]
        return b"".join(
            self._close(prompt, choice, finished.finish_reason) for choice in prompt.choices if not choice.is_finished
        )

    def end(self) -> bytes:
        """The usage chunk, where it was asked for: it has no choices."""
        if not self._shape.usage:
            return b""
        usage = total_usage(self._usages)
        return encode_chunk({**self._base, "choices": [], "usage": usage.model_dump()})

    def opening(self) -> bytes:
        """The roles of choices that have said nothing yet, for a stream that ends with an error."""
        return b"".join(self._open(choice) for prompt in self._prompts for choice in prompt.choices)

    def _sample(self, prompt: _Prompt, delta: Delta) -> bytes:
        choice = prompt.choices[delta.index]
        choice.num_tokens += len(delta.token_ids)
        found = b""
        if not self._is_plain:
            if delta.text or delta.thoughts or delta.tool_calls or delta.token_ids:
                found = self._detailed(prompt, choice, delta)
        elif self._is_chat:
            if delta.thoughts:
                found = self._chunk(prompt, choice, {"delta": {"reasoning_content": delta.thoughts}})
            if delta.text:
                found += self._chunk(prompt, choice, {"delta": {"content": delta.text}})
            if delta.tool_calls:
                found += self._chunk(prompt, choice, {"delta": {"tool_calls": _calls(delta)}})
        elif delta.text:
            found = self._chunk(prompt, choice, {"text": delta.text})
        if found:
            found = self._open(choice) + found
        if delta.finish_reason is not None:
            found += self._close(prompt, choice, delta.finish_reason)
        return found

    def _detailed(self, prompt: _Prompt, choice: _Choice, delta: Delta) -> bytes:
        """One chunk with all of a delta, so that log probabilities and token ids stay beside their text."""
        details: dict[str, Any] = {}
        if self._shape.logprobs and delta.logprobs:
            details["logprobs"] = (
                chat_logprobs(delta.logprobs, ids_as_tokens=self._shape.ids_as_tokens)
                if self._is_chat
                else choice.logprobs.part(delta.logprobs)
            )
        if self._shape.token_ids:
            details["token_ids"] = list(delta.token_ids)
        if not self._is_chat:
            return self._chunk(prompt, choice, {"text": delta.text, **details})
        said: dict[str, Any] = {}
        if delta.thoughts:
            said["reasoning_content"] = delta.thoughts
        if delta.text or not (delta.thoughts or delta.tool_calls):
            said["content"] = delta.text
        if delta.tool_calls:
            said["tool_calls"] = _calls(delta)
        return self._chunk(prompt, choice, {"delta": said, **details})

    def _echo(self, prompt: _Prompt) -> bytes:
        """The prompt as the first text of each of its choices."""
        assert prompt.echo is not None
        found = b""
        for choice in prompt.choices:
            details: dict[str, Any] = {}
            if prompt.logprobs is not None:
                details["logprobs"] = choice.logprobs.prompt(prompt.echo, prompt.logprobs)
            if self._shape.token_ids:
                details |= {"prompt_token_ids": list(prompt.echo.token_ids), "token_ids": []}
            found += self._chunk(prompt, choice, {"text": prompt.echo.text, **details})
            choice.is_open = True
        return found

    def _open(self, choice: _Choice) -> bytes:
        if choice.is_open:
            return b""
        choice.is_open = True
        prompt = self._prompts[choice.index // self._shape.n]
        if not self._is_chat:
            if not self._shape.token_ids or prompt.echo is None:
                return b""
            ids = list(prompt.echo.token_ids)
            return self._chunk(prompt, choice, {"text": "", "prompt_token_ids": ids, "token_ids": []})
        opening = {"delta": {"role": "assistant", "content": ""}}
        if self._shape.token_ids and prompt.echo is not None:
            return self._chunk(prompt, choice, opening, prompt_token_ids=list(prompt.echo.token_ids))
        return self._chunk(prompt, choice, opening)

    def _close(self, prompt: _Prompt, choice: _Choice, reason: FinishReason) -> bytes:
        choice.is_finished = True
        last: dict[str, Any] = {"delta": {}} if self._is_chat else {"text": ""}
        return self._open(choice) + self._chunk(prompt, choice, last, finish_reason=OPENAI_FINISH[reason])

    def _chunk(
        self, prompt: _Prompt, choice: _Choice, said: dict[str, Any], *, finish_reason: str | None = None, **top: Any
    ) -> bytes:
        chunk = {
            **self._base,
            "choices": [{"index": choice.index, "logprobs": None, "finish_reason": finish_reason, **said}],
            **top,
        }
        if self._shape.continuous_usage:
            num_prompt = sum(len(one.echo.token_ids) for one in self._prompts if one.echo is not None)
            num_said = sum(one.num_tokens for prompt in self._prompts for one in prompt.choices)
            chunk["usage"] = Usage.counted(num_prompt, num_said).model_dump()
        return encode_chunk(chunk)


def _calls(delta: Delta) -> list[dict[str, Any]]:
    calls = []
    for call in delta.tool_calls:
        function = (
            {"arguments": call.arguments} if call.name is None else {"name": call.name, "arguments": call.arguments}
        )
        entry: dict[str, Any] = {"index": call.index, "function": function}
        if call.id is not None:
            entry |= {"id": call.id, "type": "function"}
        calls.append(entry)
    return calls
