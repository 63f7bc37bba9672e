"""One side's answer to a running turn: what has come so far, and the lane that it comes on."""

from dataclasses import dataclass, field

from controller.battles.battle_record import StoredAnswer, StoredSide
from controller.battles.turn_progress import SideProgress
from controller.workers.dispatch import Lane
from wire.chat import FinishReason, Usage


@dataclass
class SideAnswer:
    """One side's answer so far, with the model and the lane that produce it. After a take-over there is no lane at
    first, and `emitted` are the tokens that the former owner of the turn has written."""

    lane: Lane | None
    stored: StoredSide
    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    usage: Usage | None = None
    first_token_ms: float | None = None
    total_ms: float | None = None
    emitted: tuple[int, ...] = ()
    is_resumable: bool = True  #: False: text was written without its tokens

    @classmethod
    def resumed(cls, stored: StoredSide, progress: SideProgress) -> "SideAnswer":
        """The answer as the former owner of the turn has written it."""
        return cls(
            lane=None,
            stored=stored,
            texts=progress.texts.copy(),
            thoughts=progress.thoughts.copy(),
            finish_reason=progress.finish_reason,
            usage=progress.usage,
            first_token_ms=progress.first_token_ms,
            total_ms=progress.total_ms,
            emitted=tuple(progress.token_ids),
            is_resumable=progress.has_all_tokens,
        )

    @property
    def has_begun(self) -> bool:
        """Whether the first token has come."""
        return self.first_token_ms is not None

    async def close(self) -> None:
        """Give the lane back, if there is one."""
        if self.lane is not None:
            await self.lane.close()

    def to_store(self, shown_ms: float | None) -> StoredAnswer:
        """As it is kept in the battle; shown_ms: for how long it grew before its visitor's eyes."""
        return StoredAnswer(
            text="".join(self.texts),
            thoughts="".join(self.thoughts),
            finish_reason=self.finish_reason,
            usage=self.usage,
            first_token_ms=self.first_token_ms,
            total_ms=self.total_ms,
            shown_ms=shown_ms,
        )
