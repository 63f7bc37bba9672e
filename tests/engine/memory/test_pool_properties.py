"""Any sequence of operations, on any mix of layer types, keeps every page accounted for and every content right."""

import random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, rule

from tests.engine.memory.pool_driver import MIXES, PoolDriver

#: Two different tokens only, so that prefixes are shared often.
TOKENS = st.lists(st.integers(0, 1), min_size=1, max_size=30)


class PoolMachine(RuleBasedStateMachine):
    """Short runs, which hypothesis can shrink."""

    sequences = Bundle("sequences")

    @initialize(mix=st.sampled_from(sorted(MIXES)), num_pages=st.integers(1, 5), has_cache=st.booleans())
    def make(self, mix: str, num_pages: int, has_cache: bool) -> None:
        self.driver = PoolDriver(mix, num_pages, enable_prefix_caching=has_cache)

    @rule(target=sequences, tokens=TOKENS, salt=st.sampled_from([b"", b"other"]))
    def start(self, tokens: list[int], salt: bytes) -> int:
        return self.driver.start(tokens, salt)

    @rule(sequence=sequences)
    def admit(self, sequence: int) -> None:
        self.driver.admit(sequence)

    @rule(sequence=sequences, more=st.lists(st.integers(0, 1), min_size=1, max_size=6))
    def grow(self, sequence: int, more: list[int]) -> None:
        self.driver.grow(sequence, more)

    @rule(target=sequences, source=sequences)
    def fork(self, source: int) -> int:
        return self.driver.fork(source)

    @rule(sequence=sequences)
    def preempt(self, sequence: int) -> None:
        self.driver.preempt(sequence)

    @rule(sequence=consumes(sequences))
    def close(self, sequence: int) -> None:
        self.driver.close(sequence)

    @rule()
    def next_step(self) -> None:
        self.driver.next_step()

    def teardown(self) -> None:
        if hasattr(self, "driver"):
            self.driver.close_all()


PoolMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestAnySequenceOfOperations = PoolMachine.TestCase


@pytest.mark.parametrize("mix", sorted(MIXES))
@pytest.mark.parametrize("enable_prefix_caching", [True, False])
@pytest.mark.parametrize("num_pages", [3, 7])
def test_long_runs_in_a_crowded_pool_keep_every_page_accounted_for(
    mix: str, enable_prefix_caching: bool, num_pages: int
) -> None:
    choose = random.Random(f"{mix} {enable_prefix_caching} {num_pages}")
    driver = PoolDriver(mix, num_pages, enable_prefix_caching=enable_prefix_caching)

    def tokens(longest: int) -> list[int]:
        return [choose.randrange(2) for _ in range(choose.randint(1, longest))]

    operations = {
        "start": lambda: driver.start(tokens(24), choose.choice([b"", b"", b"other"])),
        "admit": lambda: driver.admit(choose.choice(list(driver.tokens))),
        "grow": lambda: driver.grow(choose.choice(list(driver.tokens)), tokens(6)),
        "fork": lambda: driver.fork(choose.choice(list(driver.tokens))),
        "preempt": lambda: driver.preempt(choose.choice(list(driver.tokens))),
        "close": lambda: driver.close(choose.choice(list(driver.tokens))),
        "next_step": driver.next_step,
    }
    weights = [4, 3, 6, 2, 1, 4, 3]
    for name in choose.choices(list(operations), weights, k=400):
        if name in ("start", "next_step") or driver.tokens:
            operations[name]()
    driver.close_all()
