"""The admission rule: pages that sequences need, and whether a pool can ever hold them."""

from engine.memory.admission import AdmissionRule
from engine.memory.spec import LayerSpec
from tests.engine.memory.pool_driver import MIXES, plan_of


def test_the_null_page_is_not_counted_as_room() -> None:
    rule = AdmissionRule(plan_of(MIXES["1"], num_pages=3))
    assert rule.fits_ever([12])
    assert not rule.fits_ever([13])


def test_sequences_that_share_a_prefix_need_its_full_pages_once() -> None:
    rule = AdmissionRule(plan_of(MIXES["1"], num_pages=8))
    assert rule.needs([12, 12, 12], num_shared_tokens=10) == (2 + 3 * 1,)
    assert rule.needs([12, 12, 12]) == (9,)


def test_room_is_counted_in_large_pages_per_type() -> None:
    # Small pages of 2 and 3 units in a large page of 6: three of one type or two of the other.
    rule = AdmissionRule(plan_of(MIXES["3 : 2"], num_pages=4))
    assert rule.large_pages((1, 1)) == 2
    assert rule.large_pages((4, 4)) == 4
    assert rule.large_pages((4, 4), reusable=(1, 2)) == 2


def test_the_longest_sequence_and_the_most_sequences_follow_from_the_same_rule() -> None:
    rule = AdmissionRule(plan_of(MIXES["1"], num_pages=6))
    assert rule.max_tokens(limit=1000) == 24
    assert rule.max_tokens(limit=20) == 20
    assert rule.max_sequences(num_tokens=8) == 3


def test_a_page_holds_page_tokens_tokens() -> None:
    rule = AdmissionRule(plan_of([LayerSpec("full", 2, "int8")], num_pages=2, page_tokens=16))
    assert rule.needs([16]) == (1,)
    assert rule.needs([17]) == (2,)
