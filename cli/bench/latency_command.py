"""`agon bench latency`: options and output; latency.py measures."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from cli.bench import pictures, record, tables, workloads
from cli.bench.latency import as_row, measure
from cli.bench.offline import vocab_size
from cli.bench.options import (
    Device,
    InputLen,
    KVPrecision,
    MaxBatchedTokens,
    MaxRunning,
    Model,
    Output,
    Plot,
    Precision,
    TensorParallel,
    Threads,
    Weights,
    check_outputs,
    engine_config,
    engine_errors,
)
from cli.bench.progress import progress_bar


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
    repeats: Annotated[int, typer.Option(min=1, help="Measured answers; the result has medians.")] = 5,
    warm_ups: Annotated[int, typer.Option(min=0, help="Answers before them that are not counted.")] = 1,
    output: Output = None,
    plot: Plot = None,
) -> None:
    """One request at a time through our engine: time to first token, time per token."""
    check_outputs(output, plot)
    config = engine_config(
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
    (work,) = workloads.random_work(1, input_len, output_len, vocab_size(config.model))
    with engine_errors(), progress_bar("answers", warm_ups + repeats) as advance:
        measuring = measure(config, work, repeats=repeats, warm_ups=warm_ups, advance=advance)
        used_dtype, streams = asyncio.run(measuring)
    row = as_row(streams, work)
    settings = {"model": Path(config.model).name, "threads": config.num_threads, "dtype": used_dtype}
    title = f"{settings['model']}, {used_dtype}, {device}, {config.num_threads} threads, median of {repeats}"
    Console().print(tables.latency_table(title, row))
    where = {"device": device, "tensor_parallel": tensor_parallel}
    if output is not None:
        record.write(output, record.document("latency", {**settings, **where}, [row]))
    if plot is not None:
        gaps = [[1e3 * gap for gap in (stream.ttft_s, *stream.gaps_s)] for stream in streams]
        lines = {f"answer {number}": values for number, values in enumerate(gaps, start=1)}
        pictures.draw_lines(plot, title, "token", "ms since the token before", list(range(1, output_len + 1)), lines)
