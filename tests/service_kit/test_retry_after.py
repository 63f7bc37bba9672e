"""The wait is the time that the accepted rate needs for those refused lately."""

import pytest

from service_kit.retry_after import LONGEST_S, SHORTEST_S, WINDOW_S, RetryAfter


class _Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def _after(accepted_per_s: int, refused_per_s: int, seconds: int) -> tuple[RetryAfter, _Clock]:
    clock = _Clock()
    retry_after = RetryAfter(clock)
    for _ in range(seconds):
        clock.now += 1
        for _ in range(accepted_per_s):
            retry_after.accepted()
        for _ in range(refused_per_s):
            retry_after.refused()
    return retry_after, clock


@pytest.mark.parametrize("refused_per_accepted", [1, 2, 4])
def test_it_grows_with_the_share_of_refusals(refused_per_accepted: int) -> None:
    retry_after, _ = _after(10, 10 * refused_per_accepted, 60)
    assert retry_after.seconds() == pytest.approx(WINDOW_S * refused_per_accepted)


def test_it_has_bounds() -> None:
    assert _after(10, 0, 5)[0].seconds() == SHORTEST_S
    assert _after(0, 100, 5)[0].seconds() == LONGEST_S


def test_it_forgets() -> None:
    retry_after, clock = _after(10, 90, 60)
    assert retry_after.seconds() == LONGEST_S
    for _ in range(100):
        clock.now += 1
        retry_after.accepted()
    assert retry_after.seconds() == SHORTEST_S
