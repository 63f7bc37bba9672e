"""`agon bench offline`: options, output and exit code; offline.py measures."""

import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from cli.bench import pictures, record, tables, workloads
from cli.bench.offline import Comparison, compare, measure, vocab_size
from cli.bench.options import (
    Device,
    Draft,
    DraftTokens,
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
    workload_file,
)
from cli.bench.workloads import Work
from cli.errors import CliError
from engine.config import EngineConfig


class Peer(StrEnum):
    """Systems that `agon bench offline --against` measures too."""

    TRANSFORMERS = "transformers"


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
    output_len: Annotated[int, typer.Option(min=1, help="Tokens of each answer, if the workload gives none.")] = 64,
    against: Annotated[
        Peer | None, typer.Option(help="Measure this system too, alternating with ours, and compare the answers.")
    ] = None,
    max_running: MaxRunning = 32,
    max_batched_tokens: MaxBatchedTokens = 1024,
    single: Annotated[int, typer.Option(min=1, help="With --against: prompts also measured one at a time.")] = 4,
    threads: Threads = None,
    dtype: Precision = "auto",
    kv_dtype: KVPrecision = "auto",
    device: Device = "cpu",
    load_format: Weights = "auto",
    tensor_parallel: TensorParallel = 1,
    draft: Draft = None,
    draft_tokens: DraftTokens = 8,
    repeats: Annotated[int, typer.Option(min=1, help="Measured rounds; the result has medians.")] = 3,
    output: Output = None,
    plot: Plot = None,
) -> None:
    """Throughput of our engine in this process; with --against transformers, of both on the same work.

    Exit code 1 when their greedy answers in float32 differ.
    """
    check_outputs(output, plot)
    if against is not None and draft is not None:
        raise CliError("--draft is measured without --against.")
    if against is not None and load_format == "dummy":
        raise CliError("--against needs a checkpoint: each system would draw other random weights.")
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
        draft=draft,
        draft_tokens=draft_tokens,
    )
    work = _work(config.model, workload, num_prompts, input_len, output_len)
    comparison = _measure(config, work, None if against is None else min(single, len(work)), repeats)
    rows = [measured.as_row() for measured in comparison.measured]
    title = (
        f"{Path(config.model).name}, {comparison.dtype}, {device}, {config.num_threads} threads, median of {repeats}"
    )
    Console().print(tables.offline_table(title, rows))
    more = {} if against is None else _compared(comparison, rows)
    if comparison.drafts is not None:
        print(comparison.drafts.sentence)
        more["drafts"] = comparison.drafts.as_fields()
    if output is not None:
        fixed = {"num_prompts": len(work), "in": input_len, "out": output_len}
        sent = fixed if workload == "fixed" else Path(workload).name
        record.write(output, record.document("offline", _settings(config, comparison, sent, repeats), rows, **more))
    if plot is not None:
        bars = {f"{row['system']}, {row['concurrency']} at once": float(row["tokens_per_s"]) for row in rows}
        pictures.draw_bars(plot, title, "output tokens per second", bars)
    if comparison.dtype == "float32" and comparison.num_equal < comparison.num_compared:
        raise CliError("the greedy answers of the two systems differ.")


def _measure(config: EngineConfig, work: Sequence[Work], num_single: int | None, repeats: int) -> Comparison:
    """Measure our engine, or compare it with transformers if `num_single` is given."""
    with engine_errors():
        if num_single is None:
            return measure(config, work, repeats=repeats, progress=_say)
        return compare(config, work, num_single=num_single, repeats=repeats, progress=_say)


def _settings(config: EngineConfig, comparison: Comparison, workload: object, repeats: int) -> dict[str, Any]:
    """The settings in the JSON document."""
    return {
        "model": Path(config.model).name,
        "workload": workload,
        "concurrency": config.step_limits.max_running,
        "max_batched_tokens": config.step_limits.max_batched_tokens,
        "threads": config.num_threads,
        "dtype": comparison.dtype,
        "operators": comparison.operators,
        "device": config.device,
        "tensor_parallel": config.tensor_parallel,
        "draft": config.draft,
        "repeats": repeats,
    }


def _compared(comparison: Comparison, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Print the ratios and the agreement of a comparison; returns them for the JSON document."""
    ratios = tables.ratios(rows)
    print(*(f"{name}: agon is {ratio:.2f} times as fast" for name, ratio in ratios.items()), sep="\n")
    print(f"equal greedy answers: {comparison.num_equal} of {comparison.num_compared}")
    agreement = {"equal": comparison.num_equal, "compared": comparison.num_compared}
    return {"ratios": ratios, "agreement": agreement}


def _work(model: str, workload: str, num_prompts: int | None, input_len: int, output_len: int) -> list[Work]:
    if workload == "fixed":
        return workloads.random_work(num_prompts or 32, input_len, output_len, vocab_size(model))
    if workload in workloads.NAMES:
        return workloads.within_vocabulary(workloads.named(workload, num_prompts), vocab_size(model))
    path = workload_file(workload, ("fixed", *workloads.NAMES))
    if workloads.holds_token_ids(path):
        return workloads.read_workload(path)[:num_prompts]
    from engine.text.tokenizer import Tokenizer

    texts = workloads.read_texts(path, output_len)[:num_prompts]
    with engine_errors():
        tokenizer = Tokenizer.from_folder(model)
        return [
            Work(tuple(tokenizer.encode(item.text, add_special_tokens=True)), item.out or output_len) for item in texts
        ]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
