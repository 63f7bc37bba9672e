"""inspect-ai: a task of two samples and one with a tool, over chat, responses and Anthropic's messages."""

import os
import tempfile
from importlib.metadata import version

from harness import KEY, MODEL, URL, V1, check, run
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import GenerateConfig, ResponseSchema, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import tool
from inspect_ai.util import json_schema
from reply import Reply

os.environ["INSPECT_DISPLAY"] = "none"
FOLDER = tempfile.TemporaryDirectory()
SETTINGS = GenerateConfig(max_tokens=200, temperature=0, max_retries=0)
MODELS = {
    "chat": lambda: get_model(f"openai-api/agon/{MODEL}", base_url=V1, api_key=KEY, config=SETTINGS),
    "chat as vLLM's": lambda: get_model(f"vllm/{MODEL}", base_url=V1, api_key=KEY, config=SETTINGS),
    "responses": lambda: get_model(
        f"openai-api/agon/{MODEL}", base_url=V1, api_key=KEY, config=SETTINGS, responses_api=True
    ),
    "messages": lambda: get_model(f"anthropic/{MODEL}", base_url=URL, api_key=KEY, config=SETTINGS),
}


@tool
def add():
    async def execute(a: bool) -> int:
        """Adds.

        Args:
            a: a flag
        """
        return 1 + a

    return execute


def evaluated(make, samples, solver):
    task = Task(dataset=samples, solver=solver, scorer=includes())
    (log,) = eval(task, model=make(), log_dir=FOLDER.name, log_level="error")
    assert log.status == "success", log.error
    return log


for name, make in MODELS.items():

    @check(f"two samples are scored, over {name}")
    def task(make=make):
        samples = [Sample("What is 2 + 3?", target="5"), Sample("Hello!", target="Hello")]
        log = evaluated(make, samples, generate())
        assert len(log.samples) == 2
        assert all(sample.output.completion and sample.output.usage.output_tokens for sample in log.samples)
        return f"accuracy {log.results.scores[0].metrics['accuracy'].value}"

    @check(f"a tool is called and its result read, over {name}")
    def with_tool(make=make):
        forced = use_tools(add(), tool_choice="any")
        log = evaluated(make, [Sample("Add.", target="2")], [forced, generate(tool_calls="single")])
        roles = [message.role for message in log.samples[0].messages]
        assert roles[:3] == ["user", "assistant", "tool"], roles

    @check(f"structured output, over {name}")
    def structured(make=make):
        schema = ResponseSchema(name="reply", json_schema=json_schema(Reply), strict=True)
        config = GenerateConfig(response_schema=schema)
        log = evaluated(make, [Sample("Hello!", target="true")], generate(**config.model_dump(exclude_none=True)))
        Reply.model_validate_json(log.samples[0].output.completion)


run(f"inspect-ai {version('inspect-ai')}")
