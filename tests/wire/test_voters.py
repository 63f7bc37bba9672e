"""The text of voters' cookies."""

import time

import pytest

from wire.voters import VoterCookies

COOKIES = VoterCookies("a secret of the arena")


def test_a_cookie_is_read_by_whoever_has_the_secret() -> None:
    text = COOKIES.new()

    read = VoterCookies("a secret of the arena").read(text)

    assert read is not None
    assert read == COOKIES.read(text)
    assert read.kind == "c"
    assert abs(read.made_at - time.time()) < 60
    assert not read.is_old
    assert VoterCookies("another secret").read(text) is None


def test_two_arenas_on_one_host_have_cookies_of_different_names() -> None:
    assert VoterCookies("another secret").name != COOKIES.name


def test_an_old_cookie_is_renewed_with_the_same_id(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    text = COOKIES.new()
    monkeypatch.setattr(time, "time", lambda: now + 31 * 86_400)
    old = COOKIES.read(text)
    assert old is not None
    assert old.is_old
    renewed = COOKIES.read(COOKIES.text(old.kind, old.voter_id))
    assert renewed is not None
    assert renewed.voter_id == old.voter_id
    assert not renewed.is_old


@pytest.mark.parametrize("place", range(0, 80, 7))
def test_a_changed_cookie_is_none(place: int) -> None:
    text = COOKIES.text("c", "A" * 22)
    changed = text[:place] + ("B" if text[place] != "B" else "C") + text[place + 1 :]

    assert COOKIES.read(changed) is None


@pytest.mark.parametrize("text", [None, "", ".", "c...", "c." + "A" * 22, "\x00" * 80, "\u00e4" * 80])
def test_what_is_no_cookie_is_none(text: str | None) -> None:
    assert COOKIES.read(text) is None
