"""The codec of server-sent events, cut anywhere."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.sse import KEEP_ALIVE, SseDecoder, SseEvent, encode

NO_BREAKS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"))
#: Browsers ignore ids with NUL, so services send none.
EVENTS = st.builds(
    SseEvent,
    data=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r")),
    event=NO_BREAKS.filter(bool),
    id=st.none() | NO_BREAKS,
)


def decode(chunks: list[bytes]) -> list[SseEvent]:
    decoder = SseDecoder()
    return [event for chunk in chunks for event in decoder.feed(chunk)]


@given(st.lists(EVENTS, max_size=5), st.data())
def test_events_survive_any_chunking(events: list[SseEvent], data: st.DataObject) -> None:
    stream = b"".join(encode(event) for event in events)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    edges = [0, *cuts, len(stream)]
    chunks = [stream[start:end] for start, end in itertools.pairwise(edges)]
    got = decode(chunks)
    assert [(event.data, event.event) for event in got] == [(event.data, event.event) for event in events]


@given(st.lists(EVENTS, max_size=5))
def test_one_byte_at_a_time_is_the_same_as_all_at_once(events: list[SseEvent]) -> None:
    stream = b"".join(encode(event) for event in events)
    assert decode([bytes([byte]) for byte in stream]) == decode([stream])


@given(st.lists(EVENTS, min_size=1, max_size=5))
def test_keep_alives_between_events_change_nothing(events: list[SseEvent]) -> None:
    plain = b"".join(encode(event) for event in events)
    chatty = KEEP_ALIVE + b"".join(encode(event) + KEEP_ALIVE for event in events)
    assert decode([chatty]) == decode([plain])


@pytest.mark.parametrize("line_break", [b"\n", b"\r\n", b"\r"])
def test_every_line_break_of_the_standard_ends_a_line(line_break: bytes) -> None:
    stream = line_break.join([b"event: delta", b"data: a", b"data: b", b"", b""])
    decoded = decode([stream, b"\n"])  # a last \r may be half of \r\n: the next byte decides
    assert [(event.event, event.data) for event in decoded] == [("delta", "a\nb")]


def test_an_id_stays_for_the_events_that_follow() -> None:
    got = decode([b"id: 7\ndata: a\n\ndata: b\n\n"])
    assert [event.id for event in got] == ["7", "7"]


def test_an_event_without_data_is_none() -> None:
    assert decode([b"event: delta\n\n"]) == []


def test_an_unfinished_event_is_never_given_out() -> None:
    assert decode([b"data: half"]) == []


def test_a_carriage_return_inside_data_travels_as_a_line_break() -> None:
    assert [event.data for event in decode([encode(SseEvent("a\r\nb\rc"))])] == ["a\nb\nc"]
