"""The examples run, and stay short."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from tests.e2e.arena import UpProcess

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
NEED_AN_ARENA = {"battle_by_http", "openai_client"}
NEED_AGENTS = {"agent"}  #: a library that the development environment does not have
TOOLS = {
    "calculate": ("Work out an arithmetic expression with + - * /.", ["expression"]),
    "current_time": ("Tell the current time.", []),
    "look_up": ("Look up a topic in the encyclopedia.", ["topic"]),
}


def run(example: Path, *arguments: str) -> str:
    command = [sys.executable, str(example), *arguments]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=240)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short_and_says_how_to_run_it(example: Path) -> None:
    text = example.read_text()
    assert len(text.splitlines()) < 40
    assert f"`python examples/{example.name}" in text


@pytest.mark.parametrize(
    "example", [path for path in EXAMPLES if path.stem not in NEED_AN_ARENA | NEED_AGENTS], ids=lambda p: p.stem
)
def test_an_example_of_a_library_runs(example: Path) -> None:
    assert run(example).strip()


@pytest.mark.parametrize("example", [path for path in EXAMPLES if path.stem in NEED_AN_ARENA], ids=lambda p: p.stem)
def test_an_example_of_a_client_runs(example: Path, demo_arena: UpProcess) -> None:
    assert run(example, demo_arena.controller_url).strip()


def test_the_agent_of_the_examples_runs(demo_arena: UpProcess) -> None:
    """As it is where its library is installed; and what it sends, by the openai library, in any case."""
    if importlib.util.find_spec("agents") is not None:
        assert "69104" in run(ROOT / "examples/agent.py", demo_arena.controller_url)
    client = OpenAI(base_url=f"{demo_arena.controller_url}/v1", api_key="none")
    mountain = "Mount Kenya is a tall mountain in Africa."
    for question, name, arguments, result, shown in (
        ("What is 1234 * 56?", "calculate", {"expression": "1234 * 56"}, "69104", "69104"),
        ("What time is it?", "current_time", {}, "14:05", "14:05"),
        ("Tell me about Mount Kenya.", "look_up", {"topic": "Mount Kenya"}, mountain, mountain),
    ):
        messages: list[Any] = [{"role": "user", "content": question}]
        message = _ask(client, messages)
        [call] = message.tool_calls
        assert (call.function.name, json.loads(call.function.arguments)) == (name, arguments)
        messages += [
            message.model_dump(exclude_none=True),
            {"role": "tool", "tool_call_id": call.id, "content": result},
        ]
        assert shown in _ask(client, messages).content
    assert not _ask(client, [{"role": "user", "content": "Hello!"}]).tool_calls


def _ask(client: OpenAI, messages: list[Any]) -> Any:
    tools: list[Any] = [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": description,
                "strict": True,
                "parameters": {
                    "type": "object",
                    "title": f"{name}_args",
                    "properties": {each: {"title": each.title(), "type": "string"} for each in parameters},
                    "required": parameters,
                    "additionalProperties": False,
                },
            },
        }
        for name, (description, parameters) in TOOLS.items()
    ]
    answer = client.chat.completions.create(model="wren", messages=messages, tools=tools, temperature=0)
    return answer.choices[0].message
