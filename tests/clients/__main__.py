"""Real clients from PyPI, unmodified, against a worker or an arena: one line for each check.

    make clients                                        # a worker with a demo model, every client
    make clients CLIENTS="--through arena"              # the same through a controller
    make clients CLIENTS="--url http://HOST:PORT --model NAME openai litellm"

The clients have environments of their own, because they need different releases of each other. They are installed once,
into a folder that git ignores.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.clients.served import served

ROOT = Path(__file__).resolve().parents[2]
CHECKS = Path(__file__).parent / "checks"
CHECKPOINT = ROOT / "demo_models/raven"


@dataclass(frozen=True)
class Environment:
    """Packages that can be installed together. `sees_ours`: it takes torch and transformers from our environment."""

    packages: tuple[str, ...]
    clients: tuple[str, ...]
    sees_ours: bool = False


ENVIRONMENTS = {
    "sdk": Environment(
        (
            *("openai>=3", "anthropic", "openai-agents", "pydantic-ai-slim[openai,anthropic]", "inspect-ai"),
            *("outlines", "guidance"),
        ),
        ("openai", "anthropic", "agents", "pydantic_ai", "inspect_ai", "constrained"),
    ),
    "libraries": Environment(
        (
            *("litellm[proxy]", "langchain-openai", "langchain-anthropic", "langgraph", "instructor"),
            *("smolagents", "dspy", "llm"),
        ),
        ("litellm", "litellm_proxy", "langchain", "langgraph", "instructor", "others"),
    ),
    "frameworks": Environment(
        (
            *("llama-index-llms-openai-like", "llama-index-embeddings-openai-like", "haystack-ai", "semantic-kernel"),
            *("autogen-ext[openai]", "autogen-agentchat", "mirascope[openai,anthropic]"),
        ),
        ("frameworks",),
    ),
    "aider": Environment(("aider-chat",), ("aider",)),
    "open_webui": Environment(("open-webui",), ("open_webui",), sees_ours=True),
    "evaluation": Environment(("lm-eval[api]", "accelerate"), ("lm_eval",), sees_ours=True),
}


def main() -> int:
    """Run the checks; returns 1 if one has failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.clients", description=__doc__.splitlines()[0])
    names = [client for environment in ENVIRONMENTS.values() for client in environment.clients]
    parser.add_argument("clients", nargs="*", help=f"of {', '.join(names)}; default: all")
    parser.add_argument("--through", choices=("worker", "arena"), default="worker", help="what is started")
    parser.add_argument("--url", help="a server that runs already")
    parser.add_argument("--model", default="raven", help="name of its model")
    parser.add_argument("--key", default="", help="API key of the server")
    parser.add_argument("--environments", type=Path, default=ROOT / ".venv-clients", help="where clients are installed")
    asked = parser.parse_args()
    unknown = set(asked.clients) - set(names)
    if unknown:
        parser.error(f"no such client: {min(unknown)}")
    with ExitStack() as stack:
        url = asked.url
        if url is None:
            checkpoint = stack.enter_context(_with_tools(CHECKPOINT))
            url = stack.enter_context(served(checkpoint, asked.model, asked.through))
        variables = {"AGON_URL": url, "AGON_MODEL": asked.model, "AGON_KEY": asked.key}
        variables["AGON_CHECKPOINT"] = str(CHECKPOINT)
        return int(any([_has_failed(asked.environments, client, variables) for client in asked.clients or names]))


def _has_failed(folder: Path, client: str, variables: dict[str, str]) -> bool:
    name, environment = next(item for item in ENVIRONMENTS.items() if client in item[1].clients)
    python = _installed(folder / name, environment)
    command = [str(python), str(CHECKS / f"check_{client}.py")]
    quiet = {"LITELLM_LOG": "ERROR", "TOKENIZERS_PARALLELISM": "false", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, env={**os.environ, **quiet, **variables}, stdout=subprocess.PIPE, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith(("ok  ", "FAIL"))]
    print("\n".join(lines) or f"FAIL  {client}: it ended with {done.returncode} before its first check", flush=True)
    return done.returncode != 0


def _installed(folder: Path, environment: Environment) -> Path:
    """The interpreter of an environment, which is made where it is missing or was made for other packages."""
    python, stamp = folder / "bin/python", folder / "packages.json"
    wanted = json.dumps(environment.packages)
    if not (stamp.exists() and stamp.read_text() == wanted):
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        if environment.sees_ours:
            purelib = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
            (folder / purelib / "ours.pth").write_text(sysconfig.get_path("purelib") + "\n")
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *environment.packages], check=True)
        stamp.write_text(wanted)
    return python


@contextmanager
def _with_tools(checkpoint: Path) -> Iterator[Path]:
    """A copy of the checkpoint whose chat template shows tools in Hermes' form, which its own one does not."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / checkpoint.name
        shutil.copytree(checkpoint, copy)
        path = copy / "tokenizer_config.json"
        template = (Path(__file__).parent / "tools_template.jinja").read_text()
        path.write_text(json.dumps({**json.loads(path.read_text()), "chat_template": template}))
        yield copy


if __name__ == "__main__":
    sys.exit(main())
