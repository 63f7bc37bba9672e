"""Real clients from PyPI and npm, unmodified, against a worker or an arena: one line for each check.

    make clients                                        # a worker with a demo model, every client
    make clients CLIENTS="--through arena"              # the same through a controller
    make clients CLIENTS="--url http://HOST:PORT --model NAME openai litellm"
    make clients CLIENTS="--without-tools agents agent_task coding_agents"    # the chat template knows no tools

The clients have environments of their own, because they need different releases of each other. They are installed once,
into a folder that git ignores. Agents with a task get a model whose tokens are scripted (scripted.py), because no small
one can do it.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.clients.served import Server, served

ROOT = Path(__file__).resolve().parents[2]
CHECKS = Path(__file__).parent / "checks"
CHECKPOINT = ROOT / "demo_models/raven"
CONTEXT = 65_536  #: tokens: the prompts of coding agents have up to 40,000 of this tokenizer


@dataclass(frozen=True)
class Environment:
    """Packages that can be installed together. `sees_ours`: it takes torch and transformers from our environment.
    `of_node`: the packages are those of npm. `scripted`: clients that need a model that does what they ask."""

    packages: tuple[str, ...]
    clients: tuple[str, ...]
    sees_ours: bool = False
    of_node: bool = False
    scripted: tuple[str, ...] = ()


ENVIRONMENTS = {
    "sdk": Environment(
        (
            *("openai>=3", "anthropic", "openai-agents", "pydantic-ai-slim[openai,anthropic]", "inspect-ai"),
            *("outlines", "guidance"),
        ),
        ("openai", "anthropic", "agents", "agent_task", "pydantic_ai", "inspect_ai", "constrained"),
        scripted=("agent_task",),
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
    "node": Environment(
        (
            *("openai@>=6", "@anthropic-ai/sdk@>=1", "zod@>=4"),
            *("ai@>=6", "@ai-sdk/openai-compatible@>=2", "@ai-sdk/openai@>=3", "@ai-sdk/anthropic@>=3"),
            *("@langchain/core@>=1", "@langchain/openai@>=1", "@langchain/anthropic@>=1", "@openai/agents@>=0.20"),
        ),
        ("node_sdks", "node_libraries"),
        of_node=True,
    ),
    "promptfoo": Environment(("promptfoo@>=0.121",), ("promptfoo",), of_node=True),
    "coding_agents": Environment(
        (
            "@anthropic-ai/claude-code@>=2.1",
            "@openai/codex@>=0.171",
            "@qwen-code/qwen-code@>=0.15",
            "opencode-ai@>=1.18",
        ),
        ("coding_agents",),
        of_node=True,
        scripted=("coding_agents",),
    ),
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
    parser.add_argument("--without-tools", action="store_true", help="the chat template of its model knows no tools")
    asked = parser.parse_args()
    unknown = set(asked.clients) - set(names)
    if unknown:
        parser.error(f"no such client: {min(unknown)}")
    with ExitStack() as stack:
        checkpoint = _checkpoint(Path(stack.enter_context(TemporaryDirectory())), knows_tools=not asked.without_tools)
        servers: dict[bool, Server] = {}

        def server(*, is_scripted: bool) -> Server:
            if asked.url is not None:
                return Server(asked.url)
            if is_scripted not in servers:
                started = served(checkpoint, asked.model, "script" if is_scripted else asked.through)
                servers[is_scripted] = stack.enter_context(started)
            return servers[is_scripted]

        has_failed = False
        for client in asked.clients or names:
            name, environment = next(item for item in ENVIRONMENTS.items() if client in item[1].clients)
            if environment.of_node and shutil.which("npm") is None:
                print(f"FAIL  {client}: npm, which installs it, is not on the PATH", flush=True)
                has_failed = True
                continue
            try:
                folder = _installed(asked.environments / name, environment)
            except subprocess.CalledProcessError as error:
                print(f"FAIL  {client}: it cannot be installed here: {error}", flush=True)
                has_failed = True
                continue
            its_server = server(is_scripted=client in environment.scripted)
            variables = {"AGON_URL": its_server.url, "AGON_MODEL": asked.model, "AGON_KEY": asked.key}
            variables |= {"AGON_CHECKPOINT": str(CHECKPOINT), "AGON_LOG": str(its_server.log or "")}
            has_failed |= _fails(client, folder, variables)
        return int(has_failed)


def _fails(client: str, folder: Path, variables: dict[str, str]) -> bool:
    """Run the checks of a client in its environment, and print their lines."""
    script = CHECKS / f"check_{client}.mjs"
    if script.exists():
        for module in CHECKS.glob("*.mjs"):  # node finds packages from where a module lies
            shutil.copy(module, folder)
        command = ["node", str(folder / script.name)]
    else:
        python = folder / "bin/python"
        command = [str(python) if python.exists() else sys.executable, str(script.with_suffix(".py"))]
    quiet = {"LITELLM_LOG": "ERROR", "TOKENIZERS_PARALLELISM": "false", "PYTHONWARNINGS": "ignore"}
    path = {"PATH": os.pathsep.join((str(folder / "node_modules/.bin"), os.environ["PATH"]))}
    environment = {**os.environ, **quiet, **path, **variables}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith(("ok  ", "FAIL"))]
    if not lines or (done.returncode and not any(line.startswith("FAIL") for line in lines)):
        lines.append(f"FAIL  {client}: it ended with {done.returncode} before its last check")
    print("\n".join(lines), flush=True)
    return any(line.startswith("FAIL") for line in lines)


def _installed(folder: Path, environment: Environment) -> Path:
    """The folder of an environment, which is made where it is missing or was made for other packages."""
    stamp = folder / "packages.json"
    wanted = json.dumps(environment.packages)
    if not (stamp.exists() and stamp.read_text() == wanted):
        shutil.rmtree(folder, ignore_errors=True)
        (_install_of_node if environment.of_node else _install)(folder, environment)
        stamp.write_text(wanted)
    return folder


def _install(folder: Path, environment: Environment) -> None:
    python = str(folder / "bin/python")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    if environment.sees_ours:
        purelib = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
        (folder / purelib / "ours.pth").write_text(sysconfig.get_path("purelib") + "\n")
    subprocess.run([python, "-m", "pip", "install", "--quiet", *environment.packages], check=True)


def _install_of_node(folder: Path, environment: Environment) -> None:
    folder.mkdir(parents=True)
    (folder / "package.json").write_text('{"private": true}')  # without one, npm installs into a folder above
    options = ("--silent", "--no-audit", "--no-fund", "--omit=peer", f"--userconfig={Path.home() / '.npmrc'}")
    with TemporaryDirectory() as home:  # npm and its packages write there, too
        variables = {**os.environ, "HOME": home}
        subprocess.run(["npm", "install", *options, *environment.packages], cwd=folder, env=variables, check=True)


def _checkpoint(folder: Path, *, knows_tools: bool) -> Path:
    """A copy of the demo model that takes long prompts, with a chat template that shows tools in Hermes' form, or its
    own, which knows none."""
    copy = folder / CHECKPOINT.name
    shutil.copytree(CHECKPOINT, copy)
    changes: dict[str, dict[str, Any]] = {"config.json": {"max_position_embeddings": CONTEXT}}
    if knows_tools:
        template = (Path(__file__).parent / "tools_template.jinja").read_text()
        changes["tokenizer_config.json"] = {"chat_template": template}
    for name, values in changes.items():
        (copy / name).write_text(json.dumps({**json.loads((copy / name).read_text()), **values}))
    return copy


if __name__ == "__main__":
    sys.exit(main())
