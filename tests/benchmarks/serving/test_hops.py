import math
import random

from benchmarks.serving.hops import median_interval


def test_the_interval_holds_the_true_median_as_often_as_it_says() -> None:
    draw = random.Random(0)
    held = 0
    for _ in range(2000):
        low, high = median_interval(sorted(draw.expovariate(1.0) for _ in range(80)))
        held += low < math.log(2) < high
    assert 0.94 < held / 2000 < 0.98


def test_few_values_give_all_that_they_have() -> None:
    assert median_interval([1.0, 2.0, 3.0]) == (1.0, 3.0)
    assert median_interval([5.0]) == (5.0, 5.0)
