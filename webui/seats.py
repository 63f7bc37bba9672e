"""What a page keeps of its visitor between two events: a seat on the server, and the browser's storage."""

from typing import Final, Generic, TypeVar

T = TypeVar("T")

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
