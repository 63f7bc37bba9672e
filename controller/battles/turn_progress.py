"""How far a running turn has come, read back from its events: what a controller needs to go on with the turn.

The event stream is the only record of a running answer. The field `private` of an event holds what clients do not get:
the token ids of a delta, the text that has come and may not have been shown (shared_pace.py), thoughts of hidden
models, times and token counts. An event `held` has nothing else, and no client gets it.
Pure functions, no I/O.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from controller.store.store import StreamEntry
from wire.battles import SIDES, DeltaEvent, FailedEvent, FinishedEvent, RestartedEvent, Side
from wire.chat import FinishReason, Usage
from wire.errors import ErrorDetail

HELD = "held"  #: event with what has come and is not shown yet


@dataclass
class SideProgress:
    """One side's answer as far as it was written. Times are milliseconds from the beginning of the turn."""

    texts: list[str] = field(default_factory=list)  #: that have come, in order
    thoughts: list[str] = field(default_factory=list)
    num_deltas: int = 0
    num_shown: int = 0  #: characters in the deltas
    token_ids: list[int] = field(default_factory=list)  #: for a replay
    has_all_tokens: bool = True  #: False: a delta lacks its token ids, so the answer cannot be continued
    finish_reason: FinishReason | None = None
    usage: Usage | None = None
    first_token_ms: float | None = None
    total_ms: float | None = None
    error: ErrorDetail | None = None  #: why the side failed

    @property
    def waiting(self) -> str:
        """Text that has come and was not shown."""
        return "".join(self.texts)[self.num_shown :]

    @property
    def has_ended(self) -> bool:
        """Whether the side has finished or failed."""
        return self.finish_reason is not None or self.error is not None

    @property
    def is_lost(self) -> bool:
        """Whether the answer can only begin again, and may: no client has seen any of it."""
        return not (self.has_all_tokens or self.num_deltas or self.has_ended)

    def add(self, text: str, thoughts: str, private: Mapping[str, Any]) -> None:
        """What has come; `private` says more of it."""
        self.texts.append(text)
        self.thoughts.append(thoughts)
        self.token_ids.extend(private.get("tokens", ()))
        if (text or thoughts) and not private.get("tokens"):
            self.has_all_tokens = False
        if self.first_token_ms is None:
            self.first_token_ms = private.get("first_token_ms")

    def add_held(self, private: Mapping[str, Any]) -> None:
        """What has come and was not shown."""
        self.add(private.get("text", ""), private.get("thoughts", ""), private)


def read_progress(entries: Iterable[StreamEntry]) -> dict[Side, SideProgress]:
    """The progress of both sides, from all events of the turn in their order."""
    sides = {side: SideProgress() for side in SIDES}
    for _, fields in entries:
        private = json.loads(fields.get("private", "{}"))
        match fields["event"]:
            case "delta":
                delta = DeltaEvent.model_validate_json(fields["data"])
                side = sides[delta.side]
                # Without a shared pace text is shown as it comes, and so are thoughts of known models.
                side.add(private.get("text", delta.text), private.get("thoughts", delta.thoughts), private)
                side.num_deltas += 1
                side.num_shown += len(delta.text)
                if side.first_token_ms is None:
                    side.first_token_ms = 0.0
            case event if event == HELD:
                for name, part in private.items():
                    sides[name].add_held(part)
            case "finished":
                finished = FinishedEvent.model_validate_json(fields["data"])
                side = sides[finished.side]
                side.add_held(private.get("held", {}))
                side.finish_reason, side.total_ms = finished.finish_reason, private.get("total_ms")
                usage = private.get("usage")
                side.usage = finished.usage if usage is None else Usage.model_validate(usage)
            case "failed":
                failed = FailedEvent.model_validate_json(fields["data"])
                sides[failed.side].add_held(private.get("held", {}))
                sides[failed.side].error = failed.error
            case "restarted":
                sides[RestartedEvent.model_validate_json(fields["data"]).side] = SideProgress()
    return {name: SideProgress() if side.is_lost else side for name, side in sides.items()}
