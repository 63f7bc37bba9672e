"""What a skill hands out: one user turn with its answer, and the split that keeps test problems out of training.

Nothing here knows the tokenizer or a model. All randomness comes from the `random.Random` that the caller passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from random import Random
from typing import Literal, TypeVar

Split = Literal["train", "test"]
Typing = Literal["free", "case", "fixed"]
Match = Literal["contains", "last_number", "any_case", "refusal"]
T = TypeVar("T")

TEST_SHARE_PERCENT = 10


@dataclass(frozen=True)
class Turn:
    """One exchange. `answer` is what a correct reply must hold, `typing` how freely the user text may be mistyped."""

    user: str
    assistant: str
    answer: str = ""
    #: free: case, punctuation and typos; case: no typos; fixed: as written, the answer depends on each letter.
    typing: Typing = "free"
    match: Match = "contains"


def split_of(problem: str) -> Split:
    """Put a problem, named by its content, on one side for ever: the same in each run, skill and phrasing."""
    digest = blake2b(problem.encode(), digest_size=4).digest()
    return "test" if int.from_bytes(digest, "big") % 100 < TEST_SHARE_PERCENT else "train"


def phrasings(split: Split, train: Sequence[T], test: Sequence[T]) -> Sequence[T]:
    """Choose the phrasings of a finite table, where each fact is trained and only its wording can be held out."""
    return train if split == "train" else test


def pick(rng: Random, *options: str) -> str:
    return rng.choice(options)
