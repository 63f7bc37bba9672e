"""How our services read HTTP: uvicorn's parser in C, with a limit on what is read of a request before it makes sense.

uvicorn's other parser, in Python, took half a millisecond to a millisecond more of a request on a slow core. It has
such a limit, this one has none: a client that never ends a header would fill the memory.
"""

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES = 16_384


class BoundedHttp(HttpToolsProtocol):
    """For uvicorn's setting `http`. Closes a connection, with status 400 where none was sent yet, from which more than
    MAX_HEAD_BYTES came without an end of the head they belong to, or of the trailers or a piece of a chunked body."""

    _num_unfinished_bytes = 0

    def data_received(self, data: bytes) -> None:
        self._num_unfinished_bytes += len(data)
        super().data_received(data)
        if self._num_unfinished_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            if self.cycle is None or self.cycle.response_complete:
                self.send_400_response("The head of the request is too large.")
            else:
                self.transport.close()

    def on_headers_complete(self) -> None:
        self._num_unfinished_bytes = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._num_unfinished_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._num_unfinished_bytes = 0
        super().on_message_complete()
