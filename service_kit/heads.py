"""How our services read HTTP: uvicorn's parser in C, with limits on the size of a request head and on its time.

uvicorn's parser in Python takes half a millisecond to a millisecond more for a request on a slow core. It limits the
size of a head; the one in C does not, so a client that never ends a header would fill the memory. Neither limits the
time: a client that sends a byte now and then would keep its connection for ever.
"""

import asyncio

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from wire.errors import ApiError, ErrorCode

MAX_HEAD_BYTES = 16_384

_TOO_LARGE = "The head of the request is too large."


class BoundedHttp(HttpToolsProtocol):
    """For uvicorn's setting `http`. What it refuses gets status 400 and an error body as from a service's routes.

    It refuses a head that is malformed, larger than MAX_HEAD_BYTES, or not complete within `patience_s`. It closes a
    connection without an answer when trailers or a piece of a chunked body exceed MAX_HEAD_BYTES, when no request comes
    within `patience_s` of the connection, and when a client goes on for so long with a body that has been answered.
    """

    patience_s = 30.0

    _num_unfinished_bytes = 0  #: received since the parser last finished a head or a piece of a body
    _is_in_head = False
    _is_in_message = False
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Give the client `patience_s` for its first head."""
        super().connection_made(transport)
        self._start_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock: the connection is closed."""
        self._stop_deadline()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse `data`, then check what is still unfinished."""
        self._num_unfinished_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._num_unfinished_bytes > MAX_HEAD_BYTES:
            if self._is_answering:
                self.transport.close()
            else:
                self.send_400_response(_TOO_LARGE)
        elif self._is_in_head and self._deadline is None:
            self._start_deadline()

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        self._is_in_head = self._is_in_message = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The head is complete: from here on bodies.py keeps the time. Raises for one that is too large, which the
        parser makes an error of its own."""
        if self._num_unfinished_bytes > MAX_HEAD_BYTES and self._num_head_bytes() > MAX_HEAD_BYTES:
            raise ValueError(_TOO_LARGE)
        self._num_unfinished_bytes = 0
        self._is_in_head = False
        self._stop_deadline()
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
        if self._is_in_message and self._deadline is None and not self.transport.is_closing():
            self._start_deadline()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not a request, and close the connection."""
        body = ApiError(ErrorCode.INVALID_REQUEST, msg).body().model_dump_json().encode()
        headers = [
            *self.server_state.default_headers,
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ]
        lines = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
        self.transport.write(STATUS_LINE[400] + lines + b"\r\n" + body)
        self.transport.close()

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _num_head_bytes(self) -> int:
        """Size of the path and the headers, each with its `: ` and line break. What was received with them may hold a
        part of the body, too."""
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
