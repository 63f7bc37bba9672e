"""Options that several subcommands of `agon bench` share, and the checks of their values."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from cli.arena.processes import demo_models
from cli.bench import pictures
from cli.engine_options import engine_option
from cli.errors import CliError
from engine.config import DType, EngineConfig, KVDType, LoadFormat
from engine.errors import EngineError

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
Draft = Annotated[str | None, engine_option("draft")]
DraftTokens = Annotated[int, engine_option("draft_tokens")]
Output = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Also write the result as JSON.")]
Plot = Annotated[Path | None, typer.Option(metavar="FILE", help="Also draw it: .png, .svg or .pdf (matplotlib).")]


def engine_config(model: str | None, threads: int | None, tensor_parallel: int, **settings: Any) -> EngineConfig:
    """The engine to measure, by default the first demo model on every core. `settings` are fields of EngineConfig.

    Prefix caching is off, because later rounds would find their prompts in the cache.
    """
    return EngineConfig(
        model or demo_models()[0].source,
        num_threads=threads or max(1, (os.cpu_count() or 1) // tensor_parallel),
        tensor_parallel=tensor_parallel,
        enable_prefix_caching=False,
        **settings,
    )


def workload_file(workload: str, names: tuple[str, ...]) -> Path:
    """The file that --workload names; raises CliError with the `names` of workloads if it is no file."""
    path = Path(workload)
    if not path.is_file():
        raise CliError(f"--workload {workload} is neither a file nor one of {', '.join(names)}.")
    return path


def check_outputs(output: Path | None, plot: Path | None) -> None:
    """Check before the measurement that its results can be written; raises CliError."""
    pictures.require_matplotlib(plot)
    for path in (output, plot):
        if path is not None and not path.resolve().parent.is_dir():
            raise CliError(f"there is no folder {path.resolve().parent} to write {path.name} into.")


@contextmanager
def engine_errors() -> Iterator[None]:
    """Errors of the engine inside the block become a CliError with the same message."""
    try:
        yield
    except EngineError as error:
        raise CliError(str(error)) from None
