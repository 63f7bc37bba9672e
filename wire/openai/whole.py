"""From the pieces of an answer to one whole OpenAI completion."""

from dataclasses import dataclass, field
from typing import Any

from wire.answers import Delta, Finished, PromptEcho, TokenLogprob
from wire.chat import FinishReason, Usage
from wire.openai.logprobs import TextLogprobs, chat_logprobs
from wire.openai.shape import AnswerHead, AnswerShape
from wire.openai.shaping import OPENAI_FINISH, total_usage


@dataclass(slots=True)
class _Call:
    id: str
    name: str
    arguments: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Sample:
    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    calls: dict[int, _Call] = field(default_factory=dict)
    finish_reason: FinishReason | None = None

    def take(self, delta: Delta) -> None:
        self.texts.append(delta.text)
        self.thoughts.append(delta.thoughts)
        self.token_ids += delta.token_ids
        self.logprobs += delta.logprobs or ()
        for piece in delta.tool_calls:
            call = self.calls.setdefault(piece.index, _Call(piece.id or "", piece.name or ""))
            call.arguments.append(piece.arguments)
        if delta.finish_reason is not None:
            self.finish_reason = delta.finish_reason


@dataclass(slots=True)
class _Prompt:
    samples: list[_Sample]
    echo: PromptEcho | None = None
    logprobs: tuple[TokenLogprob | None, ...] | None = None


class WholeShaper:
    """Gathers the pieces of one answer; `completion` makes the object of a request without `stream`."""

    def __init__(self, shape: AnswerShape, head: AnswerHead) -> None:
        self._shape = shape
        name = "chat.completion" if shape.kind == "chat" else "text_completion"
        self._base = {"id": head.id, "object": name, "created": head.created, "model": head.model}
        self._usages: list[Usage] = []
        self._prompts = [_Prompt([_Sample() for _ in range(shape.n)]) for _ in range(shape.num_prompts)]

    def delta(self, which: int, delta: Delta) -> None:
        """Take a delta of prompt `which`."""
        prompt = self._prompts[which]
        if delta.prompt is not None:
            prompt.echo = delta.prompt
            return
        if delta.prompt_logprobs is not None:
            prompt.logprobs = delta.prompt_logprobs
        prompt.samples[delta.index].take(delta)

    def finished(self, which: int, finished: Finished) -> None:
        """Take the end of prompt `which`."""
        self._usages.append(finished.usage)
        for sample in self._prompts[which].samples:
            if sample.finish_reason is None:
                sample.finish_reason = finished.finish_reason

    def completion(self) -> dict[str, Any]:
        """The whole answer."""
        choices = [
            self._choice(which * self._shape.n + index, prompt, sample)
            for which, prompt in enumerate(self._prompts)
            for index, sample in enumerate(prompt.samples)
        ]
        usage = total_usage(self._usages)
        whole = {**self._base, "choices": choices, "usage": usage.model_dump()}
        echo = self._prompts[0].echo
        if self._shape.token_ids and self._shape.kind == "chat" and echo is not None:
            whole["prompt_token_ids"] = list(echo.token_ids)
        return whole

    def _choice(self, index: int, prompt: _Prompt, sample: _Sample) -> dict[str, Any]:
        reason = OPENAI_FINISH[sample.finish_reason or "stop"]
        choice: dict[str, Any] = {"index": index, "logprobs": None, "finish_reason": reason}
        if self._shape.logprobs:
            choice["logprobs"] = self._logprobs(prompt, sample)
        if self._shape.token_ids:
            choice["token_ids"] = list(sample.token_ids)
        if self._shape.kind == "chat":
            choice["message"] = _message(sample)
            return choice
        if self._shape.token_ids and prompt.echo is not None:
            choice["prompt_token_ids"] = list(prompt.echo.token_ids)
        before = prompt.echo.text if self._shape.echo and prompt.echo is not None else ""
        choice["text"] = before + "".join(sample.texts)
        return choice

    def _logprobs(self, prompt: _Prompt, sample: _Sample) -> dict[str, Any]:
        ids_as_tokens = self._shape.ids_as_tokens
        if self._shape.kind == "chat":
            return chat_logprobs(sample.logprobs, ids_as_tokens=ids_as_tokens)
        text = TextLogprobs(ids_as_tokens=ids_as_tokens)
        if not self._shape.echo or prompt.echo is None:
            return text.part(sample.logprobs)
        before = text.prompt(prompt.echo, prompt.logprobs or ())
        after = text.part(sample.logprobs)
        return {name: values + after[name] for name, values in before.items()}


def _message(sample: _Sample) -> dict[str, Any]:
    content = "".join(sample.texts)
    message: dict[str, Any] = {"role": "assistant", "content": content or (None if sample.calls else "")}
    if thoughts := "".join(sample.thoughts):
        message["reasoning_content"] = thoughts
    if sample.calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": "".join(call.arguments)}}
            for _, call in sorted(sample.calls.items())
        ]
    return message
