"""A reasoned call, its result, a second call and its result, sent in all three dialects of the API: the prompts that
the model gets, beside transformers'. test_thoughts.py has a small template;

    python -m tests.model_worker.reasoned_calls FOLDER[=TEMPLATE FILE] ...

takes the tokenizers and templates of published models: one line for each, and status 1 if a line begins with FAIL.
"""

import asyncio
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import httpx
import jinja2
import transformers

from engine.text.tokenizer import Tokenizer
from engine.text.tokenizer_files import read_chat_template, read_special_tokens
from model_worker.app import create_app
from model_worker.config import WorkerSettings
from model_worker.engine_protocol import Conversation, Engine, Prompt, PromptSource
from model_worker.engines import load_engine
from tests.engine.text.forgery import rendered_by_transformers

_SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
_NAME, _KEY = "get_weather", "worker-token-for-tests"
#: Thoughts, arguments and result of each call.
_CALLS = (("need the weather", {"city": "Ulm"}, "rain"), ("and of the other one", {"city": "Bonn"}, "sun"))


class Recording:
    """An engine that keeps the prompts of conversations."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.prompts: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def tokenise(self, source: PromptSource, *, add_special_tokens: bool | None = None) -> Prompt:
        prompt = self._engine.tokenise(source, add_special_tokens=add_special_tokens)
        if isinstance(source, Conversation):
            self.prompts.append(self._engine.echo(prompt).text)
        return prompt


def requests(number: int) -> dict[str, tuple[str, dict[str, Any]]]:
    """Path and body of each dialect, with so many calls in the history."""
    chat: list[Any] = [{"role": "user", "content": "so?"}]
    items: list[Any] = [*chat]
    messages: list[Any] = [*chat]
    for place, (thoughts, arguments, result) in enumerate(_CALLS[:number]):
        call_id = f"call{place:05}"
        function = {"name": _NAME, "arguments": json.dumps(arguments)}
        chat += [
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": thoughts,
                "tool_calls": [{"id": call_id, "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": call_id, "content": result},
        ]
        items += [
            {
                "type": "reasoning",
                "id": f"rs_{place}",
                "summary": [],
                "content": [{"type": "reasoning_text", "text": thoughts}],
            },
            {"type": "function_call", "call_id": call_id, **function},
            {"type": "function_call_output", "call_id": call_id, "output": result},
        ]
        messages += [
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": thoughts, "signature": "s"},
                    {"type": "tool_use", "id": call_id, "name": _NAME, "input": arguments},
                ],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call_id, "content": result}]},
        ]
    tool = {"name": _NAME, "parameters": _SCHEMA}
    return {
        "chat": ("/v1/chat/completions", {"messages": chat, "tools": [{"type": "function", "function": tool}]}),
        "responses": ("/v1/responses", {"input": items, "tools": [{"type": "function", **tool}]}),
        "messages": ("/v1/messages", {"messages": messages, "tools": [{"name": _NAME, "input_schema": _SCHEMA}]}),
    }


def expected(number: int, template: str, special_tokens: dict[str, str]) -> str:
    """What transformers renders: of arguments as objects, and with an empty description where the template fails
    without one."""
    messages = requests(number)["chat"][1]["messages"]
    for place, message in enumerate(messages):
        if calls := message.get("tool_calls"):
            message["content"] = ""
            calls[0]["function"]["arguments"] = _CALLS[place // 2][1]
        elif message["role"] == "tool":
            message["name"] = _NAME

    def rendered(**described: str) -> str:
        tool = {"type": "function", "function": {"name": _NAME, **described, "parameters": _SCHEMA}}
        return rendered_by_transformers(messages, [tool], template, special_tokens)

    try:
        return rendered()
    except jinja2.TemplateError:
        return rendered(description="")


async def prompts(folder: Path, number: int, **settings_of_test: Any) -> dict[str, str]:
    """The prompt of each dialect."""
    settings = WorkerSettings(
        model=f"m={folder}", threads=1, kv_cache_bytes=16 << 20, worker_token=_KEY, **settings_of_test
    )
    engine = Recording(await load_engine(settings))
    found = {}
    try:
        transport = httpx.ASGITransport(create_app(settings, cast(Engine, engine)))
        headers = {"Authorization": f"Bearer {_KEY}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as client:
            for name, (path, body) in requests(number).items():
                limit = "max_output_tokens" if name == "responses" else "max_tokens"
                (await client.post(path, json={"model": "m", limit: 16, **body})).raise_for_status()
                found[name] = engine.prompts[-1]
    finally:
        await engine.shutdown()
    return found


def write_random(folder: Path, tokenizer: Path, template: str | None) -> Path:
    """A small model of random weights with this tokenizer."""
    shutil.copytree(tokenizer, folder)
    if template is not None:
        (folder / "chat_template.jinja").write_text(template)
    config = transformers.LlamaConfig(
        vocab_size=Tokenizer.from_folder(tokenizer).vocab_size,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def main(arguments: Sequence[str]) -> int:
    """Print a line for each folder."""
    has_failed = False
    for given in arguments:
        folder, _, file = given.partition("=")
        with TemporaryDirectory() as temporary:
            written = write_random(Path(temporary) / "m", Path(folder), Path(file).read_text() if file else None)
            template = read_chat_template(written) or ""
            for number in (1, 2):
                reference = expected(number, template, read_special_tokens(written))
                found = asyncio.run(prompts(written, number))
                different = [name for name, prompt in found.items() if prompt != reference]
                has_failed |= bool(different)
                name = f"{Path(folder).name} {Path(file).stem}".strip()
                print(f"{'FAIL' if different else 'ok  '} {name}: {number} calls: not equal {different}", flush=True)
                for api in different:
                    print(f"     {api}: {found[api]!r}\n     expected: {reference!r}")
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
