import pytest

from service_kit.keys import KeyRing

RING: KeyRing[str] = KeyRing([("user", "first"), ("user", "second"), ("admin", "third"), ("worker", "first")])


@pytest.mark.parametrize(
    ("authorization", "holders"),
    [
        ("Bearer first", {"user", "worker"}),
        ("bearer second", {"user"}),
        ("Bearer  third ", {"admin"}),
        ("Bearer firs", set()),
        ("Bearer first x", set()),
        ("Bearer", set()),
        ("Bearer ", set()),
        ("Basic first", set()),
        ("first", set()),
        ("Bearer \xff", set()),
        ("", set()),
        (None, set()),
    ],
)
def test_a_key_has_its_holders_and_anything_else_has_none(authorization: str | None, holders: set[str]) -> None:
    assert RING.holders(authorization) == holders


def test_an_empty_ring_knows_nothing() -> None:
    assert KeyRing([]).holders("Bearer ") == set()
