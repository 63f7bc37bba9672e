"""Errors of the controller that are not answers to a client.

ControllerError
    ConfigurationError      the settings cannot work
    OwnershipLost           this controller no longer owns the turn that it is running
    EventsLost              the store has lost events of a turn that this controller is running
    JournalError            the journal cannot be used
        JournalDamaged      a line of it is not as it was written
        ForeignJournal      it belongs to another arena than the store

An error that a client shall read is a wire.errors.ApiError, raised where it is detected and mapped in
service_kit/errors.py.
"""

from pathlib import Path


class ControllerError(Exception):
    """Base of the controller's own errors."""


class ConfigurationError(ControllerError):
    """The settings cannot work; the message says what to set."""


class OwnershipLost(ControllerError):
    """Another process has ended the turn that this one was running."""


class EventsLost(ControllerError):
    """The store lacks events of a running turn, from the number `first_event` on: its file was cut."""

    def __init__(self, first_event: int) -> None:
        super().__init__(f"the store has lost the events from number {first_event} on")
        self.first_event = first_event


class JournalError(ControllerError):
    """The journal cannot be used; the message says why."""


class JournalDamaged(JournalError):
    """A line of a journal is not as it was written."""

    def __init__(self, path: Path, line: int, reason: str) -> None:
        super().__init__(f"{path} is damaged in line {line}: {reason}. `agon store repair` keeps all other lines.")
        self.path = path
        self.line = line
        self.reason = reason


class ForeignJournal(JournalError):
    """The store holds another arena than the journal."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} belongs to another arena than the store. Give this arena a journal folder of its own "
            "(AGON_JOURNAL_DIR), or add the journal's votes with `agon store restore`."
        )
