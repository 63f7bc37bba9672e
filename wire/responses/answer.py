"""An answer in the shape of `/v1/responses`: the events of its stream, and the object that it is in the end. Pure."""

from collections.abc import Iterator
from typing import Any

from wire.answer_blocks import AnswerBlocks, Block, BlockBegan, BlockEnded, BlockEvent, BlockGrew
from wire.answers import Delta, Finished
from wire.chat import FinishReason, Usage
from wire.errors import ApiError
from wire.openai.logprobs import chat_logprobs
from wire.responses.requests import ResponsesRequest
from wire.responses.tools import FunctionTool, HostedTool, ShownTools

_PREFIXES = {"thoughts": "rs", "text": "msg", "call": "fc"}

Event = dict[str, Any]


class ResponseAnswer:
    """Turns the pieces of one answer into the events of a stream; `whole` is the object as far as it has come.

    Mutable; used by one answer. The order is begin, push (any number of times), then finish or fail.
    """

    def __init__(self, request: ResponsesRequest, tools: ShownTools, *, answer_id: str, created: int) -> None:
        self._id = answer_id
        self._tools = tools
        self._blocks = AnswerBlocks()
        self._items: list[dict[str, Any]] = []
        self._logprobs: list[Any] = []  #: of the text that is open
        self._waiting: list[Any] = []  #: of tokens whose text has not come yet
        self._with_logprobs = request.wants_logprobs
        self._num_events = 0
        self.whole: dict[str, Any] = {
            "id": f"resp_{answer_id}",
            "object": "response",
            "created_at": created,
            "status": "in_progress",
            "error": None,
            "incomplete_details": None,
            **_echo(request),
            "output": [],
            "usage": None,
        }

    def begin(self, first: Delta | Finished) -> Iterator[Event]:
        """The two events that open a stream."""
        yield self._event("response.created", response=self._snapshot())
        yield self._event("response.in_progress", response=self._snapshot())

    def push(self, delta: Delta) -> Iterator[Event]:
        """The events of one piece of the answer."""
        if delta.logprobs and not delta.thoughts:
            self._waiting += chat_logprobs(delta.logprobs, ids_as_tokens=False)["content"]
        for event in self._blocks.push(delta.thoughts, delta.text, delta.tool_calls):
            yield from self._block_events(event)

    def finish(self, reason: FinishReason, usage: Usage) -> Iterator[Event]:
        """The last events: the open item ends, then the whole response."""
        if not (self._blocks.ended or self._items):
            yield from self._block_events(BlockBegan(Block(0, "text")))
            yield from self._end(Block(0, "text"), "completed")
        is_cut = reason == "length"
        for event in self._blocks.end():
            yield from self._end(event.block, "incomplete" if is_cut else "completed")
        self.whole["status"] = "incomplete" if is_cut else "completed"
        if is_cut:
            self.whole["incomplete_details"] = {"reason": "max_output_tokens"}
        self.whole["usage"] = _usage(usage)
        yield self._event("response.incomplete" if is_cut else "response.completed", response=self._snapshot())

    def fail(self, error: ApiError) -> Iterator[Event]:
        """The last event of an answer that broke off."""
        self.whole |= {"status": "failed", "error": {"code": "server_error", "message": error.message}}
        yield self._event("response.failed", response=self._snapshot())

    def _block_events(self, event: BlockEvent) -> Iterator[Event]:
        block = event.block
        place = {"item_id": self._item_id(block), "output_index": block.index}
        match event:
            case BlockBegan():
                self._logprobs = []
                self._items.append(self._item(block, "in_progress", is_empty=True))
                yield self._event("response.output_item.added", output_index=block.index, item=self._items[-1])
                if block.kind != "call":
                    yield self._event("response.content_part.added", **place, content_index=0, part=self._part(block))
            case BlockGrew(piece=piece):
                match block.kind:
                    case "call":
                        yield self._event("response.function_call_arguments.delta", **place, delta=piece)
                    case "thoughts":
                        yield self._event("response.reasoning_text.delta", **place, content_index=0, delta=piece)
                    case "text":
                        logprobs, self._waiting = self._waiting, []
                        self._logprobs += logprobs
                        yield self._event(
                            "response.output_text.delta",
                            **place,
                            content_index=0,
                            delta=piece,
                            logprobs=logprobs,
                        )
            case BlockEnded():
                yield from self._end(block, "completed")

    def _end(self, block: Block, status: str) -> Iterator[Event]:
        place = {"item_id": self._item_id(block), "output_index": block.index}
        match block.kind:
            case "call":
                name = self._tools.split(block.name)["name"]
                yield self._event("response.function_call_arguments.done", **place, name=name, arguments=block.text)
            case "thoughts":
                yield self._event("response.reasoning_text.done", **place, content_index=0, text=block.text)
            case "text":
                yield self._event(
                    "response.output_text.done", **place, content_index=0, text=block.text, logprobs=self._logprobs
                )
        if block.kind != "call":
            yield self._event("response.content_part.done", **place, content_index=0, part=self._part(block))
        self._items[block.index] = self._item(block, status)
        self.whole["output"] = list(self._items)
        yield self._event("response.output_item.done", output_index=block.index, item=self._items[block.index])

    def _item_id(self, block: Block) -> str:
        return f"{_PREFIXES[block.kind]}_{self._id}_{block.index}"

    def _item(self, block: Block, status: str, *, is_empty: bool = False) -> dict[str, Any]:
        item = {"id": self._item_id(block), "status": status}
        if block.kind == "call":
            call = {"call_id": block.call_id, **self._tools.split(block.name), "arguments": block.text}
            return {"type": "function_call", **item, **call}
        content = [] if is_empty else [self._part(block)]
        if block.kind == "thoughts":
            return {"type": "reasoning", **item, "summary": [], "content": content}
        return {"type": "message", **item, "role": "assistant", "content": content}

    def _part(self, block: Block) -> dict[str, Any]:
        if block.kind == "thoughts":
            return {"type": "reasoning_text", "text": block.text}
        part = {"type": "output_text", "text": block.text, "annotations": []}
        return {**part, "logprobs": list(self._logprobs)} if self._with_logprobs else part

    def _snapshot(self) -> dict[str, Any]:
        return dict(self.whole)

    def _event(self, kind: str, **fields: Any) -> Event:
        self._num_events += 1
        return {"type": kind, "sequence_number": self._num_events - 1, **fields}


def _echo(request: ResponsesRequest) -> dict[str, Any]:
    """The fields of a request that its response repeats."""
    given = request.model_dump(mode="json", by_alias=True, exclude_none=True)
    choice = request.tool_choice
    return {
        "model": request.model,
        "instructions": request.instructions,
        "max_output_tokens": request.max_output_tokens,
        "metadata": request.metadata or {},
        "parallel_tool_calls": True if request.parallel_tool_calls is None else request.parallel_tool_calls,
        "previous_response_id": None,
        "reasoning": {"effort": request.reasoning.effort if request.reasoning is not None else None, "summary": None},
        "service_tier": "default",
        "store": False,
        "temperature": request.temperature,
        "text": {"format": request.output_format.model_dump(by_alias=True, exclude_none=True)},
        "tool_choice": "auto" if choice is None else given["tool_choice"],
        "tools": [
            {"parameters": None, "strict": None, **said} if isinstance(tool, FunctionTool) else said
            for tool, said in zip(request.tools, given.get("tools", ()), strict=True)
            if not isinstance(tool, HostedTool)
        ],
        "top_logprobs": request.top_logprobs or 0,
        "top_p": request.top_p,
        "truncation": "disabled",
        "background": False,
    }


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.prompt_tokens_details.cached_tokens,
            "cache_write_tokens": 0,
        },
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.completion_tokens_details.reasoning_tokens},
        "total_tokens": usage.total_tokens,
    }
