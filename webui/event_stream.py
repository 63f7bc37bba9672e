"""The stream of a page's events, `GET /gradio_api/queue/data`, in place of Gradio's own.

Gradio gives up a page's events when its stream breaks, and the messages on the way are lost: its page reloads. Here
messages are numbered and kept for a while after they were sent, and events go on without a reader, so that a page whose
network was cut goes on where it was (`after`). A browser opens six connections to a host over HTTP/1.1; where an
address holds as many streams, each ends after a moment and is opened again, so that further tabs get their turn.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final

import orjson
from gradio.queueing import Queue
from gradio.server_messages import CloseStreamMessage, ProcessCompletedMessage, UnexpectedErrorMessage
from starlette.responses import StreamingResponse

#: Messages that wait for one browser. Ten come in a second, so a browser that has this many waiting is gone.
MAX_UNREAD_MESSAGES: Final = 200
ALIVE_S: Final = 3.0  #: a stream is never silent for longer, so that its page notices a connection that is dead
KEPT_OPEN_S: Final = 60.0  #: how long a message is kept after it was sent, while events are under way
KEPT_S: Final = 5.0  #: the same when all are completed: a page load leaves 16 KB
TURN_S: Final = 3.0  #: after this time a stream makes room for others of a crowded address
CROWDED: Final = 5  #: streams of one address, one less than the connections of a browser

_CLOSE: Final = orjson.dumps(CloseStreamMessage().model_dump(), default=str)
_FORGOTTEN: Final = orjson.dumps(
    UnexpectedErrorMessage(message="", success=False, session_not_found=True).model_dump(), default=str
)


class Messages:
    """The messages of one session, in order. Gradio puts them; the newest reader gets them.

    `event_ids` are the session's events that are not completed; owned by Gradio's queue. Numbers go on from `base`: a
    session that is made again, also after a restart, begins with higher ones. A browser that does not read is told to
    reload and gets no more."""

    def __init__(self, event_ids: Callable[[], set[str]], base: int | None = None) -> None:
        self._event_ids = event_ids
        self._base = time.time_ns() // 1000 if base is None else base
        self._messages: deque[tuple[int, bytes]] = deque()
        self._sent_at: deque[tuple[int, float]] = deque()  #: up to which message, and when
        self._last = self._base  #: number of the newest message
        self._num_sent = self._base  #: number of the newest message that was sent
        self._news = asyncio.Event()
        self._reader = 0
        self.is_overrun = False

    def put_nowait(self, message: Any) -> None:
        """Take one message of Gradio's queue."""
        if self.is_overrun:
            return
        if isinstance(message, ProcessCompletedMessage) and message.event_id:
            self._event_ids().discard(message.event_id)
        text = orjson.dumps(message.model_dump(), default=str)
        if self._last - self._num_sent >= MAX_UNREAD_MESSAGES:
            self.is_overrun = True
            self._messages.clear()
            text = _FORGOTTEN
        self._last += 1
        self._messages.append((self._last, text))
        self._news.set()

    async def put(self, message: Any) -> None:
        """The same, for Gradio's callers that await it."""
        self.put_nowait(message)

    def num_unread(self) -> int:
        """Messages that were not sent yet."""
        return self._last - self._num_sent

    def __len__(self) -> int:
        """Messages that are kept."""
        return len(self._messages)

    def forget_sent(self, now: float) -> None:
        """Forget the messages that were sent long before `now` (monotonic clock)."""
        before = now - (KEPT_OPEN_S if self._event_ids() else KEPT_S)
        while self._sent_at and self._sent_at[0][1] < before:
            self._drop(self._sent_at.popleft()[0])

    async def read(self, after: int | None, is_turn_over: Callable[[float], bool]) -> AsyncGenerator[bytes, None]:
        """The stream for a page that has read the messages up to `after` (None: those that were sent), until all events
        are completed, another reader comes, or its turn is over; `is_turn_over` is given the seconds since it began."""
        after = self._num_sent if after is None else max(after, self._base)
        self._reader += 1
        reader, began, position = self._reader, time.monotonic(), after
        oldest = self._messages[0][0] if self._messages else self._last + 1
        if not oldest - 1 <= after <= self._last:  # messages in between are forgotten
            yield b"data: " + _FORGOTTEN + b"\n\n"
            return
        self._drop(after)
        while self._reader == reader:
            for number, text in tuple(self._messages):
                if number > position:
                    position = number
                    self._note_sent(number)
                    yield b"id: %d\ndata: " % number + text + b"\n\n"
            if self._reader != reader or position < self._last:
                continue
            if not self._event_ids():
                yield b"data: " + _CLOSE + b"\n\n"
                return
            if is_turn_over(time.monotonic() - began):
                return
            self._news.clear()
            try:
                async with asyncio.timeout(ALIVE_S):
                    await self._news.wait()
            except TimeoutError:
                yield b": alive\n\n"

    def _note_sent(self, number: int) -> None:
        if number > self._num_sent:
            self._num_sent = number
            self._sent_at.append((number, time.monotonic()))

    def _drop(self, up_to: int) -> None:
        while self._messages and self._messages[0][0] <= up_to:
            self._messages.popleft()
        self._num_sent = max(self._num_sent, up_to)


class EventStreams:
    """The route. `num_streams` counts the open streams of an address."""

    def __init__(self, queue: Queue, num_streams: Callable[[str], int]) -> None:
        self._queue = queue
        self._num_streams = num_streams

    def answer(self, session_hash: str, after: int | None, address: str) -> StreamingResponse:
        """The stream of a session that exists (doors.py sees to it)."""
        messages = self._queue.pending_messages_per_session[session_hash]
        assert isinstance(messages, Messages)  # page_sessions.py sees to it

        def is_turn_over(age_s: float) -> bool:
            return age_s >= TURN_S and self._num_streams(address) >= CROWDED

        return StreamingResponse(
            messages.read(after, is_turn_over),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"},
        )
