"""What a page is shown of a seat whose value other events change meanwhile."""

import asyncio

from webui.seats import Seat


async def shown_by(seat: Seat[str], shown: str | None = None, meanwhile: tuple[str, ...] = ()) -> list[str]:
    """What one event shows, while others change the value behind each of its updates."""
    rest, texts = list(meanwhile), []
    async for text in seat.updates(str.upper, shown):
        texts.append(text)
        if rest:
            seat.value = rest.pop(0)
    return texts


async def test_what_is_shown_is_not_shown_again() -> None:
    seat = Seat("new")
    assert await shown_by(seat) == [], "the page is built with it"
    seat.value = "asked"
    assert await shown_by(seat) == ["ASKED"]
    assert await shown_by(seat) == []


async def test_what_was_changed_meanwhile_is_shown_after_it() -> None:
    seat = Seat("new")
    seat.value = "idle"
    assert await shown_by(seat, meanwhile=("busy", "answered")) == ["IDLE", "BUSY", "ANSWERED"]


async def test_what_another_event_has_shown_is_shown_again_behind_what_was_old() -> None:
    seat = Seat("idle")
    seat.value = "busy"
    assert await shown_by(seat) == ["BUSY"]
    assert await shown_by(seat, shown="idle") == ["BUSY"]


async def test_what_is_read_is_taken() -> None:
    seat = Seat("new")
    await seat.take(asyncio.sleep(0, "read"))
    assert seat.value == "read"


async def test_what_the_visitor_did_meanwhile_stays() -> None:
    seat = Seat("new")
    reading = asyncio.create_task(seat.take(asyncio.sleep(0.01, "read")))
    await asyncio.sleep(0)
    seat.value = "asked"
    await reading
    assert seat.value == "asked"
