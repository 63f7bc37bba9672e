"""promptfoo: evaluations over chat completions, responses and Anthropic's messages."""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from harness import KEY, MODEL, URL, V1, check, run

LIMITS = {"apiKey": KEY, "max_tokens": 60, "temperature": 0}
SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "integer"}},
    "required": ["answer"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "reply", "strict": True, "schema": SCHEMA}}
PROMPTS = ["What is {{number}} + 25?", "Say hello to {{number}}."]
QUIET = ("DISABLE_TELEMETRY", "DISABLE_UPDATE", "DISABLE_REMOTE_GENERATION")

modules = Path(shutil.which("promptfoo")).parent.parent
VERSION = json.loads((modules / "promptfoo/package.json").read_text())["version"]


def evaluate(providers, assertion):
    """Evaluate the prompts at each provider; every answer passes the assertion, which is JavaScript."""
    tests = [{"vars": {"number": 17}, "assert": [{"type": "javascript", "value": assertion}]}]
    with tempfile.TemporaryDirectory() as home:
        config, found = Path(home, "promptfooconfig.json"), Path(home, "found.json")
        config.write_text(json.dumps({"prompts": PROMPTS, "providers": providers, "tests": tests}))
        done = subprocess.run(
            ["promptfoo", "eval", "--no-cache", "--no-write", "--config", str(config), "--output", str(found)],
            cwd=home,
            env={
                **{f"PROMPTFOO_{name}": "1" for name in QUIET},
                **{"PATH": os.environ["PATH"], "HOME": home, "PROMPTFOO_CONFIG_DIR": home},
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert found.exists(), f"exit code {done.returncode}: {done.stderr[-300:]}"
        results = json.loads(found.read_text())["results"]["results"]
    assert len(results) == len(providers) * len(PROMPTS)
    for result in results:
        assert result["success"], result["error"]
    assert done.returncode == 0
    return f"{len(results)} answers"


@check("two prompts at chat completions, responses and messages")
def texts():
    of_openai = [
        {"id": f"openai:{api}:{MODEL}", "config": {**LIMITS, "apiBaseUrl": V1}} for api in ("chat", "responses")
    ]
    of_anthropic = {"id": f"anthropic:messages:{MODEL}", "config": {**LIMITS, "apiBaseUrl": URL}}
    return evaluate([*of_openai, of_anthropic], "output.length > 0")


@check("two prompts that are answered by objects of a schema, over chat completions and responses")
def objects():
    return evaluate(
        [
            {"id": f"openai:{api}:{MODEL}", "config": {**LIMITS, "apiBaseUrl": V1, "response_format": FORMAT}}
            for api in ("chat", "responses")
        ],
        "Number.isInteger(output.answer)",
    )


run(f"promptfoo (npm) {VERSION}")
