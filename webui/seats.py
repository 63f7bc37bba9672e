"""What a page keeps of its visitor between two events: a seat on the server, and the browser's storage."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final, Generic, TypeVar

T = TypeVar("T")
Update = TypeVar("Update")

#: Gradio encrypts browser storage with a key, by default a new one at every start. With a fixed key the page finds its
#: battle again after a restart of this service. Nothing secret is stored: only a Bookmark of the visitor's own battle.
STORAGE_SECRET: Final = "agon-battle-id"


class Seat(Generic[T]):
    """Holds the value that one visitor's page shows now: the only mutable object of a visitor.

    It is a Gradio state: handlers receive it and replace its value, and it is never sent to the browser. Returning the
    value as an output instead would cost half a millisecond for every piece of text.
    """

    def __init__(self, value: T) -> None:
        self.value = value
        self._shown = value  #: what `updates` has shown last; the page is built with the first value

    async def take(self, reading: Awaitable[T]) -> None:
        """Hold what is read, unless another event has changed the value meanwhile."""
        before = self.value
        value = await reading
        if self.value is before and value != before:
            self.value = value

    async def updates(self, show: Callable[[T], Update], shown: T | None = None) -> AsyncGenerator[Update, None]:
        """What `show` makes of the value, and of each newer one, until the page shows the newest; nothing if it does.
        `shown` is the value that the event itself has shown last, if any.

        A page's events run beside each other, and what one sends can arrive after what a later one has sent: an event
        that ends with these updates leaves nothing old on the page."""
        shown = self._shown if shown is None else shown
        while self.value is not shown:
            shown = self._shown = self.value
            yield show(shown)
