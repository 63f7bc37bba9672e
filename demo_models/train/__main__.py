"""Train one demo model on this machine: `python -m demo_models.train --model raven`.

The dialogues are generated; there is no data set. The last step writes the model's folder. See demo_models/README.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
from pathlib import Path
from statistics import mean

import torch
from rich.console import Console
from rich.logging import RichHandler
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from tokenizers import Tokenizer

from demo_models.train.architectures import MODEL_NAMES, ModelName
from demo_models.train.export import TrainingRecord, export
from demo_models.train.recipe import RECIPES
from demo_models.train.tokenizer import train_tokenizer, train_tool_tokenizer
from demo_models.train.trainer import Progress as StepProgress
from demo_models.train.trainer import Trainer

HERE = Path(__file__).parent
LOG_EVERY = 20
#: after this many steps the speed is known, and --minutes becomes a number of tokens
TIMED_STEPS = 30
log = logging.getLogger("demo_models.train")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m demo_models.train", description="Train one of the demo models.")
    parser.add_argument("--model", choices=MODEL_NAMES, required=True)
    parser.add_argument("--tokens", type=int, help="budget in tokens (default: the model's recipe)")
    parser.add_argument("--minutes", type=float, help="choose the budget by time, from the speed of the first steps")
    parser.add_argument("--resume", action="store_true", help="continue from the run's checkpoint")
    parser.add_argument(
        "--export-only", action="store_true", help="write the model's folder from the checkpoint, do not train"
    )
    parser.add_argument("--threads", type=int, default=1, help="torch threads (default: 1)")
    parser.add_argument("--runs", type=Path, default=HERE / "runs", help="folder of checkpoints and the tokenizer")
    parser.add_argument("--out", type=Path, default=HERE.parent, help="parent of the model's folder")
    return parser.parse_args()


def _tokenizer(name: ModelName, runs: Path, out: Path) -> Tokenizer:
    """The tokenizer of the runs or of the models; trains one if neither exists."""
    has_tools = name == "wren"
    path = runs / ("tool_tokenizer.json" if has_tools else "tokenizer.json")
    for existing in (path, out / ("wren" if has_tools else "raven") / "tokenizer.json"):
        if existing.exists():
            return Tokenizer.from_file(str(existing))
    log.info("training the tokenizer")
    path.parent.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tool_tokenizer() if has_tools else train_tokenizer()
    tokenizer.save(str(path))
    return tokenizer


class ConsoleReport:
    """Shows progress and log lines, and turns --minutes into a token budget once the speed is known."""

    def __init__(self, trainer: Trainer, bar: Progress, minutes: float | None) -> None:
        self._trainer = trainer
        self._bar = bar
        self._task = bar.add_task(trainer.name, total=trainer.budget, completed=trainer.num_tokens)
        self._minutes = minutes
        self._started_s = trainer.elapsed_s
        self._losses: list[float] = []
        self._speeds: list[float] = []

    def __call__(self, done: StepProgress) -> None:
        self._losses.append(done.loss)
        self._speeds.append(done.tokens_per_s)
        if self._minutes is not None and len(self._losses) == TIMED_STEPS:
            speed = mean(self._speeds)
            left_s = self._minutes * 60 - (done.elapsed_s - self._started_s)
            self._trainer.budget = int(done.tokens + speed * max(0.0, left_s))
            log.info("%.0f tokens/s, so the budget is %.2fM tokens", speed, self._trainer.budget / 1e6)
        self._bar.update(self._task, completed=done.tokens, total=self._trainer.budget)
        if done.step % LOG_EVERY == 0:
            log.info(
                "step %d  %.2fM tokens  loss %.4f  %.0f tokens/s  %.1f min",
                done.step,
                done.tokens / 1e6,
                mean(self._losses[-LOG_EVERY:]),
                mean(self._speeds[-LOG_EVERY:]),
                done.elapsed_s / 60,
            )


def main() -> None:
    """Train one model, or only export it, as the flags say."""
    arguments = _arguments()
    console = Console()
    logging.basicConfig(
        level=logging.INFO, format="%(message)s", handlers=[RichHandler(console=console, show_path=False)]
    )
    torch.set_num_threads(arguments.threads)
    torch.set_flush_denormal(True)
    name, folder = arguments.model, arguments.runs / arguments.model
    recipe = RECIPES[name]
    if arguments.tokens is not None:
        recipe = dataclasses.replace(recipe, tokens=arguments.tokens)
    tokenizer = _tokenizer(name, arguments.runs, arguments.out)
    trainer = Trainer(name, recipe, tokenizer, folder)
    if arguments.resume or arguments.export_only:
        trainer.load()
        log.info("resumed at step %d, %d tokens", trainer.num_steps, trainer.num_tokens)
    num_params = sum(p.numel() for p in trainer.model.parameters())
    if not arguments.export_only:
        log.info("%s: %.2fM parameters, budget %.2fM tokens", name, num_params / 1e6, recipe.tokens / 1e6)
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>5.1f}%"))
        with Progress(
            *columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console, refresh_per_second=1
        ) as bar:
            trainer.run(ConsoleReport(trainer, bar, arguments.minutes))
    record = TrainingRecord(num_params, trainer.num_tokens, trainer.num_steps, round(trainer.elapsed_s / 60, 1))
    export(name, trainer.model.state_dict(), tokenizer, record, arguments.out / name)
    log.info("wrote %s", arguments.out / name)


if __name__ == "__main__":
    main()
