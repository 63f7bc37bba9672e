"""`agon bench`: our engine against transformers on the same work; `agon bench serve`: load on a running server."""

import asyncio
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from cli import bench_record
from cli.arena import demo_models
from cli.errors import CliError

app = typer.Typer(add_completion=False)

Output = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Also write the result as JSON.")]


class Precision(StrEnum):
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"


class Device(StrEnum):
    CPU = "cpu"
    CUDA = "cuda"


@app.callback(invoke_without_command=True)
def offline(
    context: typer.Context,
    model: Annotated[str | None, typer.Option(help="A local folder. Default: the first demo model.")] = None,
    workload: Annotated[
        Path | None, typer.Option(help="JSON list of {ids, out}, instead of random prompts of one length.")
    ] = None,
    num_prompts: Annotated[int, typer.Option(min=1)] = 32,
    input_len: Annotated[int, typer.Option(min=1, help="Tokens of each prompt.")] = 128,
    output_len: Annotated[int, typer.Option(min=1, help="Tokens of each answer.")] = 64,
    concurrency: Annotated[int, typer.Option(min=1, help="Prompts at once.")] = 32,
    single: Annotated[int, typer.Option(min=1, help="Prompts measured one at a time, and compared.")] = 4,
    threads: Annotated[int | None, typer.Option(min=1, help="Default: every core.")] = None,
    dtype: Annotated[Precision, typer.Option()] = Precision.FLOAT32,
    device: Annotated[Device, typer.Option()] = Device.CPU,
    repeats: Annotated[int, typer.Option(min=1, help="Rounds; the median counts.")] = 3,
    output: Output = None,
) -> None:
    """Throughput of our engine and of transformers' generate on this machine, on the same work.

    Exit code 1 when their greedy answers in float32 differ.
    """
    if context.invoked_subcommand is not None:
        return
    from cli import bench_offline

    model = model or demo_models()[0].source
    work = (
        bench_offline.read_workload(workload)
        if workload is not None
        else bench_offline.random_work(num_prompts, input_len, output_len, bench_offline.vocab_size(model))
    )
    threads = threads or os.cpu_count() or 1
    settings = {
        "model": Path(model).name,
        "workload": workload.name if workload else {"num_prompts": num_prompts, "in": input_len, "out": output_len},
        "concurrency": concurrency,
        "threads": threads,
        "dtype": dtype.value,
        "device": device.value,
        "repeats": repeats,
    }
    comparison = bench_offline.compare(
        model,
        work,
        concurrency=concurrency,
        num_single=min(single, len(work)),
        dtype=dtype.value,
        device=device.value,
        threads=threads,
        repeats=repeats,
        progress=lambda text: print(text, file=sys.stderr, flush=True),
    )
    rows = [measured.as_row() for measured in comparison.measured]
    ratios = {
        "one at a time": _ratio(rows[2], rows[0]),
        f"{concurrency} at once": _ratio(rows[3], rows[1]),
        f"{concurrency} at once against transformers one at a time": _ratio(rows[3], rows[0]),
    }
    agreement = {"equal": comparison.num_equal, "compared": comparison.num_compared}
    title = f"{settings['model']}, {dtype.value}, {device.value}, {threads} threads, median of {repeats}"
    Console().print(_offline_table(title, rows))
    print(*(f"{name}: agon is {ratio:.2f} times as fast" for name, ratio in ratios.items()), sep="\n")
    print(f"equal greedy answers: {comparison.num_equal} of {comparison.num_compared}")
    if output is not None:
        bench_record.write(output, bench_record.document("offline", settings, rows, ratios=ratios, agreement=agreement))
    if dtype is Precision.FLOAT32 and comparison.num_equal < comparison.num_compared:
        raise CliError("the greedy answers of the two systems differ.")


@app.command()
def serve(
    url: Annotated[str, typer.Option(help="Any server with the OpenAI API, with or without /v1.")],
    model: Annotated[str | None, typer.Option(help="Default: the first that is served.")] = None,
    concurrency: Annotated[str, typer.Option(help="Requests in flight; several levels with commas.")] = "1,16,32",
    num_requests: Annotated[int, typer.Option(min=1, help="At each level; never fewer than the level.")] = 64,
    prompt_words: Annotated[int, typer.Option(min=1)] = 64,
    output_len: Annotated[int, typer.Option(min=1)] = 64,
    ignore_eos: Annotated[bool, typer.Option(help="Ask for answers of full length; not every server knows it.")] = True,
    output: Output = None,
) -> None:
    """Load a running server: time to first token, time per token, tokens per second. The key: AGON_API_KEY."""
    try:
        levels = [int(level) for level in concurrency.split(",")]
        if min(levels) < 1:
            raise ValueError
    except ValueError:
        raise CliError("--concurrency must be numbers above 0, separated by commas.") from None
    rows = asyncio.run(_serve(url, model, levels, num_requests, prompt_words, output_len, ignore_eos=ignore_eos))
    Console().print(_serving_table(url, rows))
    errors = [row["first_error"] for row in rows if row["first_error"]]
    if output is not None:
        settings = {"num_requests": num_requests, "prompt_words": prompt_words, "output_len": output_len}
        bench_record.write(output, bench_record.document("serving", settings, rows))
    if errors:
        raise CliError(f"some requests failed; the first error: {errors[0]}")


async def _serve(
    url: str,
    model: str | None,
    levels: list[int],
    num_requests: int,
    prompt_words: int,
    output_len: int,
    *,
    ignore_eos: bool,
) -> list[dict[str, Any]]:
    from cli.bench_serving import Load, run_load
    from cli.openai_client import connect, list_models

    rows = []
    async with connect(url, os.environ.get("AGON_API_KEY")) as client:
        name = model or (await list_models(client))[0]
        warm = Load(name, 2, prompt_words, min(4, output_len), ignore_eos, seed=-1)
        await run_load(client, warm, 2)
        for number, level in enumerate(levels):
            print(f"{level} at once", file=sys.stderr, flush=True)
            load = Load(name, max(num_requests, level), prompt_words, output_len, ignore_eos, seed=number)
            rows.append(await run_load(client, load, level))
    return rows


def _ratio(ours: dict[str, Any], theirs: dict[str, Any]) -> float:
    return round(float(ours["tokens_per_s"]) / float(theirs["tokens_per_s"]), 3)


def _offline_table(title: str, rows: list[dict[str, Any]]) -> Table:
    table = Table(title=title, title_justify="left")
    for column in ("system", "at once", "prompts", "output tokens", "seconds", "tokens/s"):
        table.add_column(column, justify="left" if column == "system" else "right")
    for row in rows:
        seconds = ", ".join(f"{second:.2f}" for second in row["seconds"])
        cells = (row["concurrency"], row["num_prompts"], row["output_tokens"], seconds, f"{row['tokens_per_s']:.1f}")
        table.add_row(row["system"], *(str(cell) for cell in cells))
    return table


def _serving_table(url: str, rows: list[dict[str, Any]]) -> Table:
    table = Table(title=url, title_justify="left")
    for column in ("at once", "requests", "failed", "tokens/s", "TTFT ms p50/p95/p99", "TPOT ms p50/p95/p99"):
        table.add_column(column, justify="right")
    for row in rows:
        times = (
            "/".join(str(row[f"{name}_p{percent}"]) for percent in (50, 95, 99)) for name in ("ttft_ms", "tpot_ms")
        )
        numbers = (row["concurrency"], row["requests"], row["failed"], row["output_tokens_per_s"])
        table.add_row(*(str(number) for number in numbers), *times)
    return table
