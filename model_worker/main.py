"""`python -m model_worker`: flags to settings, failures to one clear line and an exit code."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_settings import SettingsError
from uvicorn.loops.auto import auto_loop_factory

from model_worker.config import WorkerSettings
from model_worker.engines import bound_spinning, follow_if_told_to
from model_worker.errors import BadSettings, StartError
from model_worker.logs import configure_logs
from model_worker.server import listen, run


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 after a drain, 2 bad settings, 3 bad checkpoint, 4 dead engine, 5 port taken."""
    configure_logs()
    try:
        settings = read_settings(arguments)
        bound_spinning(settings)
        if follow_if_told_to(settings):
            return 0
        with listen(settings) as listener, asyncio.Runner(loop_factory=auto_loop_factory()) as runner:
            runner.run(run(settings, listener))
    except StartError as error:
        print(f"model_worker: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def read_settings(arguments: Sequence[str] | None = None) -> WorkerSettings:
    """Flags win over the environment; raises BadSettings."""
    given = {name: value for name, value in vars(_parser().parse_args(arguments)).items() if value is not None}
    try:
        settings = WorkerSettings(**given)
        settings.read_worker_token()
        settings.read_api_keys()
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = "_".join(str(part) for part in first["loc"][:1])
        message = str(first["msg"]).removeprefix("Value error, ")
        raise BadSettings(f"{_name_for_people(name)}: {message}" if name else message) from None
    except SettingsError as error:
        raise BadSettings(str(error)) from None
    except OSError as error:
        raise BadSettings(f"cannot read {error.filename}: {error.strerror}") from None
    return settings


def _name_for_people(field: str) -> str:
    flag = "--controller" if field == "controller_urls" else "--" + field.replace("_", "-")
    return f"{flag} (AGON_{field.upper()})"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        allow_abbrev=False,
        prog="model_worker",
        description="Serve one model: an OpenAI-compatible server, and with --controller a worker of an arena.",
        epilog="Every setting can also be given as an environment variable: AGON_ and its name. Secrets only so, or by "
        "file: AGON_WORKER_TOKEN(_FILE), AGON_API_KEYS(_FILE).",
    )

    def flag(name: str, help_text: str, **options: Any) -> None:
        parser.add_argument(name, help=help_text, **options)

    flag("--model", "folder in Hugging Face layout or hub id, or NAME=PATH_OR_HUB_ID")
    flag("--engine", "what answers: agon's own engine, an echo for tests, or another server", choices=_ENGINES)
    flag("--host", "address to listen on (127.0.0.1)")
    flag("--port", "port to listen on (8200); 0 for any free one", type=int)
    flag("--controller", "controller to register with; may be repeated", action="append", dest="controller_urls")
    flag("--worker-url", "URL under which controllers reach this worker")
    flag("--worker-token-file", "file with the token shared with the controllers")
    flag("--api-keys-file", "file with one API key per line, for /v1")
    flag("--api-docs", "serve /openapi.json and /docs (off)", action=argparse.BooleanOptionalAction)
    flag("--dtype", "weights and computation (auto)", choices=("auto", "bfloat16", "float32"))
    flag("--device", "auto, cpu or cuda")
    flag("--threads", "torch threads", type=int)
    flag("--operators", "on CPU: C++ where it can be built (auto), or never", choices=("auto", "torch"))
    flag("--kv-dtype", "keys and values in 8 bits: about twice the tokens, less exact (auto)", choices=_KV_DTYPES)
    flag("--weights", "int8: linear weights of 8 bits, on CPU: faster, less exact", choices=("auto", "int8"))
    flag(
        "--share-weights",
        "on CPU: one copy of the weights for all workers of a model, in the cache folder; auto: where it costs nothing",
        choices=("auto", "on", "off"),
    )
    flag("--tensor-parallel", "processes (GPUs) that share the model (1)", type=int)
    flag(
        "--enforce-eager",
        "on CUDA: no graphs, every kernel launched by itself; for finding faults",
        action=argparse.BooleanOptionalAction,
    )
    flag("--max-graph-batch", "on CUDA: largest decode step that gets a graph (512)", type=int)
    flag("--device-memory-share", "on CUDA: share of the memory that this worker may fill (0.9)", type=float)
    flag("--load-format", "dummy: random weights, for benchmarks", choices=("auto", "dummy"))
    flag("--page-tokens", "tokens in a small page (16)", type=int)
    flag("--kv-cache-bytes", "size of the page pool; default: what memory allows", type=int)
    flag("--swap-bytes", "main memory for pages of preempted requests; 0, the default: recompute them", type=int)
    flag("--max-model-len", "context limit in tokens; default: the checkpoint's", type=int)
    flag("--max-batched-tokens", "token budget of one engine step (1024)", type=int)
    flag("--max-running", "sequences in one engine step (64)", type=int)
    flag("--max-queued-requests", "requests that may wait (256)", type=int)
    flag("--max-queued-tokens", "prompt tokens that may wait (131072)", type=int)
    flag("--prefix-caching", "keep pages of past prompts (on)", action=argparse.BooleanOptionalAction)
    flag("--seed", "for requests that bring no seed", type=int)
    flag("--default-max-tokens", "bound of an answer whose request names none (2048)", type=int)
    flag("--drain-s", "seconds for running answers after SIGTERM (30)", type=float)
    flag("--echo-tokens-per-s", "speed of the echo engine's answers (50)", type=float)
    flag("--echo-num-tokens", "length of the echo engine's answers; default: as long as the message", type=int)
    flag("--echo-fail-after", "let the echo engine break every answer after so many tokens", type=int)
    flag("--base-url", "the other server, as https://host/v1", dest="remote_base_url", metavar="URL")
    flag("--remote-model", "the other server's name for the model")
    flag("--api-key-file", "file with the other server's API key", dest="remote_api_key_file", metavar="FILE")
    flag("--remote-context-length", "context of the other server's model in tokens (32768)", type=int)
    return parser


_KV_DTYPES = ("auto", "int8", "fp8")
_ENGINES = ("paged", "echo", "openai")
