"""Turns dialogues into padded batches of token ids, with a loss on the assistant's tokens only.

Dialogues of similar length share a batch, so that little is padding; dialogues are never packed into one row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import torch
from tokenizers import Tokenizer

from demo_models.train.architectures import (
    ASSISTANT_ID,
    CONTEXT,
    END_ID,
    ENDOFTEXT_ID,
    SYSTEM_ID,
    TOOL_ID,
    USER_ID,
)
from demo_models.train.dialogues import Dialogue
from demo_models.train.recipe import Recipe

POOL_DIALOGUES = 2048
IGNORED = -100


@dataclass(frozen=True)
class Batch:
    """One padded batch. inputs, targets: (B, T); a target is the next token, or IGNORED for positions without loss."""

    inputs: torch.Tensor
    targets: torch.Tensor
    num_tokens: int


def _encode(tokenizer: Tokenizer, texts: list[str]) -> Iterator[list[int]]:
    return (encoding.ids for encoding in tokenizer.encode_batch(texts, add_special_tokens=False))


def tokens_with_loss(tokenizer: Tokenizer, examples: list[Dialogue]) -> list[tuple[list[int], list[bool]]]:
    """Encode each dialogue as the chat template writes it; the flags mark the assistant's tokens and its end marker."""
    pieces = _encode(tokenizer, [text for d in examples for t in d.turns for text in (t.user, t.assistant)])
    encoded: list[tuple[list[int], list[bool]]] = []
    for example in examples:
        ids: list[int] = []
        if example.system is not None:
            ids = [SYSTEM_ID, *tokenizer.encode(example.system, add_special_tokens=False).ids, END_ID]
        flags = [False] * len(ids)
        for turn in example.turns:
            user, assistant = next(pieces), next(pieces)
            if len(ids) + len(user) + len(assistant) + 4 > CONTEXT:
                continue  # later turns are encoded already, so the loop must consume them
            ids += [TOOL_ID if turn.role == "tool" else USER_ID, *user, END_ID, ASSISTANT_ID, *assistant, END_ID]
            flags += [False] * (len(user) + 3) + [True] * (len(assistant) + 1)
        encoded.append((ids, flags))
    return encoded


def _batch(rows: list[tuple[list[int], list[bool]]]) -> Batch:
    length = max(len(ids) for ids, _ in rows) - 1
    inputs = torch.full((len(rows), length), ENDOFTEXT_ID)
    targets = torch.full((len(rows), length), IGNORED)
    for row, (ids, flags) in enumerate(rows):
        inputs[row, : len(ids) - 1] = torch.tensor(ids[:-1])
        wanted = [token if flag else IGNORED for token, flag in zip(ids[1:], flags[1:], strict=True)]
        targets[row, : len(ids) - 1] = torch.tensor(wanted)
    return Batch(inputs, targets, sum(len(ids) for ids, _ in rows))


def pool_batches(tokenizer: Tokenizer, recipe: Recipe, pool: int) -> list[Batch]:
    """Return the batches of pool number `pool`, in training order. The same arguments give the same batches."""
    first = pool * POOL_DIALOGUES
    rows = tokens_with_loss(tokenizer, [recipe.dialogues(recipe.seed, first + i) for i in range(POOL_DIALOGUES)])
    rows.sort(key=lambda row: len(row[0]))
    batches: list[Batch] = []
    start = 0
    for end in range(1, len(rows) + 1):
        if end == len(rows) or (end + 1 - start) * len(rows[end][0]) > recipe.micro_tokens:
            batches.append(_batch(rows[start:end]))
            start = end
    Random(f"{recipe.seed}/pool/{pool}").shuffle(batches)
    return batches
