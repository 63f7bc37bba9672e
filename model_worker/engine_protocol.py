"""The engine as the worker sees it: prompts in, a stream of pieces out, and a snapshot of its load.

Implemented by PagedEngine (Agon's own engine), EchoEngine (for development and tests) and RemoteEngine (another
server). Nothing here imports torch. Errors that concern one request are raised as ApiError.
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol

from wire.chat import ChatMessage, FinishReason, SamplingOptions, Usage
from wire.workers import Capacity, Load, ModelCard, PoolPicture

PromptSource = tuple[ChatMessage, ...] | str  #: a conversation, or plain text to go on with


@dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered prompt. `token_ids` is empty where only the other end knows them (RemoteEngine)."""

    source: PromptSource
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Accepted:
    """The request stands in the engine's queue: from here on failures come as part of the stream."""


@dataclass(frozen=True, slots=True)
class Delta:
    """Text and tokens of one or more steps; either may be empty. `queue_s`, on the first one: time until scheduled."""

    text: str
    token_ids: tuple[int, ...]
    queue_s: float | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """The answer is complete. Always last."""

    finish_reason: FinishReason
    usage: Usage


Piece = Accepted | Delta | Finished


class Engine(Protocol):
    """Made ready by its constructor or factory; used from the event loop, except for `tokenise`."""

    @property
    def card(self) -> ModelCard: ...

    @property
    def capacity(self) -> Capacity: ...

    @property
    def operators(self) -> str | None:
        """What the model is computed with on this machine; None where it is computed elsewhere, or not at all."""
        ...

    @property
    def is_alive(self) -> bool:
        """False for ever once nothing will be answered any more."""
        ...

    def tokenise(self, source: PromptSource) -> Prompt:
        """Render and encode. Thread-safe and touches no engine state: long prompts are done off the event loop."""
        ...

    def generate(
        self, prompt: Prompt, sampling: SamplingOptions, *, request_id: str, resume_token_ids: tuple[int, ...] = ()
    ) -> AsyncGenerator[Piece, None]:
        """Accepted, then deltas, then Finished. Refusals are raised instead of Accepted.

        Closing the generator, at any point, aborts the request within one step and frees its pages.
        """
        ...

    def load(self) -> Load:
        """Cheap: asked at every heartbeat, probe and scrape."""
        ...

    async def picture(self) -> PoolPicture | None:
        """The page pool in address order; None where the engine has none of its own. May wait for a step to end."""
        ...

    async def shutdown(self) -> None:
        """Abort what still runs and stop. Idempotent."""
        ...
