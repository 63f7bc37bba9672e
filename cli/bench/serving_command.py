"""`agon bench serve`: options, the levels of a load one after the other, and output; serving.py measures a level."""

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from cli.arena.data_dir import secret_from_environment
from cli.bench import record, tables, workloads
from cli.bench.options import Output, Plot, check_outputs, workload_file
from cli.bench.progress import progress_bar
from cli.bench.workloads import RECIPES, TextWork
from cli.errors import CliError

if TYPE_CHECKING:
    from cli.openai_client import OpenAiClient


def serve(
    url: Annotated[str, typer.Option(help="Any server with the OpenAI API, with or without /v1.")],
    model: Annotated[str | None, typer.Option(help="Default: the first model that is served.")] = None,
    concurrency: Annotated[
        str | None, typer.Option(help="Requests in flight; several levels with commas. Default: 1,16,32.")
    ] = None,
    request_rate: Annotated[
        str | None, typer.Option(help="Instead: requests per second at random times; levels with commas; or inf.")
    ] = None,
    workload: Annotated[
        str, typer.Option(help="words (of one length), sharegpt or alpaca (their lengths, in words), or a file.")
    ] = "words",
    num_requests: Annotated[int, typer.Option(min=1, help="At each level; never fewer than the level.")] = 64,
    prompt_words: Annotated[int, typer.Option(min=1, help="Words of each prompt, with --workload words.")] = 64,
    output_len: Annotated[int, typer.Option(min=1, help="Tokens of each answer, if the workload gives none.")] = 64,
    ignore_eos: Annotated[
        bool, typer.Option(help="Ask for answers of full length; not every server supports it.")
    ] = True,
    goodput: Annotated[
        list[str] | None, typer.Option(metavar="NAME:MS", help="A target: ttft, tpot, itl or total; may be repeated.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random times of --request-rate.")] = 0,
    output: Output = None,
    plot: Plot = None,
) -> None:
    """Load a running server: time to first token, time per token, tokens per second. AGON_API_KEY holds its key.

    A file holds prompts: JSON lines or a JSON list of texts or {prompt, out}, or lines of text.
    """
    check_outputs(output, plot)
    if concurrency is not None and request_rate is not None:
        raise CliError("--concurrency and --request-rate exclude each other.")
    is_open = request_rate is not None
    levels = _levels("--request-rate" if is_open else "--concurrency", request_rate or concurrency or "1,16,32")
    targets = _targets(goodput or [])
    items = _texts(workload, num_requests, prompt_words, output_len)
    plan = _LoadPlan(url, model, levels, is_open, items, num_requests, ignore_eos, targets, seed)
    rows = asyncio.run(plan.run())
    Console().print(tables.serving_table(url, rows, "requests/s" if is_open else "at once"))
    if output is not None:
        settings = {
            "workload": workload if workload in ("words", *RECIPES) else Path(workload).name,
            "num_requests": num_requests,
            "prompt_words": prompt_words,
            "output_len": output_len,
            "targets_ms": targets,
        }
        record.write(output, record.document("serving", settings, rows))
    if plot is not None:
        tables.plot_serving(plot, url, rows, levels, is_open=is_open)
    if errors := [row["first_error"] for row in rows if row["first_error"]]:
        raise CliError(f"some requests failed; the first error: {errors[0]}")


@dataclass(frozen=True, slots=True)
class _LoadPlan:
    """The levels of one `agon bench serve`. `requests` maps a number of requests and a level's number to prompts."""

    url: str
    model: str | None
    levels: list[float]
    is_open: bool  #: levels are request rates, else numbers of requests in flight
    requests: Callable[[int, int], list[TextWork]]
    num_requests: int
    ignore_eos: bool
    targets_ms: dict[str, float]
    seed: int

    async def run(self) -> list[dict[str, Any]]:
        from cli.bench.serving import Load, run_closed
        from cli.openai_client import connect

        async with connect(self.url, secret_from_environment("AGON_API_KEY")) as client:
            model = self.model or (await client.list_models())[0]
            warm_up = [TextWork(item.text, 4) for item in workloads.random_texts(2, 8, 4, seed=-1)]
            await run_closed(client, Load(model, warm_up, self.ignore_eos), 2, lambda: None)
            return [await self._run_level(client, model, number) for number in range(len(self.levels))]

    async def _run_level(self, client: "OpenAiClient", model: str, number: int) -> dict[str, Any]:
        from cli.bench.serving import Load, run_closed, run_open

        level = self.levels[number]
        least = 1 if self.is_open else int(level)
        requests = self.requests(max(self.num_requests, least), number)
        load = Load(model, requests, self.ignore_eos, self.targets_ms)
        title = f"{level:g} requests/s" if self.is_open else f"{level:g} at once"
        with progress_bar(title, len(requests)) as advance:
            if self.is_open:
                return await run_open(client, load, level, self.seed + number, advance)
            return await run_closed(client, load, int(level), advance)


def _texts(
    workload: str, num_requests: int, prompt_words: int, output_len: int
) -> Callable[[int, int], list[TextWork]]:
    """(number of requests, level's number) -> requests. A file is repeated from its start when it is too short."""
    if workload == "words":
        return lambda count, number: workloads.random_texts(count, prompt_words, output_len, seed=number)
    if workload in RECIPES:
        return lambda count, number: workloads.texts_like(workload, count)
    texts = workloads.read_texts(workload_file(workload, ("words", *RECIPES)), output_len)
    return lambda count, number: [texts[index % len(texts)] for index in range(count)]


def _levels(option: str, text: str) -> list[float]:
    is_rate = option == "--request-rate"
    try:
        levels = [float(level) if is_rate else float(int(level)) for level in text.split(",")]
    except ValueError:
        levels = [0.0]
    if any(math.isnan(level) or level <= 0 for level in levels):
        raise CliError(f"{option} must be numbers above 0, separated by commas.")
    return levels


def _targets(texts: list[str]) -> dict[str, float]:
    from cli.bench.serving import TARGETS

    targets = {}
    for text in texts:
        name, _, limit = text.partition(":")
        try:
            targets[name] = float(limit)
        except ValueError:
            targets[name] = math.nan
        if name not in TARGETS or not targets[name] > 0:
            raise CliError(f"--goodput {text} must be NAME:MS with a NAME of {', '.join(TARGETS)}.")
    return targets
