"""Coding agents, as they are installed: each reads a file with a tool of its own, says what stands in it, and goes on
with the session. The model behind the API is scripted (scripted.py), or one that can do this."""

import json
import os
import secrets
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from harness import KEY, MODEL, URL, V1, check, run

SECRET = f"SECRET-{secrets.token_hex(4)}"
LOG = os.environ.get("AGON_LOG")
LIMIT_S = 600


@dataclass(frozen=True)
class Agent:
    """How an agent is told where the API is. `files`: in its home. `ask`, `go_on`: its arguments before a question."""

    command: str
    package: str
    ask: tuple[str, ...]
    go_on: tuple[str, ...]
    variables: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)


CLAUDE = Agent(
    "claude",
    "@anthropic-ai/claude-code",
    ask=("--allowedTools=Bash", "--print"),
    go_on=("--allowedTools=Bash", "--continue", "--print"),
    variables={
        "ANTHROPIC_BASE_URL": URL,
        "ANTHROPIC_API_KEY": KEY,
        "ANTHROPIC_MODEL": MODEL,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": MODEL,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    },
)
CODEX = Agent(
    "codex",
    "@openai/codex",
    ask=("exec", "--skip-git-repo-check"),
    go_on=("exec", "resume", "--skip-git-repo-check", "--last"),
    variables={"AGON_API_KEY": KEY},
    files={
        ".codex/config.toml": f"""
model = "{MODEL}"
model_provider = "agon"
[analytics]
enabled = false
[model_providers.agon]
name = "Agon"
base_url = "{V1}"
env_key = "AGON_API_KEY"
wire_api = "responses"
"""
    },
)
QWEN = Agent(
    "qwen",
    "@qwen-code/qwen-code",
    ask=("--auth-type=openai", "--yolo", "--prompt"),
    go_on=("--auth-type=openai", "--yolo", "--continue", "--prompt"),
    variables={"OPENAI_BASE_URL": V1, "OPENAI_API_KEY": KEY, "OPENAI_MODEL": MODEL},
    files={".qwen/settings.json": json.dumps({"privacy": {"usageStatisticsEnabled": False}})},
)
OPENCODE = Agent(
    "opencode",
    "opencode-ai",
    ask=("run", f"--model=agon/{MODEL}"),
    go_on=("run", f"--model=agon/{MODEL}", "--continue"),
    variables={"OPENCODE_DISABLE_MODELS_FETCH": "1"},
    files={
        ".config/opencode/opencode.json": json.dumps(
            {
                "share": "disabled",
                "autoupdate": False,
                "provider": {
                    "agon": {
                        "npm": "@ai-sdk/openai-compatible",
                        "options": {"baseURL": V1, "apiKey": KEY},
                        "models": {MODEL: {"limit": {"context": 65_536, "output": 4096}}},
                    }
                },
            }
        )
    },
)


def says(agent, home, *arguments):
    """What the agent writes to stdout, in a folder that has the note, with no other home than `home`."""
    done = subprocess.run(
        [agent.command, *arguments],
        cwd=home / "project",
        env={"PATH": os.environ["PATH"], "HOME": str(home), "DISABLE_TELEMETRY": "1", **agent.variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, f"exit code {done.returncode}: {done.stdout[-200:]} {done.stderr[-200:]}"
    return done.stdout


def told():
    """What the scripted worker has told so far; nothing of another server."""
    return Path(LOG).read_text().splitlines() if LOG else []


def add_checks(agent):
    modules = Path(shutil.which(agent.command)).parent.parent
    version = json.loads((modules / agent.package / "package.json").read_text())["version"]

    @check(f"{agent.package} (npm) {version}: reads a file with its tool, answers, goes on with the session")
    def reads():
        before = len(told())
        with tempfile.TemporaryDirectory() as folder:
            home = Path(folder)
            (home / "project").mkdir()
            (home / "project/note.txt").write_text(f"{SECRET}\n")
            for name, text in agent.files.items():
                (home / name).parent.mkdir(parents=True, exist_ok=True)
                (home / name).write_text(text)
            assert SECRET in says(agent, home, *agent.ask, "Read note.txt and tell me what it says.")
            assert SECRET in says(agent, home, *agent.go_on, "Say it again.")
        lines = [line.partition(": ") for line in told()[before:]]
        for kind, _, what in lines:
            assert kind != "refused", what
        longest = max((int(length) for kind, _, length in lines if kind == "prompt"), default=0)
        return f"prompts of {longest} tokens" if longest else None


for each in (CLAUDE, CODEX, QWEN, OPENCODE):
    add_checks(each)
run("coding agents")
