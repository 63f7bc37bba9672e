"""The result of a skill: one user turn with its answer; and the split that keeps test problems out of training.

This module does not know the tokenizer or a model. All randomness comes from the `random.Random` that the caller
passes."""

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
    """One exchange. `answer` is the text that a correct reply must contain, `typing` how the user's text may be
    mistyped."""

    user: str
    assistant: str
    answer: str = ""
    #: free: case, punctuation and typos; case: no typos; fixed: as written, the answer depends on each letter.
    typing: Typing = "free"
    match: Match = "contains"
    #: who speaks before the assistant: a tool's turn is its result, and `user` the text of it
    role: Literal["user", "tool"] = "user"


def split_of(problem: str) -> Split:
    """The split of a problem, by a hash of its name: the same in each run, skill and phrasing."""
    digest = blake2b(problem.encode(), digest_size=4).digest()
    return "test" if int.from_bytes(digest, "big") % 100 < TEST_SHARE_PERCENT else "train"


def phrasings(split: Split, train: Sequence[T], test: Sequence[T]) -> Sequence[T]:
    """The phrasings of a split, for finite tables: each fact is trained and only wordings are held out."""
    return train if split == "train" else test


def pick(rng: Random, *options: str) -> str:
    """One of the options, at random."""
    return rng.choice(options)
