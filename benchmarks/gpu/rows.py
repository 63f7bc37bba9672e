"""One row after the other, each with the bound of the device and our goals beside what was measured.

A row that fails holds its error, and the others go on. A row that would begin after the deadline, or that needs more
memory than there is, is skipped and says so.
"""

import math
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.gpu.bounds import decode_parts_s, decode_s, prefill_s, token_bytes, weight_bytes
from benchmarks.gpu.ours import Agon, release
from benchmarks.gpu.peer import Transformers
from benchmarks.gpu.plan import Plan, sharegpt_work, uniform_work
from benchmarks.gpu.shapes import CONFIGS, DECODE_GOALS, PREFILL_GOALS, UNIFORM_GOAL, Goal
from benchmarks.kernels.limits import Limits

Row = dict[str, Any]
Progress = Callable[[str], None]
Save = Callable[[list[Row]], None]
_LONGEST_PEER_S = 120.0
#: Of a device's memory: weights that leave less than the rest for pages and steps are not loaded.
_WEIGHTS_SHARE = 0.85


class DoesNotFit(Exception):
    """The device is too small for the row."""


class Rows:
    def __init__(
        self,
        plan: Plan,
        device: str,
        limits: Limits,
        budget_s: float,
        progress: Progress,
        save: Save = lambda rows: None,
        memory_bytes: float = math.inf,
    ) -> None:
        """limits: of the device. save: called with all rows so far after each row. memory_bytes: of the device."""
        self._plan = plan
        self._device = device
        self._limits = limits
        self._deadline = time.monotonic() + budget_s
        self._progress = progress
        self._save = save
        self._memory_bytes = memory_bytes
        self.rows: list[Row] = []

    def measure(self) -> list[Row]:
        """Measure the most important rows first, because the time may not be enough for all."""
        for model in self._plan.models:
            self._within_time({"system": "agon", "model": model}, lambda model=model: self._model(model))
        if self._plan.has_peers:
            self._within_time({"system": "transformers", "model": self._plan.load_model}, self._peers)
        return self.rows

    @property
    def seconds_left(self) -> float:
        return self._deadline - time.monotonic()

    def _within_time(self, head: Row, run: Callable[[], None]) -> None:
        """Loading takes as long as several rows, so a model without time for any row is not loaded."""
        if self.seconds_left <= 0:
            self._add({"work": "load", **head}, dict)
            return
        release()  # the memory of a model that failed
        with _failures(self.rows, {"work": "load", **head}):
            run()
        self._save(self.rows)

    def _model(self, model: str) -> None:
        plan, config = self._plan, CONFIGS[model]
        if weight_bytes(config) > _WEIGHTS_SHARE * self._memory_bytes:
            raise DoesNotFit(
                f"weights of {weight_bytes(config) / 2**20:,.1f} MiB, {self._memory_bytes / 2**20:,.1f} MiB in all"
            )
        with self._agon(model) as agon:
            self._add(
                {"work": "load", "system": "agon", "model": model},
                lambda: {"seconds": agon.load_s, "operators": agon.operators},
            )
            for batch in plan.batches:
                self._add(
                    {"work": "decode", "system": "agon", "model": model, "batch": batch},
                    lambda batch=batch: self._decode(agon, config, batch),
                    DECODE_GOALS.get((model, batch)),
                )
            for tokens in plan.prompts:
                self._add(
                    {"work": "prefill", "system": "agon", "model": model, "prompt_tokens": tokens},
                    lambda tokens=tokens: self._prefill(agon, config, tokens),
                    PREFILL_GOALS.get((model, tokens)),
                )
            if model == plan.load_model:
                for name, work, temperature, goal in self._loads():
                    self._add(
                        {"work": name, "system": "agon", "model": model, "operators": agon.operators},
                        lambda work=work, temperature=temperature: agon.serve(work, temperature),
                        goal,
                    )
            # Last: a device may be slower once a profiler has been attached.
            for batch in plan.batches if plan.num_profiled else ():
                self._add(
                    {"work": "profile", "system": "agon", "model": model, "batch": batch},
                    lambda batch=batch: self._profile(agon, config, batch),
                )

    def _check_room(self, agon: Agon, config: dict[str, Any], batch: int) -> None:
        """With less room some sequences would wait for others, and the step would be one of a smaller batch."""
        needed = batch * self._plan.context * token_bytes(config)
        if needed > agon.pool_bytes:
            raise DoesNotFit(f"contexts of {needed / 2**20:,.1f} MiB, pages of {agon.pool_bytes / 2**20:,.1f} MiB")

    def _decode(self, agon: Agon, config: dict[str, Any], batch: int) -> Row:
        self._check_room(agon, config, batch)
        found = agon.decode(batch, self._plan.context, self._plan.decode_steps)
        found["bound"] = round(batch / decode_s(self._limits, config, batch, found["context"]), 1)
        return found

    def _profile(self, agon: Agon, config: dict[str, Any], batch: int) -> Row:
        """The kernels of a step one by one, and by class beside the bound of the class."""
        self._check_room(agon, config, batch)
        found = agon.profile(batch, self._plan.context, self._plan.num_profiled)
        bounds_s = decode_parts_s(self._limits, config, batch, found["context"])
        classes = []
        for name in (*bounds_s, "other"):
            kernels = [kernel for kernel in found["kernels"] if kernel["kernel_class"] == name]
            sums = {key: round(sum(kernel[key] for kernel in kernels), 2) for key in ("launches", "us")}
            bound_us = round(1e6 * bounds_s[name], 2) if name in bounds_s else None
            classes.append({"kernel_class": name, **sums, "bound_us": bound_us})
        totals = {key: round(sum(part[key] for part in classes), 2) for key in ("launches", "us")}
        return {**totals, "classes": classes, **found}

    def _prefill(self, agon: Agon, config: dict[str, Any], num_tokens: int) -> Row:
        found = agon.prefill(num_tokens, self._plan.prefill_repeats)
        found["bound"] = round(num_tokens / prefill_s(self._limits, config, num_tokens), 1)
        return found

    def _loads(self) -> Iterator[tuple[str, list[Any], float, Goal | None]]:
        """Name, work, temperature, goal."""
        plan = self._plan
        vocab_size = CONFIGS[plan.load_model]["vocab_size"]
        goal = UNIFORM_GOAL if plan.uniform == (256, 100, 1024) else None
        yield "uniform", uniform_work(*plan.uniform, vocab_size), 0.6, goal
        yield "sharegpt", sharegpt_work(plan.num_sharegpt, vocab_size), 0.0, None

    def _peers(self) -> None:
        """Peers get the first requests of the uniform load; on all of them they would reach as many tokens a second at
        best."""
        plan = self._plan
        work = uniform_work(*plan.uniform, CONFIGS[plan.load_model]["vocab_size"])
        head = {"work": "uniform", "model": plan.load_model}
        with Transformers(CONFIGS[plan.load_model], self._device) as peer:
            for size in plan.peer_batches:
                self._add(
                    {**head, "system": f"transformers, batches of {size}"},
                    lambda size=size: peer.batched(work[: plan.num_batched], size),
                )
            self._add(
                {**head, "system": "transformers, one at a time"},
                lambda: peer.one_at_a_time(work[: plan.num_one_at_a_time]),
            )
            if plan.has_continuous:
                self._add(
                    {**head, "system": "transformers, continuous batching"},
                    lambda: peer.continuous(work[: plan.num_batched], min(self.seconds_left, _LONGEST_PEER_S)),
                )

    def _add(self, head: Row, run: Callable[[], Row], goal: Goal | None = None) -> None:
        row = dict(head)
        self.rows.append(row)
        if self.seconds_left <= 0:
            row["skipped"] = "the time was over"
        else:
            with _failures([], row):
                row |= run()
            if goal is not None:
                row |= {"goal": goal.goal, "first_milestone": goal.milestone}
        self._progress(describe(row))
        self._save(self.rows)

    @contextmanager
    def _agon(self, model: str) -> Iterator[Agon]:
        with (
            TemporaryDirectory() as folder,
            Agon(Path(folder) / model, CONFIGS[model], self._plan, self._device) as agon,
        ):
            yield agon


@contextmanager
def _failures(rows: list[Row], row: Row) -> Iterator[None]:
    """An exception inside becomes a row, its traceback is printed, and the benchmark goes on."""
    try:
        yield
    except DoesNotFit as reason:
        row["skipped"] = f"it does not fit: {reason}"
        rows.append(row)
    except Exception as error:
        traceback.print_exc()
        row["failed"] = f"{type(error).__name__}: {error}".splitlines()[0]
        rows.append(row)


def describe(row: Row) -> str:
    """A readable line: the work, tokens per second, and the share of bound and goal."""
    keys = ("work", "model", "batch", "requests" if "requests" in row else "prompt_tokens", "system")
    what = " ".join(str(row[key]) for key in keys if key in row)
    if "failed" in row or "skipped" in row:
        return f"{what}: {row.get('failed') or row['skipped']}"
    if "classes" in row:
        parts = ", ".join(f"{part['kernel_class']} {part['us']:.0f}" for part in row["classes"])
        return f"{what}: {row['us']:.0f} us in {row['launches']:.0f} launches a step: {parts}"
    if "tokens_per_s" not in row:
        return f"{what}: {row['seconds']} s"
    text = f"{what}: {row['tokens_per_s']:,.0f} tokens/s"
    for key in ("bound", "goal", "first_milestone"):
        if row.get(key):
            text += f", {100 * row['tokens_per_s'] / row[key]:.0f} % of {key.replace('_', ' ')} {row[key]:,.0f}"
    return text
