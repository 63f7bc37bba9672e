import pytest

from service_kit.keys import KeyRing, credential

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


def test_the_key_of_an_anthropic_client_is_taken_as_a_bearer_token() -> None:
    assert credential({"x-api-key": "first"}) == "Bearer first"
    assert credential({"authorization": "Bearer third", "x-api-key": "first"}) == "Bearer third"
    assert credential({}) is None
