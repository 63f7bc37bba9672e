"""How commands reach the fleet of a running `agon up`: one question and one answer, as lines of JSON over a Unix socket
in the data directory, which only this user can open.

The controllers take no part: starting a worker needs the rights of the user who runs the arena, no more and no less.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from cli.arena.placement.fleet import Fleet, FleetView
from cli.arena.placement.groups import ReplicaGroup
from cli.errors import CliError

_SOCKET = "control.sock"
_MAX_LINE_BYTES = 1 << 20
_TIMEOUT_S = 10.0


class Question(BaseModel):
    """What a command asks. `view` changes nothing."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    action: Literal["view", "add", "remove", "scale"] = "view"
    group: ReplicaGroup | None = None  #: add
    model: str = ""  #: remove, scale
    replicas: int | None = None  #: scale
    least: int | None = None
    most: int | None = None


class Reply(BaseModel):
    """The fleet after the question, or why it was refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    view: FleetView | None = None
    error: str | None = None


@contextlib.asynccontextmanager
async def answering(folder: Path, fleet: Fleet) -> AsyncIterator[None]:
    """Answer questions until the block ends. `folder` is the data directory, which this process has locked."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, ValueError):
            async with asyncio.timeout(_TIMEOUT_S):
                line = await reader.readline()
                writer.write(_answer(fleet, line).model_dump_json().encode() + b"\n")
                await writer.drain()
        writer.close()

    with _reachable(folder) as address:
        _forget(address)  # of an arena that was killed
        server = await asyncio.start_unix_server(serve, address, limit=_MAX_LINE_BYTES)
        os.chmod(address, 0o600)
        try:
            yield
        finally:
            server.close()
            _forget(address)


def ask(folder: Path, question: Question) -> FleetView | None:
    """The fleet of the arena that runs on `folder`; None if none runs there. Raises CliError where it refuses."""
    if not folder.is_dir():
        return None
    try:
        with _reachable(folder) as address, socket.socket(socket.AF_UNIX) as client:
            client.settimeout(_TIMEOUT_S)
            client.connect(address)
            client.sendall(question.model_dump_json().encode() + b"\n")
            with client.makefile("rb") as answer:
                line = answer.readline()
        reply = Reply.model_validate_json(line)
    except (FileNotFoundError, ConnectionRefusedError):
        return None
    except (OSError, ValidationError) as error:
        raise CliError(f"the arena in {folder} gives no answer ({type(error).__name__}).") from None
    if reply.error is not None:
        raise CliError(reply.error)
    return reply.view


def _answer(fleet: Fleet, line: bytes) -> Reply:
    try:
        question = Question.model_validate_json(line)
        match question.action:
            case "add" if question.group is not None:
                fleet.add(question.group)
            case "remove":
                fleet.remove(question.model)
            case "scale":
                fleet.scale(question.model, question.replicas, question.least, question.most)
            case _:
                pass
    except ValidationError:
        return Reply(error="the arena is of another version than this command.")
    except CliError as error:
        return Reply(error=str(error))
    return Reply(view=fleet.view())


def _forget(address: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(address)


@contextlib.contextmanager
def _reachable(folder: Path) -> Iterator[str]:
    """The socket's path through an open descriptor: the name of a Unix socket has 107 bytes at most."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{_SOCKET}"
    finally:
        os.close(descriptor)
