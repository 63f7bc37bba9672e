"""An answer in the shape of `/v1/messages`: the events of its stream, and the message that it is in the end. Pure."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from wire.answer_blocks import AnswerBlocks, Block, BlockBegan, BlockEnded, BlockEvent, BlockGrew
from wire.answers import Delta, Finished
from wire.anthropic.errors import error_body
from wire.chat import FinishReason, Usage
from wire.errors import ApiError

_DELTAS = {
    "thoughts": ("thinking_delta", "thinking"),
    "text": ("text_delta", "text"),
    "call": ("input_json_delta", "partial_json"),
}

Event = dict[str, Any]
AppliedEdit = dict[str, Any]  #: of context_management, as the answer tells it


class MessageAnswer:
    """Turns the pieces of one answer into the events of a stream; `whole` is the object as far as it has come.

    The text of a stopped answer ends with its stop sequence (`include_stop_str_in_output`): it is taken out here, and
    `stop_sequence` tells it. Mutable; used by one answer. The order is begin, push (any number of times), then finish
    or fail.
    """

    def __init__(
        self,
        *,
        answer_id: str,
        model: str,
        stop_sequences: Iterable[str] = (),
        applied_edits: Sequence[AppliedEdit] | None = None,
    ) -> None:
        """applied_edits: what was left out of the conversation; None: the request did not ask for it."""
        self._blocks = AnswerBlocks()
        self._stops = sorted(stop_sequences, key=len, reverse=True)
        self._held = ""  #: a stop sequence at the end of the text so far
        self.whole: dict[str, Any] = {
            "id": f"msg_{answer_id}",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 0, "output_tokens": 0},
        }
        self._edits: dict[str, Any] = {}
        if applied_edits is not None:
            self._edits = {"context_management": {"applied_edits": list(applied_edits)}}

    def begin(self, first: Delta | Finished) -> Iterator[Event]:
        """The event that opens a stream. It has the token counts of the prompt, where the model's server tells them
        before its answer; the last event but one has all counts."""
        match first:
            case Delta(prompt_counts=(num_prompt, num_cached)):
                self.whole["usage"] = _usage(Usage.counted(num_prompt, 0, num_cached))
            case Finished():
                self.whole["usage"] = _usage(Usage.counted(first.usage.prompt_tokens, 0, _cached(first.usage)))
        yield {"type": "message_start", "message": {**self.whole, "content": []}}

    def push(self, delta: Delta) -> Iterator[Event]:
        """The events of one piece of the answer."""
        said = self._held + delta.text
        self._held = "" if delta.tool_calls else next((stop for stop in self._stops if said.endswith(stop)), "")
        for event in self._blocks.push(delta.thoughts, said.removesuffix(self._held), delta.tool_calls):
            yield from self._block_events(event)

    def finish(self, reason: FinishReason, usage: Usage) -> Iterator[Event]:
        """The last events: the open block ends, then why the answer ended and what it took."""
        stop = self._held if reason == "stop" else ""
        if self._held and not stop:
            for event in self._blocks.push(text=self._held):
                yield from self._block_events(event)
        for event in self._blocks.end():
            yield from self._block_events(event)
        has_calls = any(block.kind == "call" for block in self._blocks.ended)
        ended = {"stop_reason": _stop_reason(reason, stop, has_calls), "stop_sequence": stop or None}
        self.whole |= {**ended, "usage": _usage(usage), **self._edits}
        yield {"type": "message_delta", "delta": ended, "usage": _usage(usage), **self._edits}
        yield {"type": "message_stop"}

    def fail(self, error: ApiError) -> Iterator[Event]:
        """The last event of an answer that broke off."""
        yield error_body(error).model_dump(mode="json")

    def _block_events(self, event: BlockEvent) -> Iterator[Event]:
        block = event.block
        match event:
            case BlockBegan():
                yield {"type": "content_block_start", "index": block.index, "content_block": _content(block)}
            case BlockGrew(piece=piece):
                kind, field = _DELTAS[block.kind]
                yield {"type": "content_block_delta", "index": block.index, "delta": {"type": kind, field: piece}}
            case BlockEnded():
                self.whole["content"].append(_content(block))
                yield {"type": "content_block_stop", "index": block.index}


def _content(block: Block) -> dict[str, Any]:
    match block.kind:
        case "thoughts":
            return {"type": "thinking", "thinking": block.text, "signature": ""}
        case "call":
            return {"type": "tool_use", "id": block.call_id, "name": block.name, "input": _input(block.text)}
        case "text":
            return {"type": "text", "text": block.text}


def _input(arguments: str) -> dict[str, Any]:
    """The input of a call. A model that is free to write anything may write what is no object: that is kept as text."""
    try:
        found = json.loads(arguments or "{}")
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"arguments": arguments}


def _stop_reason(reason: FinishReason, stop_sequence: str, has_calls: bool) -> str:
    if reason == "length":
        return "max_tokens"
    if stop_sequence:
        return "stop_sequence"
    return "tool_use" if has_calls else "end_turn"


def _usage(usage: Usage) -> dict[str, Any]:
    """Tokens read from the prefix cache are no part of input_tokens."""
    cached = _cached(usage)
    return {
        "input_tokens": usage.prompt_tokens - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": usage.completion_tokens,
    }


def _cached(usage: Usage) -> int:
    return usage.prompt_tokens_details.cached_tokens
