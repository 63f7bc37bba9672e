"""aider's command on a small repository, over chat completions and over Anthropic's messages."""

import json
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from harness import KEY, MODEL, URL, V1, check, run

#: Nothing but the model is asked, and no question to a person.
QUIET = ("--no-check-update", "--analytics-disable", "--no-show-model-warnings", "--no-pretty", "--no-fancy-input")
ALONE = ("--yes-always", "--no-detect-urls", "--no-suggest-shell-commands", "--no-gitignore", "--map-tokens", "1024")
PLACES = {
    "openai": {"OPENAI_API_BASE": V1, "OPENAI_API_KEY": KEY},
    "anthropic": {"ANTHROPIC_API_BASE": URL, "ANTHROPIC_API_KEY": KEY},
}

for provider, place in PLACES.items():

    @check(f"--message with a file and a map of the repository, streamed and whole, over {provider}/")
    def message(provider=provider, place=place):
        name = f"{provider}/{MODEL}"
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, **place, "HOME": folder, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
            repository = Path(folder, "repository")
            git = ["git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@example.org"]
            subprocess.run(["git", "init", "--quiet", str(repository)], check=True)
            (repository / "sums.py").write_text("def add(a, b):\n    return a + b\n")
            (repository / "main.py").write_text("from sums import add\n\nprint(add(2, 3))\n")
            subprocess.run([*git, "add", "."], check=True)
            subprocess.run([*git, "commit", "--quiet", "-m", "Sums"], check=True)
            settings = Path(folder, "settings.yml")
            sent = {"name": name, "edit_format": "whole", "extra_params": {"max_tokens": 60}}
            settings.write_text(json.dumps([sent]))  # JSON is YAML
            command = [str(Path(sys.executable).with_name("aider")), "--model", name, *QUIET, *ALONE]
            command += ["--model-settings-file", str(settings), "--message", "Print 6 too."]
            for form in ("--stream", "--no-stream"):
                asked = {"cwd": repository, "env": environment, "stdin": subprocess.DEVNULL, "timeout": 300}
                done = subprocess.run([*command, form, "main.py"], capture_output=True, text=True, **asked)
                said = done.stdout + done.stderr
                assert done.returncode == 0, said[-400:]
                assert "Tokens:" in said, said[-400:]  # printed after an answer, never after a refusal
                assert "Error" not in said.partition("main.py to the chat")[2], said[-400:]


run(f"aider {version('aider-chat')}")
