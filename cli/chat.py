"""`agon chat`: talk to one model of a running controller or worker, in the terminal."""

import asyncio
import importlib
import signal
import sys
import time
from typing import Annotated

import typer

from cli.arena.data_dir import secret_from_environment
from cli.arena.running_arena import controller_url
from cli.errors import CliError
from cli.openai_client import OpenAiClient, connect
from wire.chat import ChatMessage

app = typer.Typer(add_completion=False)

_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"
_COMMANDS = "/new starts over, /model NAME changes the model, /quit (or Ctrl-D) ends, Ctrl-C stops an answer."


@app.command()
def chat(
    url: Annotated[str | None, typer.Option(help="A controller or worker. Default: the arena that runs here.")] = None,
    model: Annotated[str | None, typer.Option(help="Default: the first model that is served.")] = None,
    system: Annotated[str | None, typer.Option(help="A system message.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Longest answer. Default: the server's.")] = None,
    temperature: Annotated[float | None, typer.Option(min=0, max=2, help="Default: the model's.")] = None,
) -> None:
    """Chat in the terminal, one message per line, also from a pipe. AGON_API_KEY holds the key of a guarded server."""
    options = {"max_tokens": max_tokens, "temperature": temperature}
    asyncio.run(_Chat(controller_url(url), model, system, options).run())


class _Chat:
    """One conversation: its messages so far and its model."""

    def __init__(self, url: str, model: str | None, system: str | None, options: dict[str, int | float | None]) -> None:
        self._url = url
        self._model = model
        self._opening = (ChatMessage(role="system", content=system),) if system else ()
        self._messages = list(self._opening)
        self._options = options
        self._is_interactive = sys.stdin.isatty()

    async def run(self) -> None:
        async with connect(self._url, secret_from_environment("AGON_API_KEY")) as client:
            models = await client.list_models()
            self._choose(self._model or models[0], models)
            if self._is_interactive:
                importlib.import_module("readline")  # input() then edits lines and remembers them
                print(f"Talking to {self._model} (served here: {', '.join(models)}). {_COMMANDS}")
            signal.signal(signal.SIGINT, signal.default_int_handler)  # asyncio's would leave _read waiting for Enter
            while (line := self._read()) is not None:
                if not await self._handle(client, line, models):
                    return

    def _choose(self, model: str, models: list[str]) -> None:
        if model not in models:
            raise CliError(f"{model!r} is not served there; these are: {', '.join(models)}.")
        self._model = model

    def _read(self) -> str | None:
        """One line without its end; None at the end of the input. It may block: no other task runs."""
        try:
            return input("\n> " if self._is_interactive else "").strip()
        except (EOFError, KeyboardInterrupt):
            return None

    async def _handle(self, client: OpenAiClient, line: str, models: list[str]) -> bool:
        """Run a command or send a message; False ends the conversation."""
        if line.startswith("/"):
            return self._run_command(line, models)
        if line:
            await self._ask(client, line)
        return True

    def _run_command(self, line: str, models: list[str]) -> bool:
        """Run one of _COMMANDS; False ends the conversation."""
        command, _, argument = line.partition(" ")
        if command in ("/quit", "/exit"):
            return False
        if command == "/new":
            self._messages = list(self._opening)
        elif command == "/model" and argument.strip() in models:
            self._choose(argument.strip(), models)
        else:
            print(f"{_COMMANDS} Models: {', '.join(models)}.")
        return True

    async def _ask(self, client: OpenAiClient, text: str) -> None:
        self._messages.append(ChatMessage(role="user", content=text))
        answering = asyncio.create_task(self._print_answer(client))
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, answering.cancel)
        try:
            self._messages.append(await answering)
        except asyncio.CancelledError:
            print("\n(stopped)")
            self._messages.pop()
        except CliError as error:
            self._messages.pop()
            if not self._is_interactive:
                raise
            print(f"\n({error})")
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    async def _print_answer(self, client: OpenAiClient) -> ChatMessage:
        """Print the answer as it comes, in a terminal below what the model thinks, which is dim."""
        assert self._model is not None
        pieces: list[str] = []
        thoughts: list[str] = []
        started = time.monotonic()
        tokens = 0
        async for chunk in client.stream_chat(self._model, self._messages, **self._options):
            for choice in chunk["choices"]:
                thought = choice["delta"].get("reasoning_content") or ""
                piece = choice["delta"].get("content") or ""
                if thought and self._is_interactive:
                    print(f"{_DIM}{thought}{_PLAIN}", end="", flush=True)
                if piece and thoughts and not pieces and self._is_interactive:
                    print("\n")
                thoughts += [thought] if thought else []
                pieces += [piece] if piece else []
                print(piece, end="", flush=True)
            if chunk.get("usage"):
                tokens = chunk["usage"]["completion_tokens"]
        print()
        if self._is_interactive and tokens:
            print(f"({tokens} tokens, {tokens / (time.monotonic() - started):.0f} tokens/s)")
        return ChatMessage(
            role="assistant", content="".join(pieces), reasoning_content="".join(thoughts) if thoughts else None
        )
