"""Errors that end a worker process, most of them at start.

StartError               one clear line on stderr and an exit code
 +-- BadSettings    2
 +-- BadCheckpoint  3    the model folder is missing, incomplete or damaged
 +-- EngineBroken   4    the engine died while serving
 +-- PortTaken      5

What a client shall read is a wire.errors.ApiError, raised where it is noticed and mapped in service_kit/errors.py.
"""

from typing import ClassVar


class StartError(Exception):
    """The process cannot go on. The message is for the person who started it."""

    exit_code: ClassVar[int] = 1


class BadSettings(StartError):
    """Flags or environment variables make no sense."""

    exit_code = 2


class BadCheckpoint(StartError):
    """The model cannot be loaded as it is."""

    exit_code = 3


class EngineBroken(StartError):
    """The engine stopped while serving: only a new process helps."""

    exit_code = 4


class PortTaken(StartError):
    """Another program listens on the port."""

    exit_code = 5
