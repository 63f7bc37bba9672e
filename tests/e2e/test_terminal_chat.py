"""`agon chat` on a real pseudo-terminal."""

import os
import pty
import re
import select
import subprocess
import sys
import time
from contextlib import suppress

from tests.e2e.arena import UpProcess

PATIENCE_S = 60.0


class Terminal:
    """A command on its own pseudo-terminal, with its output and its keyboard."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self.shown = ""
        self._descriptor, inner = pty.openpty()
        take_terminal = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
        take_terminal += "os.execv(sys.argv[1], sys.argv[1:])"
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", take_terminal, *command],
            stdin=inner,
            stdout=inner,
            stderr=inner,
            env=environment,
            start_new_session=True,
        )
        os.close(inner)

    def type(self, keys: str) -> None:
        os.write(self._descriptor, keys.encode())

    def wait_for(self, pattern: str) -> None:
        """Wait for the text in the output after the last match."""
        deadline = time.monotonic() + PATIENCE_S
        while (found := re.search(pattern, self.shown)) is None:
            assert time.monotonic() < deadline, f"{pattern!r} is not in {self.shown!r}"
            ready, _, _ = select.select([self._descriptor], [], [], 0.2)
            if ready:
                self.shown += os.read(self._descriptor, 65536).decode(errors="replace")
        self.shown = self.shown[found.end() :]

    def interrupt(self) -> int:
        """Press Ctrl-C at the prompt until the command ends; returns its exit code. Python's readline does not notice
        a signal that arrives between its prompt and its wait for keys."""
        deadline = time.monotonic() + PATIENCE_S
        try:
            while self._process.poll() is None and time.monotonic() < deadline:
                self.type("\x03")
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(1)
            return self._process.wait(0)
        finally:
            self._process.kill()
            self._process.wait()
            os.close(self._descriptor)


def test_a_conversation_with_a_stopped_answer_and_another_model(echo_arena: UpProcess) -> None:
    command = [*echo_arena.command[:4], "chat", "--url", echo_arena.controller_url, "--model", "left"]
    terminal = Terminal(command, {**echo_arena.environment, "TERM": "dumb"})
    terminal.wait_for(r"Talking to left")
    terminal.wait_for("> ")
    terminal.type("one two three\r")
    terminal.wait_for(r"\(\d+ tokens, \d+ tokens/s\)")
    terminal.wait_for("> ")
    terminal.type("word " * 100 + "\r")
    terminal.wait_for(r"\r\n.*word word")  # the echo has begun, and has five seconds to go
    terminal.type("\x03")
    terminal.wait_for(r"\(stopped\)")
    terminal.wait_for("> ")
    terminal.type("/model absent\r")
    terminal.wait_for(r"Models: left, right")
    terminal.type("/model right\r")
    terminal.wait_for("> ")
    terminal.type("four\r")
    terminal.wait_for(r"\(\d+ tokens")
    terminal.wait_for("> ")
    terminal.type("<think>perhaps five</think>six\r")
    terminal.wait_for(r"\x1b\[2mperhaps\x1b\[0m\x1b\[2m five\x1b\[0m\r\n\r\nsix\r\n")
    terminal.wait_for("> ")
    assert terminal.interrupt() == 0
