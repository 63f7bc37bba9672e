"""What follows the newest tokens earlier in a text is proposed."""

import random
from types import SimpleNamespace

import pytest

from engine.drafts.ngram import LENGTHS, NgramProposer
from engine.drafts.proposer import Proposal, Wanted


def propose(proposer: NgramProposer, tokens: list[int], max_tokens: int = 4, sequence_id: int = 0) -> Proposal | None:
    sequence = SimpleNamespace(sequence_id=sequence_id, token_ids=tokens)
    return proposer.propose([Wanted(None, sequence, max_tokens)])[0]  # type: ignore[arg-type]


def test_the_last_occurrence_of_the_longest_ngram_is_continued() -> None:
    tokens = [1, 2, 3, 4, 50, 9, 3, 4, 60, 1, 2, 3, 4]
    assert propose(NgramProposer(), tokens) == Proposal((50, 9, 3, 4), LENGTHS.index(4))
    assert propose(NgramProposer(), tokens[1:]) == Proposal((50, 9, 3, 4), LENGTHS.index(3))
    assert propose(NgramProposer(), [8, 3, 4, 60, 5, 3, 4, 70, 3, 4]) == Proposal((70, 3, 4, 70), LENGTHS.index(2))


def test_a_text_that_repeats_its_end_goes_on_repeating_it() -> None:
    proposal = propose(NgramProposer(), [7, 8, 7, 8, 7, 8], max_tokens=5)
    assert proposal is not None
    assert proposal.token_ids == (7, 8, 7, 8, 7)


@pytest.mark.parametrize("tokens", [[1], [1, 2], [1, 2, 3, 4, 5]])
def test_new_text_has_no_proposal(tokens: list[int]) -> None:
    assert propose(NgramProposer(), tokens) is None


@pytest.mark.parametrize("seed", range(8))
def test_a_growing_text_is_found_like_one_that_is_read_at_once(seed: int) -> None:
    numbers = random.Random(seed)
    tokens = [numbers.randrange(4) for _ in range(200)]
    growing = NgramProposer()
    length = 1
    while length <= len(tokens):
        assert propose(growing, tokens[:length]) == propose(NgramProposer(), tokens[:length])
        length += numbers.randint(1, 5)


def test_sequences_do_not_know_of_each_other_and_are_forgotten() -> None:
    proposer = NgramProposer()
    assert propose(proposer, [1, 2, 3, 1, 2], sequence_id=0) is not None
    assert propose(proposer, [9, 1, 2], sequence_id=1) is None
    proposer.forget(0)
    proposer.forget(5)
    assert propose(proposer, [1, 2], sequence_id=0) is None
