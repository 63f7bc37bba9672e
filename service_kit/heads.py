"""How our services read HTTP: uvicorn's parser in C, with limits on the size of a request head and on its duration.

uvicorn's parser in Python takes half a millisecond to a millisecond more for a request on a slow core. It limits the
size of a head; the one in C does not, so a header without an end would fill the memory. Neither limits the time: a
client that sends a byte now and then would keep its connection for ever.
"""

import asyncio

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from service_kit.connections import Connections
from wire.errors import ApiError, ErrorCode

MAX_HEAD_BYTES = 16_384

_FAREWELL_S = 0.2
_TOO_LARGE = "The head of the request is too large."


class BoundedHttp(HttpToolsProtocol):
    """The value of uvicorn's setting `http`. A refused request gets status 400 and an error body like those of routes.

    It refuses a head that is malformed, larger than MAX_HEAD_BYTES, or not complete within `patience_s`. It closes a
    connection without an answer when trailers or a piece of a chunked body exceed MAX_HEAD_BYTES, when no request comes
    within `patience_s` of the connection, and when a client still sends a body `patience_s` after its answer.
    A connection for which `room` has no place gets 503 and is closed.
    """

    patience_s = 30.0
    room: Connections | None = None  #: for connections of the service, set by a subclass (serving.py); None: any number

    _num_unfinished_bytes = 0  #: received since the parser last finished a head or a piece of a body
    _is_in_head = False
    _is_in_message = False
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time limit for the connection's first head, or refuse the connection."""
        super().connection_made(transport)
        if self.room is None or self.room.admit(self, self.client[0] if self.client else None):
            self._start_deadline()
        else:
            self._refuse(ApiError(ErrorCode.TOO_MANY_CONNECTIONS, "The service has too many open connections."))

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the time limit: the connection is closed."""
        self._stop_deadline()
        if self.room is not None:
            self.room.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse `data`, then check what is still unfinished."""
        if self.transport.is_closing():
            return
        self._num_unfinished_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._num_unfinished_bytes > MAX_HEAD_BYTES:
            if self._is_answering:
                self.transport.close()
            else:
                self.send_400_response(_TOO_LARGE)
        elif not self._is_answering and self._deadline is None:
            # A head has begun, or empty lines, for which the parser calls nothing and which end the keep-alive time.
            self._start_deadline()

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        self._is_in_head = self._is_in_message = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The head is complete: bodies.py limits the time from here on. Raises if the head is too large; the parser
        turns that into an error of its own."""
        if self._num_unfinished_bytes > MAX_HEAD_BYTES and self._num_head_bytes() > MAX_HEAD_BYTES:
            raise ValueError(_TOO_LARGE)
        self._num_unfinished_bytes = 0
        self._is_in_head = False
        self._stop_deadline()
        if self.room is not None:
            self.room.begin_request(self)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of a body."""
        self._num_unfinished_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The last byte of a request."""
        self._num_unfinished_bytes = 0
        self._is_in_message = False
        self._stop_deadline()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """The answer is sent. The rest of a body that was refused half-way is read and dropped for `patience_s`: a
        client that is still sending would not read its answer if the connection were closed."""
        super().on_response_complete()
        if self.room is not None and not self._is_answering:
            self.room.end_request(self)
        if self._is_in_message and self._deadline is None and not self.transport.is_closing():
            self._start_deadline()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not a request, and close the connection."""
        self._refuse(ApiError(ErrorCode.INVALID_REQUEST, msg))

    def shutdown(self) -> None:
        """The service stops. Over TLS the end of a connection waits for the client's own, and a client that keeps the
        connection for its next request does not read that it has ended: such a client gets _FAREWELL_S."""
        super().shutdown()
        if self.transport.is_closing() and self.scheme == "https":
            self.loop.call_later(_FAREWELL_S, self.transport.abort)

    @property
    def is_blocked(self) -> bool:
        """Whether nothing is written until the client has read, or at all."""
        return self.flow.write_paused or self.transport.is_closing()

    def evict(self) -> None:
        """Close a connection without a request, to make room for another."""
        self.transport.abort()

    def _refuse(self, error: ApiError) -> None:
        body = error.body().model_dump_json().encode()
        headers = [
            *self.server_state.default_headers,
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
            *((name.lower().encode(), value.encode()) for name, value in error.headers.items()),
        ]
        lines = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
        self.transport.write(STATUS_LINE[error.status] + lines + b"\r\n" + body)
        self.transport.close()

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _num_head_bytes(self) -> int:
        """Size of the path and the headers, each with its `: ` and line break. The bytes received are no measure of it:
        they may contain a part of the body."""
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _start_deadline(self) -> None:
        self._deadline = self.loop.call_later(self.patience_s, self._on_deadline)

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _on_deadline(self) -> None:
        self._deadline = None
        if self.transport.is_closing():
            return
        if self._is_answering:  # a pipelined request, whose turn comes after the answer
            self._start_deadline()
        elif self._is_in_head:
            self.send_400_response("The head of the request did not arrive in time.")
        else:
            self.transport.close()
