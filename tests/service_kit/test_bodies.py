"""Reading a body piece by piece. What a client sees of it: test_malformed_requests.py."""

import asyncio
from typing import Any

import pytest
from fastapi import Request
from pydantic import BaseModel

from service_kit.bodies import Bodies
from service_kit.errors import ClientGone
from wire.errors import ApiError, ErrorCode


class Note(BaseModel):
    text: str


def request_of(*messages: dict[str, Any] | None, length: int | None = None) -> Request:
    """None stands for a client that sends nothing more and stays."""
    headers = [(b"content-type", b"application/json")]
    if length is not None:
        headers.append((b"content-length", str(length).encode()))
    coming = iter(messages)

    async def receive() -> dict[str, Any]:
        message = next(coming)
        if message is None:
            await asyncio.Event().wait()
        assert message is not None
        return message

    return Request({"type": "http", "headers": headers}, receive)


def piece(body: bytes, more: bool = False) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


async def refusal(bodies: Bodies, request: Request, **limits: Any) -> ErrorCode:
    with pytest.raises(ApiError) as refused:
        await bodies.read(request, **limits)
    return refused.value.code


async def test_a_body_in_pieces_is_one_model() -> None:
    request = request_of(piece(b'{"text"', more=True), piece(b"", more=True), piece(b': "hello"}'))
    assert await Bodies(100).parse(request, Note) == Note(text="hello")


async def test_a_large_body_is_parsed_beside_the_event_loop() -> None:
    text = "x" * 100_000
    request = request_of(piece(b'{"text": "%s"}' % text.encode()))
    assert await Bodies(200_000).parse(request, Note) == Note(text=text)


async def test_a_body_of_exactly_the_limit_is_read() -> None:
    assert await Bodies(5).read(request_of(piece(b"12", more=True), piece(b"345"))) == b"12345"


async def test_a_byte_more_is_refused_before_the_rest_is_read() -> None:
    assert await refusal(Bodies(5), request_of(piece(b"123456", more=True), None)) is ErrorCode.REQUEST_TOO_LARGE


async def test_an_announced_length_is_refused_before_anything_is_read() -> None:
    assert await refusal(Bodies(5), request_of(None, length=6)) is ErrorCode.REQUEST_TOO_LARGE


async def test_a_route_may_have_limits_of_its_own() -> None:
    bodies = Bodies(5, timeout_s=30)
    assert await bodies.read(request_of(piece(b"123456"), length=6), max_bytes=6) == b"123456"
    request = request_of(piece(b"1", more=True), None)
    assert await refusal(bodies, request, timeout_s=0.01) is ErrorCode.INVALID_REQUEST


async def test_a_sender_that_is_too_slow_is_refused() -> None:
    request = request_of(piece(b"1", more=True), None)
    assert await refusal(Bodies(5, timeout_s=0.01), request) is ErrorCode.INVALID_REQUEST


async def test_a_client_that_leaves_half_way_is_gone() -> None:
    with pytest.raises(ClientGone):
        await Bodies(5).read(request_of(piece(b"1", more=True), {"type": "http.disconnect"}))


async def test_pieces_are_handed_on_as_they_arrive() -> None:
    request = request_of(piece(b"one", more=True), piece(b"two", more=True), piece(b"three"))
    assert [part async for part in Bodies(1).pieces(request) if part] == [b"one", b"two", b"three"]


async def test_a_pause_between_two_pieces_has_an_end() -> None:
    parts = Bodies(100, timeout_s=0.01).pieces(request_of(piece(b"one", more=True), None))
    assert await anext(parts) == b"one"
    with pytest.raises(ApiError) as refused:
        await anext(parts)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


async def test_a_client_that_leaves_between_two_pieces_ends_the_reading() -> None:
    request = request_of(piece(b"one", more=True), {"type": "http.disconnect"})
    with pytest.raises(ClientGone):
        _ = [part async for part in Bodies(100).pieces(request)]
