"""The protocol of what proposes tokens: an index of the sequence's own tokens (ngram.py), or a smaller model
(draft_model.py)."""

from collections.abc import Sequence as ReadOnly
from typing import NamedTuple, Protocol

from engine.request import Request, Sequence


class Wanted(NamedTuple):
    """A sequence whose newest token is known, and the most tokens that may be proposed to follow it."""

    request: Request
    sequence: Sequence
    max_tokens: int  #: at least 1


class Proposal(NamedTuple):
    """Tokens that may follow a sequence. Proposals of one source are about equally often right."""

    token_ids: tuple[int, ...]
    source: int  #: e.g. how long the n-gram was; below Proposer.num_sources


class Proposer(Protocol):
    """Makes proposals, and keeps what it needs of each sequence until `forget`. A proposal may be anything: it changes
    how many steps an answer takes, never its tokens."""

    @property
    def name(self) -> str:
        """For logs and metrics."""
        ...

    @property
    def num_sources(self) -> int:
        """Kinds of proposals that are told apart."""
        ...

    @property
    def max_rows(self) -> int | None:
        """Most rows of a step beside which proposals are asked for; None: any number."""
        ...

    @property
    def is_free(self) -> bool:
        """Whether proposals cost next to nothing, so that they may be made only to see how often they are right."""
        ...

    def propose(self, wanted: ReadOnly[Wanted]) -> list[Proposal | None]:
        """A proposal for each sequence; None where there is none."""
        ...

    def seconds_per_token(self) -> float | None:
        """What it has cost lately to propose one token; None: it is not known yet."""
        ...

    def free_pages(self) -> bool:
        """Give up all pages of the pool, because sequences need them; false where it held none."""
        ...

    def forget(self, sequence_id: int) -> None:
        """The sequence has ended."""
        ...

    def close(self) -> None:
        """Free the memory; nothing is asked afterwards."""
        ...
