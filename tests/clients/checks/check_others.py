"""smolagents, dspy and the command llm."""

import json
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from harness import KEY, MODEL, V1, check, run


@check(f"smolagents {version('smolagents')}: generate, and with a tool")
def smolagents():
    from smolagents import OpenAIModel, Tool

    class Add(Tool):
        """A tool without effect."""

        name = "add"
        description = "Adds."
        inputs = {"a": {"type": "boolean", "description": "a flag"}}  # noqa: RUF012
        output_type = "boolean"

        def forward(self, a: bool) -> bool:
            """The flag."""
            return a

    model = OpenAIModel(model_id=MODEL, api_base=V1, api_key=KEY, max_tokens=200, temperature=0)
    said = [{"role": "user", "content": [{"type": "text", "text": "Hello!"}]}]
    assert model.generate(said).content
    reply = model.generate(said, tools_to_call_from=[Add()], tool_choice="required")
    assert reply.tool_calls[0].function.name == "add"


@check(f"dspy {version('dspy')}: a language model, and a signature with the JSON adapter")
def dspy():
    import dspy
    from dspy.utils.exceptions import AdapterParseError

    model = dspy.LM(
        f"openai/{MODEL}", api_base=V1, api_key=KEY, max_tokens=200, temperature=0, cache=False, num_retries=0
    )
    assert model("Hello!")
    with dspy.context(lm=model, adapter=dspy.JSONAdapter()):
        try:
            assert isinstance(dspy.Predict("question -> yes: bool")(question="2 + 2 = 4?").yes, bool)
        except AdapterParseError:
            return "served; the model's object is not the one asked for"
    return None


@check(f"llm {version('llm')}: prompt, continued conversation, schema")
def llm():
    with tempfile.TemporaryDirectory() as folder:
        model = {"model_id": "agon", "model_name": MODEL, "api_base": V1, "supports_schema": True}
        Path(folder, "extra-openai-models.yaml").write_text(json.dumps([model]))  # JSON is YAML
        environment = {**os.environ, "LLM_USER_PATH": folder, "OPENAI_API_KEY": KEY}
        command = [str(Path(sys.executable).with_name("llm"))]

        def said(*words):
            done = subprocess.run([*command, *words], env=environment, capture_output=True, text=True, timeout=120)
            assert done.returncode == 0, done.stderr
            return done.stdout

        assert said("-m", "agon", "-o", "max_tokens", "12", "Hello!").strip()
        assert said("-c", "What is 2 + 3?").strip()
        assert said("-m", "agon", "--no-stream", "--schema", "yes bool", "Hello!").strip().startswith("{")


run("others")
