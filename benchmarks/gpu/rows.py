"""One row after the other, each with the bound of the device and our goals beside what was measured.

A row that fails holds its error, and the others go on, unless the device's context is lost: no call of this process
would succeed any more. A row that would begin after the deadline, or that needs more memory than there is, is skipped
and says so. A row counts as failed until it is measured, so that one whose process ends says so, too.
"""

import math
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.gpu.bounds import decode_parts_s, decode_s, prefill_s, token_bytes, weight_bytes
from benchmarks.gpu.measure import UNFINISHED, is_context_lost
from benchmarks.gpu.ours import Agon, release
from benchmarks.gpu.peer import Transformers
from benchmarks.gpu.plan import PEERS, Plan, sharegpt_work, uniform_work
from benchmarks.gpu.shapes import CONFIGS, DECODE_GOALS, PREFILL_GOALS, UNIFORM_GOAL, Goal
from benchmarks.kernels.limits import Limits
from cli.bench.workloads import Work

Row = dict[str, Any]
Progress = Callable[[str], None]
Save = Callable[[list[Row]], None]
#: Of a device's memory: weights that leave less than the rest for pages and steps are not loaded.
_WEIGHTS_SHARE = 0.85


class Skipped(Exception):
    """Why a row is not measured."""


class ContextLost(Exception):
    """After an illegal access every further call of the process fails."""


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
        earlier: Sequence[Row] = (),
    ) -> None:
        """limits: of the device. save: called with all rows so far before and after each one. memory_bytes: of the
        device. earlier: rows of processes before this one, which are not measured again."""
        self._plan = plan
        self._device = device
        self._limits = limits
        self._deadline = time.monotonic() + budget_s
        self._progress = progress
        self._save = save
        self._memory_bytes = memory_bytes
        self.rows: list[Row] = list(earlier)

    def measure(self, part: str) -> None:
        """Measure a part of the plan, the most important rows first, because the time may not be enough for all.

        Raises ContextLost where the rest needs another process."""
        is_peer = part == PEERS
        head = {"work": "load", "system": part if is_peer else "agon"}
        head["model"] = self._plan.load_model if is_peer else part
        if (earlier := self._row_of(head)) is not None:
            if "seconds" not in earlier:
                return  # what ended that process would end this one
            self.rows.remove(earlier)
        # Loading takes as long as several rows, so a model without time for any row is not loaded.
        release()  # the memory of a model that failed
        with ExitStack() as stack:
            loaded: list[Any] = []

            def load() -> Row:
                started = time.perf_counter()
                loaded.append(stack.enter_context(self._transformers() if is_peer else self._agon(part)))
                seconds = {"seconds": round(time.perf_counter() - started, 2)}
                return seconds if is_peer else {**seconds, "operators": loaded[0].operators}

            self._add(head, load)
            if loaded and is_peer:
                self._peers(loaded[0])
            elif loaded:
                self._model(loaded[0], part)

    @property
    def seconds_left(self) -> float:
        return self._deadline - time.monotonic()

    def _model(self, agon: Agon, model: str) -> None:
        plan, config = self._plan, CONFIGS[model]
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
            raise Skipped(
                f"it does not fit: contexts of {needed / 2**20:,.1f} MiB, pages of {agon.pool_bytes / 2**20:,.1f} MiB"
            )

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
        if plan.num_sharegpt:
            yield "sharegpt", sharegpt_work(plan.num_sharegpt, vocab_size), 0.0, None

    def _peers(self, peer: Transformers) -> None:
        """Peers get the first requests of the uniform load, with shorter answers: how many tokens they give in a second
        hardly depends on how long they go on."""
        plan = self._plan
        work = uniform_work(*plan.uniform, CONFIGS[plan.load_model]["vocab_size"])
        head = {"work": "uniform", "model": plan.load_model}
        alone, together = (
            [Work(item.ids, min(item.out, longest)) for item in work[:count]]
            for count, longest in zip((1, plan.peer_batch), plan.peer_tokens, strict=True)
        )
        self._add({**head, "system": "transformers, one at a time"}, lambda: peer.one_at_a_time(alone))
        self._add(
            {**head, "system": f"transformers, batches of {plan.peer_batch}"},
            lambda: peer.batched(together, plan.peer_batch),
        )
        if plan.continuous_s:
            self._add(
                {**head, "system": "transformers, continuous batching"},
                lambda: peer.continuous(together, min(self.seconds_left, plan.continuous_s)),
            )

    def _row_of(self, head: Row) -> Row | None:
        return next((row for row in self.rows if row.items() >= head.items()), None)

    def _add(self, head: Row, run: Callable[[], Row], goal: Goal | None = None) -> None:
        """Measure a row, unless a process before this one has it. Raises ContextLost."""
        if self._row_of(head) is not None:
            return
        row = {**head, "failed": UNFINISHED}
        self.rows.append(row)
        self._save(self.rows)
        try:
            if self.seconds_left <= 0:
                raise Skipped("the time was over")
            found = run()
        except Skipped as reason:
            del row["failed"]
            row["skipped"] = str(reason)
        except Exception as error:
            traceback.print_exc()
            row["failed"] = f"{type(error).__name__}: {error}".splitlines()[0]
        else:
            del row["failed"]
            row |= found
        if goal is not None:
            row |= {"goal": goal.goal, "first_milestone": goal.milestone}
        self._progress(describe(row))
        self._save(self.rows)
        if "failed" in row and is_context_lost():
            raise ContextLost

    @contextmanager
    def _agon(self, model: str) -> Iterator[Agon]:
        needed = weight_bytes(CONFIGS[model])
        if needed > _WEIGHTS_SHARE * self._memory_bytes:
            raise Skipped(
                f"it does not fit: weights of {needed / 2**20:,.1f} MiB, {self._memory_bytes / 2**20:,.1f} MiB in all"
            )
        with (
            TemporaryDirectory() as folder,
            Agon(Path(folder) / model, CONFIGS[model], self._plan, self._device) as agon,
        ):
            yield agon

    def _transformers(self) -> Transformers:
        return Transformers(CONFIGS[self._plan.load_model], self._device)


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
