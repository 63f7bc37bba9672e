"""The blocks of an answer in their order: thoughts, text, calls of tools. Pure.

Replies of `/v1/responses` and `/v1/messages` are lists of such blocks, of which a stream has one open at a time.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from wire.answers import ToolCallDelta
from wire.sse import SseEvent, encode

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))

BlockKind = Literal["thoughts", "text", "call"]


@dataclass(frozen=True, slots=True)
class Block:
    """One block. `text` is what it holds so far; in a block of kind "call" these are the arguments."""

    index: int
    kind: BlockKind
    text: str = ""
    call_id: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class BlockBegan:
    """A block is open now; it is still empty."""

    block: Block


@dataclass(frozen=True, slots=True)
class BlockGrew:
    """`piece` was added to the open block."""

    block: Block
    piece: str


@dataclass(frozen=True, slots=True)
class BlockEnded:
    """The block is complete."""

    block: Block


BlockEvent = BlockBegan | BlockGrew | BlockEnded


def encode_event(event: Mapping[str, Any]) -> bytes:
    """One event of a stream as a server-sent event, named after its type."""
    return encode(SseEvent(_ENCODER.encode(event), event=event["type"]))


class AnswerBlocks:
    """Collects the pieces of one answer into blocks. Mutable; used by one answer."""

    def __init__(self) -> None:
        self._ended: list[Block] = []
        self._open: Block | None = None
        self._pieces: list[str] = []
        self._call: int | None = None

    @property
    def ended(self) -> Sequence[Block]:
        """The complete blocks, in the order of the answer."""
        return self._ended

    def push(self, thoughts: str = "", text: str = "", calls: Iterable[ToolCallDelta] = ()) -> Iterator[BlockEvent]:
        """Add one piece of the answer; yields what changes, in order."""
        if thoughts:
            yield from self._grow("thoughts", thoughts)
        if text:
            yield from self._grow("text", text)
        for call in calls:
            if self._open is None or self._call != call.index:
                yield from self._begin("call", call.id or "", call.name or "", call=call.index)
            yield from self._add(call.arguments)

    def end(self) -> Iterator[BlockEvent]:
        """Close the open block, if there is one."""
        if self._open is not None:
            block = replace(self._open, text="".join(self._pieces))
            self._ended.append(block)
            self._open, self._call = None, None
            yield BlockEnded(block)

    def _grow(self, kind: BlockKind, piece: str) -> Iterator[BlockEvent]:
        if self._open is None or self._open.kind != kind:
            yield from self._begin(kind)
        yield from self._add(piece)

    def _begin(
        self, kind: BlockKind, call_id: str = "", name: str = "", call: int | None = None
    ) -> Iterator[BlockEvent]:
        yield from self.end()
        self._open = Block(len(self._ended), kind, call_id=call_id, name=name)
        self._pieces, self._call = [], call
        yield BlockBegan(self._open)

    def _add(self, piece: str) -> Iterator[BlockEvent]:
        if piece and self._open is not None:
            self._pieces.append(piece)
            yield BlockGrew(self._open, piece)
