"""Masks over a real vocabulary, in which most texts can be written with several sequences of tokens."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.batch import TokenMasks
from engine.constraints.compiler import GrammarCompiler
from engine.constraints.steered_sequence import SteeredSequence
from engine.constraints.steering import Steering
from engine.constraints.vocabulary import Vocabulary
from engine.kernels.cpu.operators import CppOperators
from engine.sampling.masks import forbid_tokens
from engine.sampling_params import Constraint
from engine.text.tokenizer import Tokenizer
from tests.engine.constraints.exact_filter import CASES, Judge
from tests.engine.kernels.libraries import USABLE, library

RAVEN = Tokenizer.from_folder(Path(__file__).parents[3] / "demo_models/raven")
STOP = 4
WORDS = Vocabulary(RAVEN, 2048, frozenset({STOP}))
PIECES = [b"" if RAVEN.is_special(token_id) else RAVEN.token_bytes(token_id) for token_id in range(WORDS.size)]


def opened(steering: Steering, constraint: Constraint, stop_ids: frozenset[int]) -> SteeredSequence:
    return SteeredSequence(WORDS, steering.compiler.start(constraint), None, stop_ids)


def allowed(words: np.ndarray) -> set[int]:
    return set(np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little")[: WORDS.size]).tolist())


@pytest.mark.parametrize(("constraint", "judge"), CASES, ids=lambda case: getattr(case, "kind", ""))
def test_every_token_with_which_the_text_can_become_valid_is_allowed(constraint: Constraint, judge: Judge) -> None:
    steering, chance = Steering(GrammarCompiler(WORDS)), random.Random(1)
    sequence, text, reason = opened(steering, constraint, frozenset({STOP})), b"", None
    for _ in range(12):
        fitting = {i for i, piece in enumerate(PIECES) if piece and judge(text + piece)[0]}
        ends = {STOP} if judge(text)[1] else set()
        assert allowed(steering.masks_of([sequence])[0]) == fitting | ends
        token = chance.choice(sorted(fitting))
        text += PIECES[token]
        reason = sequence.advance(token, is_thinking=False, text="")
        if reason is not None:
            assert (reason, judge(text)[1]) == ("stop", True)
            break


def test_a_mask_is_the_same_alone_and_among_others_that_end_otherwise() -> None:
    """Also where the first masks take so long that threads compute the rest."""
    constraints = [constraint for constraint, _ in CASES] * 4
    ends = [frozenset({STOP}), frozenset({STOP, 300}), frozenset({3000})]
    for patience_s in (0.0, 1.0):
        steering = Steering(GrammarCompiler(WORDS), patience_s=patience_s)
        sequences = [opened(steering, each, ends[i % 3]) for i, each in enumerate(constraints)]
        together = steering.masks_of(sequences)
        assert [row.tobytes() for row in together] == [steering.masks_of([each])[0].tobytes() for each in sequences]


@pytest.mark.parametrize("instruction_set", USABLE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("vocab_size", [7, 64, 2047, 5003])
def test_the_operator_forbids_what_torch_forbids(instruction_set: str, dtype: torch.dtype, vocab_size: int) -> None:
    operators = CppOperators(library(instruction_set), dtype)
    chance = np.random.default_rng(vocab_size)
    words = chance.integers(-(2**31), 2**31, (4, -(-vocab_size // 32)), dtype=np.int64).astype(np.int32)
    words[1], words[2] = -1, 0
    wider = torch.randn(7, vocab_size + 5, generator=torch.Generator().manual_seed(1)).to(dtype)
    scores = wider[:, :vocab_size]
    expected = scores.clone()
    masks = TokenMasks(np.array([0, 2, 3, 6]), words)
    forbid_tokens(expected, masks)
    operators.forbid(scores, masks)
    assert torch.equal(scores, expected)
    assert torch.isinf(scores[3]).all()
    assert torch.isfinite(wider[:, vocab_size:]).all()


def test_a_grammar_that_has_failed_fails_no_other_mask() -> None:
    steering = Steering(GrammarCompiler(WORDS))
    broken, sound = (opened(steering, CASES[1][0], frozenset({STOP})) for _ in range(2))
    assert broken.advance(RAVEN.encode("x")[0], is_thinking=False, text="") == "abort"
    alone = steering.masks_of([sound])[0]
    assert (steering.masks_of([broken, sound])[1] == alone).all()
    assert broken.is_broken
