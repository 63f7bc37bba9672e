"""For which request the present code runs. Set by the middleware (request_ids.py), read by the log and by clients that
make requests for it; tasks that a request starts have it, too."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_current: ContextVar[str | None] = ContextVar("request_id", default=None)


def current_request_id() -> str | None:
    """The id of the request for which the present code runs; None for none."""
    return _current.get()


def begin_serving(request_id: str) -> None:
    """From now on the present task, and those that it starts, run for this request."""
    _current.set(request_id)


@contextmanager
def serving(request_id: str | None) -> Iterator[None]:
    """Say for which request the code inside runs, where a library runs it in tasks of its own."""
    token = _current.set(request_id)
    try:
        yield
    finally:
        _current.reset(token)
