"""Which of an arena's controllers the next request goes to.

All controllers share one store, so each of them can answer every request. Requests go to one of them until it does not
answer, or answers that it cannot serve now; then they go to the next.
"""

from wire.errors import ApiError, ErrorCode

#: Error codes of a controller that cannot serve now, while another may: it stops, or it has lost the store.
ELSEWHERE = frozenset({ErrorCode.SHUTTING_DOWN, ErrorCode.STORE_UNAVAILABLE, ErrorCode.NOT_READY})


class ControllerUnreachable(Exception):
    """No controller gave an answer: they are down, or the network is."""


class Controllers:
    """The addresses of the controllers and the one in use."""

    def __init__(self, urls: tuple[str, ...]) -> None:
        if not urls:
            raise ValueError("there must be at least one controller")
        self._urls = tuple(url.rstrip("/") for url in urls)
        self._current = 0

    @property
    def urls(self) -> tuple[str, ...]:
        """Addresses of all controllers, without a slash at their ends."""
        return self._urls

    def __len__(self) -> int:
        return len(self._urls)

    @property
    def current(self) -> str:
        """Address of the controller in use, without a slash at its end."""
        return self._urls[self._current]

    def leave(self, url: str) -> None:
        """Use the next controller, if `url` is still the one in use: many requests fail at the same time."""
        if url == self.current:
            self._current = (self._current + 1) % len(self._urls)


def is_elsewhere(error: Exception) -> bool:
    """True if another controller, or the same one a little later, may serve the request."""
    return isinstance(error, ControllerUnreachable) or (isinstance(error, ApiError) and error.code in ELSEWHERE)
