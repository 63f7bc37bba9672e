"""`agon bench`: throughput and latency of the engine in this process, and load on a running server.

`agon bench --model X` is `agon bench offline --model X`. This file has the options; offline.py, latency.py and
serving.py measure, tables.py shows.
"""

import asyncio
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from typer.core import TyperGroup

from cli.arena.processes import demo_models
from cli.bench import pictures, record, tables, workloads
from cli.bench.progress import progress_bar
from cli.bench.workloads import RECIPES, TextWork, Work
from cli.engine_options import engine_option
from cli.errors import CliError
from engine.config import DType, EngineConfig, KVDType, LoadFormat

if TYPE_CHECKING:
    from cli.bench.offline import Comparison
    from cli.openai_client import OpenAiClient


class _OfflineByDefault(TyperGroup):
    """Without a subcommand the options are those of `offline`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] != "--help"):
            args = ["offline", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    add_completion=False,
    cls=_OfflineByDefault,
    help="Measure the engine, or a running server. Without a subcommand: offline.",
)


class Peer(StrEnum):
    """Systems that `offline --against` measures beside ours."""

    TRANSFORMERS = "transformers"


Model = Annotated[str | None, typer.Option(help="A local folder. Default: the first demo model.")]
InputLen = Annotated[int, typer.Option(min=1, help="Tokens of each prompt of fixed length.")]
Threads = Annotated[int | None, typer.Option(min=1, help="CPU threads of each process. Default: every core.")]
Precision = Annotated[DType, engine_option("dtype")]
KVPrecision = Annotated[KVDType, engine_option("kv_dtype")]
Device = Annotated[Literal["cpu", "cuda"], typer.Option(help="Where the engine computes.")]
Weights = Annotated[LoadFormat, engine_option("load_format")]
TensorParallel = Annotated[int, engine_option("tensor_parallel")]
MaxRunning = Annotated[int, engine_option("max_running", "--max-running", "--concurrency")]
MaxBatchedTokens = Annotated[int, engine_option("max_batched_tokens")]
Output = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Also write the result as JSON.")]
Plot = Annotated[Path | None, typer.Option(metavar="FILE", help="Also draw it: .png, .svg or .pdf (matplotlib).")]


@app.command()
def offline(
    model: Model = None,
    workload: Annotated[
        str,
        typer.Option(
            help="fixed (one length), sharegpt or alpaca (their lengths), single, or a file: a JSON list of {ids, out} "
            "or of {prompt, out}, JSON lines, or lines of text."
        ),
    ] = "fixed",
    num_prompts: Annotated[int | None, typer.Option(min=1, help="Default: the workload's own; fixed: 32.")] = None,
    input_len: InputLen = 128,
    output_len: Annotated[int, typer.Option(min=1, help="Tokens of each answer, where the workload names none.")] = 64,
    against: Annotated[Peer | None, typer.Option(help="Measure it too, in turns, and compare the answers.")] = None,
    max_running: MaxRunning = 32,
    max_batched_tokens: MaxBatchedTokens = 1024,
    single: Annotated[int, typer.Option(min=1, help="With --against: prompts also measured one at a time.")] = 4,
    threads: Threads = None,
    dtype: Precision = "auto",
    kv_dtype: KVPrecision = "auto",
    device: Device = "cpu",
    load_format: Weights = "auto",
    tensor_parallel: TensorParallel = 1,
    repeats: Annotated[int, typer.Option(min=1, help="Rounds; the median counts.")] = 3,
    output: Output = None,
    plot: Plot = None,
) -> None:
    """Throughput of our engine in this process; with --against transformers, of both on the same work.

    Exit code 1 when their greedy answers in float32 differ.
    """
    from cli.bench import offline as throughput

    _check_outputs(output, plot)
    if against is not None and load_format == "dummy":
        raise CliError("--against needs a checkpoint: each system would draw other random weights.")
    engine = _engine_config(
        model,
        threads,
        tensor_parallel,
        dtype=dtype,
        kv_dtype=kv_dtype,
        device=device,
        load_format=load_format,
        max_running=max_running,
        max_batched_tokens=max_batched_tokens,
    )
    work = _work(engine.model, workload, num_prompts, input_len, output_len)
    with _engine_errors():
        if against is None:
            comparison = throughput.measure(engine, work, repeats=repeats, progress=_say)
        else:
            num_single = min(single, len(work))
            comparison = throughput.compare(engine, work, num_single=num_single, repeats=repeats, progress=_say)
    shape = {"num_prompts": len(work), "in": input_len, "out": output_len} if workload == "fixed" else workload
    _report_offline(engine, shape, comparison, repeats, output, plot, is_compared=against is not None)
    if comparison.dtype == "float32" and comparison.num_equal < comparison.num_compared:
        raise CliError("the greedy answers of the two systems differ.")


def _report_offline(
    engine: EngineConfig,
    workload: dict[str, int] | str,
    comparison: "Comparison",
    repeats: int,
    output: Path | None,
    plot: Path | None,
    *,
    is_compared: bool,
) -> None:
    """Print the table, and write the result and the picture where they were asked for. workload: lengths or a name."""
    settings = {
        "model": Path(engine.model).name,
        "workload": Path(workload).name if isinstance(workload, str) else workload,
        "concurrency": engine.max_running,
        "max_batched_tokens": engine.max_batched_tokens,
        "threads": engine.num_threads,
        "dtype": comparison.dtype,
        "operators": comparison.operators,
        "device": engine.device,
        "tensor_parallel": engine.tensor_parallel,
        "repeats": repeats,
    }
    rows = [measured.as_row() for measured in comparison.measured]
    where = f"{settings['device']}, {settings['threads']} threads, median of {settings['repeats']}"
    title = f"{settings['model']}, {settings['dtype']}, {where}"
    Console().print(tables.offline_table(title, rows))
    more: dict[str, Any] = {}
    if is_compared:
        more = {
            "ratios": tables.ratios(rows),
            "agreement": {"equal": comparison.num_equal, "compared": comparison.num_compared},
        }
        print(*(f"{name}: agon is {ratio:.2f} times as fast" for name, ratio in more["ratios"].items()), sep="\n")
        print(f"equal greedy answers: {comparison.num_equal} of {comparison.num_compared}")
    if output is not None:
        record.write(output, record.document("offline", settings, rows, **more))
    if plot is not None:
        bars = {f"{row['system']}, {row['concurrency']} at once": float(row["tokens_per_s"]) for row in rows}
        pictures.draw_bars(plot, title, "output tokens per second", bars)


@app.command()
def latency(
    model: Model = None,
    input_len: InputLen = 128,
    output_len: Annotated[int, typer.Option(min=1, help="Tokens of the answer.")] = 128,
    threads: Threads = None,
    dtype: Precision = "auto",
    kv_dtype: KVPrecision = "auto",
    device: Device = "cpu",
    load_format: Weights = "auto",
    tensor_parallel: TensorParallel = 1,
    max_running: MaxRunning = 32,
    max_batched_tokens: MaxBatchedTokens = 1024,
    repeats: Annotated[int, typer.Option(min=1, help="Answers; medians count.")] = 5,
    warm_ups: Annotated[int, typer.Option(min=0, help="Answers before that do not count.")] = 1,
    output: Output = None,
    plot: Plot = None,
) -> None:
    """One request at a time through our engine: time to first token, time per token."""
    from cli.bench import latency as response

    _check_outputs(output, plot)
    engine = _engine_config(
        model,
        threads,
        tensor_parallel,
        dtype=dtype,
        kv_dtype=kv_dtype,
        device=device,
        load_format=load_format,
        max_running=max_running,
        max_batched_tokens=max_batched_tokens,
    )
    (work,) = workloads.random_work(1, input_len, output_len, _vocab_size(engine.model))
    with _engine_errors(), progress_bar("answers", warm_ups + repeats) as advance:
        measuring = response.measure(engine, work, repeats=repeats, warm_ups=warm_ups, advance=advance)
        used_dtype, streams = asyncio.run(measuring)
    row = response.as_row(streams, work)
    settings = {"model": Path(engine.model).name, "threads": engine.num_threads, "dtype": used_dtype}
    title = f"{settings['model']}, {used_dtype}, {device}, {engine.num_threads} threads, median of {repeats}"
    Console().print(tables.latency_table(title, row))
    where = {"device": device, "tensor_parallel": tensor_parallel}
    if output is not None:
        record.write(output, record.document("latency", {**settings, **where}, [row]))
    if plot is not None:
        gaps = [[1e3 * gap for gap in (stream.ttft_s, *stream.gaps_s)] for stream in streams]
        lines = {f"answer {number}": values for number, values in enumerate(gaps, start=1)}
        pictures.draw_lines(plot, title, "token", "ms since the token before", list(range(1, output_len + 1)), lines)


@app.command()
def serve(
    url: Annotated[str, typer.Option(help="Any server with the OpenAI API, with or without /v1.")],
    model: Annotated[str | None, typer.Option(help="Default: the first that is served.")] = None,
    concurrency: Annotated[
        str | None, typer.Option(help="Requests in flight; several levels with commas. Default: 1,16,32.")
    ] = None,
    request_rate: Annotated[
        str | None, typer.Option(help="Instead: requests per second at random moments; levels with commas; or inf.")
    ] = None,
    workload: Annotated[
        str, typer.Option(help="words (of one length), sharegpt or alpaca (their lengths, in words), or a file.")
    ] = "words",
    num_requests: Annotated[int, typer.Option(min=1, help="At each level; never fewer than the level.")] = 64,
    prompt_words: Annotated[int, typer.Option(min=1)] = 64,
    output_len: Annotated[int, typer.Option(min=1, help="Tokens of each answer, where the workload names none.")] = 64,
    ignore_eos: Annotated[bool, typer.Option(help="Ask for answers of full length; not every server knows it.")] = True,
    goodput: Annotated[
        list[str] | None, typer.Option(metavar="NAME:MS", help="A target: ttft, tpot, itl or total; may be repeated.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the moments that --request-rate draws.")] = 0,
    output: Output = None,
    plot: Plot = None,
) -> None:
    """Load a running server: time to first token, time per token, tokens per second. The key: AGON_API_KEY.

    A file holds prompts: JSON lines or a JSON list of texts or {prompt, out}, or lines of text.
    """
    _check_outputs(output, plot)
    if concurrency is not None and request_rate is not None:
        raise CliError("--concurrency and --request-rate exclude each other.")
    is_open = request_rate is not None
    levels = _levels("--request-rate" if is_open else "--concurrency", request_rate or concurrency or "1,16,32")
    targets = _targets(goodput or [])
    items = _texts(workload, num_requests, prompt_words, output_len)
    plan = _ServePlan(url, model, levels, is_open, items, num_requests, ignore_eos, targets, seed)
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


class _ServePlan:
    """The levels of one `agon bench serve`, run one after the other."""

    def __init__(
        self,
        url: str,
        model: str | None,
        levels: list[float],
        is_open: bool,
        items: Callable[[int, int], list[TextWork]],
        num_requests: int,
        ignore_eos: bool,
        targets_ms: dict[str, float],
        seed: int,
    ) -> None:
        self._url, self._model, self._levels, self._is_open = url, model, levels, is_open
        self._items, self._num_requests, self._seed = items, num_requests, seed
        self._ignore_eos, self._targets_ms = ignore_eos, targets_ms

    async def run(self) -> list[dict[str, Any]]:
        """One row of the report for each level, after two short requests that do not count."""
        from cli.bench.serving import Load, run_closed
        from cli.openai_client import connect

        async with connect(self._url, os.environ.get("AGON_API_KEY")) as client:
            model = self._model or (await client.list_models())[0]
            warm = [TextWork(item.text, 4) for item in workloads.random_texts(2, 8, 4, seed=-1)]
            await run_closed(client, Load(model, warm, self._ignore_eos), 2, lambda: None)
            return [await self._run_level(client, model, number) for number in range(len(self._levels))]

    async def _run_level(self, client: "OpenAiClient", model: str, number: int) -> dict[str, Any]:
        from cli.bench.serving import Load, run_closed, run_open

        level = self._levels[number]
        least = 1 if self._is_open else int(level)
        requests = self._items(max(self._num_requests, least), number)
        load = Load(model, requests, self._ignore_eos, self._targets_ms)
        title = f"{level:g} requests/s" if self._is_open else f"{level:g} at once"
        with progress_bar(title, len(requests)) as advance:
            if self._is_open:
                return await run_open(client, load, level, self._seed + number, advance)
            return await run_closed(client, load, int(level), advance)


def _engine_config(model: str | None, threads: int | None, tensor_parallel: int, **settings: Any) -> EngineConfig:
    """Prefix caching is off: it would answer the second round from memory."""
    return EngineConfig(
        model or demo_models()[0].source,
        num_threads=threads or max(1, (os.cpu_count() or 1) // tensor_parallel),
        tensor_parallel=tensor_parallel,
        enable_prefix_caching=False,
        **settings,
    )


def _work(model: str, workload: str, num_prompts: int | None, input_len: int, output_len: int) -> list[Work]:
    if workload == "fixed":
        return workloads.random_work(num_prompts or 32, input_len, output_len, _vocab_size(model))
    if workload in workloads.NAMES:
        return workloads.within_vocabulary(workloads.named(workload, num_prompts), _vocab_size(model))
    path = _existing(workload, ("fixed", *workloads.NAMES))
    if workloads.holds_token_ids(path):
        return workloads.read_workload(path)[:num_prompts]
    from engine.text.tokenizer import Tokenizer

    texts = workloads.read_texts(path, output_len)[:num_prompts]
    with _engine_errors():
        tokenizer = Tokenizer.from_folder(model)
        return [
            Work(tuple(tokenizer.encode(item.text, add_special_tokens=True)), item.out or output_len) for item in texts
        ]


def _texts(
    workload: str, num_requests: int, prompt_words: int, output_len: int
) -> Callable[[int, int], list[TextWork]]:
    """(number of requests, level's number) -> requests. A file is repeated from its start when it is too short."""
    if workload == "words":
        return lambda count, number: workloads.random_texts(count, prompt_words, output_len, seed=number)
    if workload in RECIPES:
        return lambda count, number: workloads.texts_like(workload, count)
    texts = workloads.read_texts(_existing(workload, ("words", *RECIPES)), output_len)
    return lambda count, number: [texts[index % len(texts)] for index in range(count)]


def _existing(workload: str, names: tuple[str, ...]) -> Path:
    path = Path(workload)
    if not path.is_file():
        raise CliError(f"--workload {workload} is neither a file nor one of {', '.join(names)}.")
    return path


def _vocab_size(model: str) -> int:
    from cli.bench.offline import vocab_size

    return vocab_size(model)


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


def _check_outputs(output: Path | None, plot: Path | None) -> None:
    """Raise CliError for files that cannot be written, before the measurement."""
    pictures.require_matplotlib(plot)
    for path in (output, plot):
        if path is not None and not path.resolve().parent.is_dir():
            raise CliError(f"there is no folder {path.resolve().parent} to write {path.name} into.")


@contextmanager
def _engine_errors() -> Iterator[None]:
    """Errors that the engine raises on purpose become one sentence for the user."""
    from engine.errors import EngineError

    try:
        yield
    except EngineError as error:
        raise CliError(str(error)) from None


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
