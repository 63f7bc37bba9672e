"""The loop of a serving engine: carry out commands, step while there is work, sleep while there is none.

Owns the core from the end of loading to its closing, in one thread. Does not know where commands come from.
"""

import logging
from functools import partial
from pathlib import Path
from typing import Protocol

from engine.backend import Abort, Add, AddAdapter, Command, Drain, Outlet, Picture, RemoveAdapter, Stop
from engine.core import EngineCore
from engine.errors import AdapterError, CheckpointError, EngineDead
from engine.stats import RATE_WINDOW_S

logger = logging.getLogger(__name__)


class Inbox(Protocol):
    """Commands in their order."""

    def take(self) -> Command | None:
        """The next command; None: there is none now."""
        ...

    def wait(self, timeout_s: float | None) -> Command | None:
        """The next command, as soon as there is one; None after timeout_s seconds."""
        ...


def serve_core(core: EngineCore, inbox: Inbox, outlet: Outlet) -> None:
    """Serve until Stop, or until Drain and the last request, then close the core. Errors go to log and outlet."""
    try:
        _EngineLoop(core, inbox, outlet).run()
    except Exception as error:
        logger.exception("the engine has stopped after an error")
        outlet.on_death(EngineDead(f"the engine has stopped after an error: {error!r}"))
    finally:
        try:
            core.close()
        except Exception:  # e.g. a failed device; callers that await the end must not wait for ever
            logger.exception("the engine could not be closed in order")


class _EngineLoop:
    def __init__(self, core: EngineCore, inbox: Inbox, outlet: Outlet) -> None:
        self._core = core
        self._inbox = inbox
        self._outlet = outlet
        self._is_draining = False

    def run(self) -> None:
        while self._take_commands():
            self._step()
        self._core.abort_all()
        while not self._core.is_idle:  # also steps in flight
            self._step()

    def _step(self) -> None:
        deltas = self._core.step()
        self._outlet.on_step(deltas, self._core.stats())

    def _take_commands(self) -> bool:
        """Execute queued commands, sleeping while there is no work; false when the loop shall end."""
        if self._core.is_idle:
            if self._is_draining:
                return False
            self._core.check_idle()
            if not self._apply(self._sleep()):
                return False
        while (command := self._inbox.take()) is not None:
            if not self._apply(command):
                return False
        return True

    def _sleep(self) -> Command:
        """Block until there is a command. After one rate window without any, publish that tokens_per_s is 0."""
        command = self._inbox.wait(RATE_WINDOW_S)
        if command is None:
            self._outlet.on_step((), self._core.stats())
            command = self._inbox.wait(None)
            assert command is not None
        return command

    def _apply(self, command: Command) -> bool:
        match command:
            case Drain():
                self._is_draining = True
            case Stop():
                return False
            case _:
                carry_out(command, self._core, self._outlet)
        return True


def carry_out(command: Add | Abort | Picture | AddAdapter | RemoveAdapter, core: EngineCore, outlet: Outlet) -> None:
    """Do what a command says, between two steps."""
    match command:
        case Add():
            core.submit_reserved(
                command.request_id,
                command.prompt_token_ids,
                command.params,
                resume_token_ids=command.resume_token_ids,
                cache_salt=command.cache_salt,
                pooling=command.pooling,
                adapter=command.adapter,
            )
        case Abort(request_id):
            core.abort(request_id)
        case Picture(ticket, max_cells):
            outlet.on_picture(ticket, core.picture(max_cells))
        case AddAdapter(ticket, name, folder):
            try:
                info = core.adapters.add(name, Path(folder))
            except CheckpointError as error:
                outlet.on_adapter(ticket, None, str(error))
            else:
                outlet.on_adapter(ticket, info, "")
        case RemoveAdapter(ticket, name):
            try:
                core.adapters.remove(name, partial(outlet.on_adapter, ticket, None, ""))
            except AdapterError as error:
                outlet.on_adapter(ticket, None, str(error))
