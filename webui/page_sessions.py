"""What Gradio keeps for each open page, made small and bounded.

Gradio's own session copies the configuration of every component of every page (250 kB). Gradio keeps 10,000 of them,
their undelivered messages, and for ever the ids of events that were never fetched. Here a session holds the values of
its `gr.State` components and nothing else, sessions that nothing reads are forgotten after ABANDONED_AFTER_S, and
beyond `capacity` the one that was idle for longest is forgotten. A visitor who returns loses nothing: the battle is
restored from the id in the browser, a chat from the transcript there.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

import gradio as gr
from gradio.queueing import Queue
from gradio.routes import App
from gradio.state_holder import SessionState, StateHolder
from gradio.utils import LRUCache

from webui.event_stream import Messages

ABANDONED_AFTER_S = 90.0  #: without an open stream and without a sign of life (assets/connection.js)


class _Latest:
    """The component that was updated last, in any session. Gradio reads an updated component back immediately after it
    has stored it, to send the changed properties, and never again."""

    def __init__(self) -> None:
        self.session: _PageSession | None = None
        self.key = 0
        self.block: Any = None


class _PageSession(SessionState):
    """Gradio's session without copies: the values of its `gr.State` components, and the configuration of all."""

    def __init__(self, blocks: Any, latest: _Latest) -> None:
        # Not super().__init__: it makes the copies.
        self.blocks_config = blocks.default_config
        self.config_values: dict[int, Any] = {}
        self.state_data: dict[int, Any] = {}
        self._state_ttl: dict[int, Any] = {}
        self.is_closed = False
        self.STATE_TTL_WHEN_CLOSED = 0
        self.last_used = time.monotonic()
        self._latest = latest

    def __getitem__(self, key: int) -> Any:
        if self._latest.session is self and self._latest.key == key:
            return self._latest.block
        return super().__getitem__(key)

    def __setitem__(self, key: int, value: Any) -> None:
        if isinstance(self.blocks_config.blocks.get(key), gr.State):
            self.state_data[key] = value
        else:
            self._latest.session, self._latest.key, self._latest.block = self, key, value

    def _update_config(self, key: int) -> None:
        """Nothing: what a page shows is only needed for deep links, which no page offers."""

    def _update_value_in_config(self, key: int, value: Any) -> None:
        """Nothing, as above."""


class _MessagesBySession(LRUCache[str, Any]):
    """The messages of each session, by its hash. Gradio's own drops the oldest of 2,000, even while it is being read;
    here they live as long as their session."""

    def __init__(self, queue: Queue) -> None:
        super().__init__(sys.maxsize)
        self._queue = queue

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, Messages(lambda: self._queue.pending_event_ids_session.get(key, set())))


class PageSessions(StateHolder):
    """The sessions of one Gradio app, least recently used first. Runs on the event loop.

    `is_read` tells whether a browser holds a stream of a session open.
    """

    def __init__(self, app: App, capacity: int, is_read: Callable[[str], bool]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        blocks = app.get_blocks()
        self.set_blocks(blocks)
        self.capacity = capacity
        self._is_read = is_read
        self._latest = _Latest()
        self._queue: Queue = blocks._queue
        self._queue.pending_messages_per_session = _MessagesBySession(self._queue)
        app.state_holder = self

    def __getitem__(self, session_id: str) -> Any:
        """The session of this hash, a new one if there is none. event_calls.py bounds the length of a hash."""
        session: Any = self.session_data.get(session_id)
        if session is None:
            session = self.session_data[session_id] = _PageSession(self.blocks, self._latest)
            self._make_room()
        session.last_used = time.monotonic()
        self.session_data.move_to_end(session_id)
        return session

    def num_waiting(self) -> int:
        """Events that wait until fewer events run."""
        return len(self._queue)

    def keep(self, session_id: str) -> None:
        """A page says that it is still open. One whose session is forgotten has nothing to keep."""
        session: Any = self.session_data.get(session_id)
        if session is not None:
            session.last_used = time.monotonic()

    async def forget_abandoned(self) -> None:
        """Forget the sessions whose page is gone, with their events, and those whose browser has stopped reading; of
        the others the messages that were sent long ago."""
        now = time.monotonic()
        sessions: list[tuple[str, Any]] = list(self.session_data.items())
        for session_id, session in sessions:
            messages: Messages | None = self._queue.pending_messages_per_session.get(session_id)
            if messages is not None:
                messages.forget_sent(now)
            if self._is_read(session_id):
                session.last_used = now
            if (messages is not None and messages.is_overrun) or now - session.last_used > ABANDONED_AFTER_S:
                await self._queue.clean_events(session_hash=session_id)
                self._forget(session_id)

    def _make_room(self) -> None:
        """Forget the sessions that were idle for longest. One whose event waits or runs counts as just used; limits.py
        bounds the number of events."""
        for _ in range(len(self.session_data)):
            if len(self.session_data) <= self.capacity:
                return
            oldest = next(iter(self.session_data))
            if self._has_events(oldest):
                self.session_data.move_to_end(oldest)
            else:
                self._forget(oldest)

    def _has_events(self, session_id: str) -> bool:
        event_ids = self._queue.pending_event_ids_session.get(session_id, ())
        return any(event_id in self._queue.event_ids_to_events for event_id in event_ids)

    def _forget(self, session_id: str) -> None:
        self.session_data.pop(session_id, None)
        self._queue.pending_messages_per_session.pop(session_id, None)
        self._queue.pending_event_ids_session.pop(session_id, None)
