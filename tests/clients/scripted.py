"""`python -m tests.clients.scripted NAME=CHECKPOINT PORT`: a worker whose model does what coding agents ask for.

Only the choice of tokens is scripted: a constraint leaves the model one text. Requests, chat template, tokenizer,
engine, parser of tool calls and answers are those of every worker. The weights are random and few, because the prompts
are long. The lengths of prompts and the requests that are refused are told on stdout.
"""

import asyncio
import json
import re
import shutil
import sys
from collections.abc import MutableMapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import transformers
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from engine.sampling_params import Constraint
from model_worker.app import create_app
from model_worker.config import WorkerSettings
from model_worker.engine_protocol import Conversation, Engine, Prompt, PromptSource
from model_worker.engines import load_engine

SMALL = {
    "hidden_size": 64,
    "head_dim": 32,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "layer_types": ["full_attention"] * 2,
}
#: How each agent's tool is called to read the file, by the name of the tool.
CALLS = {
    "Bash": {"command": "cat note.txt", "description": "Read the note"},
    "exec_command": {"cmd": "cat note.txt"},
    "run_shell_command": {"command": "cat note.txt", "description": "Read the note", "is_background": False},
    "bash": {"command": "cat note.txt", "description": "Read the note"},
}
_RESULT = re.compile(r"<tool_response>(?:(?!</tool_response>).)*?(SECRET-\w+)", re.DOTALL)


def answer_to(prompt: str) -> str:
    """What the model says to a rendered prompt: a call of the tool that reads the file, or what the tool has read."""
    if results := _RESULT.findall(prompt):
        return f"The note says {results[-1]}."
    for name, arguments in CALLS.items():
        if re.search(rf'"name": ?"{name}"', prompt):
            return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"
    return "A note is read"


class Scripted:
    """Agon's own engine; a conversation gets the one answer that the script gives it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def tokenise(self, source: PromptSource, *, add_special_tokens: bool | None = None) -> Prompt:
        prompt = self._engine.tokenise(source, add_special_tokens=add_special_tokens)
        if not isinstance(source, Conversation):
            return prompt
        print(f"prompt: {len(prompt.token_ids)}", flush=True)
        answer = answer_to(self._engine.echo(prompt).text)
        return replace(prompt, constraint=Constraint("choice", json.dumps([answer])))


def telling_refusals(app: ASGIApp) -> ASGIApp:
    """The app, which prints a line for each request below /v1 that it refuses, with the reason. Claude Code also asks
    for HEAD /, which Anthropic's servers do not have."""

    async def telling(scope: Scope, receive: Receive, send: Send) -> None:
        status = 200

        async def tell(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            status = message.get("status", status)
            if status >= 400 and message["type"] == "http.response.body" and scope["path"].startswith("/v1"):
                print(f"refused: {status} {scope['method']} {scope['path']} {message['body'].decode()}", flush=True)
            await send(message)

        await app(scope, receive, tell)

    return telling


def write_small(checkpoint: Path, folder: Path) -> None:
    """Write the checkpoint with fewer and random weights to `folder`."""
    shutil.copytree(checkpoint, folder)
    config = {**json.loads((checkpoint / "config.json").read_text()), **SMALL}
    (folder / "config.json").write_text(json.dumps(config))
    transformers.Qwen3ForCausalLM(transformers.Qwen3Config.from_pretrained(folder)).save_pretrained(folder)


async def main() -> None:
    model, port = sys.argv[1:]
    name, checkpoint = model.split("=")
    with TemporaryDirectory() as folder:
        small = Path(folder) / "small"
        write_small(Path(checkpoint), small)
        settings = WorkerSettings(model=f"{name}={small}", port=int(port))
        engine = cast(Engine, Scripted(await load_engine(settings)))
        try:
            app = telling_refusals(create_app(settings, engine))
            await uvicorn.Server(uvicorn.Config(app, port=int(port), lifespan="off", log_level="warning")).serve()
        finally:
            await engine.shutdown()


if __name__ == "__main__":
    asyncio.run(main())
