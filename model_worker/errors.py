"""Errors that end a worker process, most of them at start.

StartError               one clear line on stderr and an exit code
 +-- BadSettings    2
 +-- BadCheckpoint  3    the model folder is missing, incomplete or damaged
 +-- EngineBroken   4    the engine died while serving
 +-- PortTaken      5
 +-- LoadFailed     6    the model could not be loaded now: no memory, no hub, a disk that fails

An error that a client shall read is a wire.errors.ApiError, raised where it is detected and mapped in
service_kit/errors.py.
"""

from typing import ClassVar


class StartError(Exception):
    """The process cannot go on. The message is for the person who started it."""

    exit_code: ClassVar[int] = 1


class BadSettings(StartError):
    """The worker cannot run with these flags or environment variables."""

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


class LoadFailed(StartError):
    """The model could not be loaded for a reason that may pass; a supervisor tries again."""

    exit_code = 6


def one_line(error: BaseException) -> str:
    """An error's message without line breaks, or the name of its type."""
    return " ".join(str(error).split()) or type(error).__name__
