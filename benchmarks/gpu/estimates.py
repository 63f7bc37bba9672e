"""What an H200 is expected to reach, beside its bounds, our goals and what was measured: the tables of docs/gpu.md.

Bounds follow from the models' shapes. An estimate adds up, over the classes of kernels, the bound divided by the share
of it that such kernels reach, and a fixed time for each launch. `python -m benchmarks.gpu estimates` writes the tables,
with a column for every folder of measurements in benchmarks/results/gpu.
"""

import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gpu.bounds import decode_parts_s, decode_s, prefill_parts_s, prefill_s
from benchmarks.gpu.plan import WHOLE, uniform_work
from benchmarks.gpu.shapes import CONFIGS, DECODE_GOALS, PREFILL_GOALS, UNIFORM_GOAL, Goal
from benchmarks.kernels.limits import H200, Limits
from benchmarks.models import product_parameters
from cli.bench.workloads import Work

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "gpu.md"
RESULTS = ROOT / "benchmarks" / "results" / "gpu"
CONTEXT = 1024
#: Work, model, and batch, prompt tokens or number of requests.
Point = tuple[str, str, int]
Speeds = Mapping[Point, float]  #: tokens per second

_BEGIN, _END = "<!-- generated: python -m benchmarks.gpu estimates -->\n", "<!-- end of what is generated -->\n"

_INVARIANT_POINTS = (
    *(("decode", model, batch) for model in ("qwen3-0.6b", "llama-3.1-8b") for batch in (1, 16, 64, 256)),
    *(("prefill", model, 2048) for model in ("qwen3-0.6b", "llama-3.1-8b")),
)
_INVARIANT_ROWS, _ATTENDED_ROWS = 16, 256  #: of a launch
_PRODUCTS_PER_LAYER = 4

#: Launches of a decode step in a graph: norms, four products, heads into pages, attention, activation;
#: once a step embedding, sines, inputs and sampling.
LAUNCHES_PER_LAYER, LAUNCHES_PER_STEP = 9, 9
#: The same up to 64 rows, where the engine's own products take in norms (but for the first), activations and additions.
#: tests/benchmarks/steps compares them with what a graph records.
FEW_ROWS = 64
FEW_ROWS_PER_LAYER, FEW_ROWS_PER_STEP = 6, 10
#: Beyond the bytes and operations of a kernel: 1.3 us lie between two kernels of a graph (published for an H100), and a
#: kernel fills and drains the device.
_LAUNCH_S = 2.0e-6
#: Of the memory's speed when weights are read, of the tensor cores in products of many rows, of the memory's speed when
#: keys and values are read, of the memory's speed in what remains.
_WEIGHTS_SHARE, _PRODUCTS_SHARE, _CONTEXTS_SHARE, _ROWS_SHARE = 0.85, 0.70, 0.80, 0.75
#: Of the tensor cores in attention of prompts, by head size.
_PROMPTS_SHARE = {64: 0.40, 128: 0.45}

_QUANTISED_MODELS, _QUANTISED_BATCHES = ("qwen3-0.6b", "llama-3.1-8b"), (1, 16)
_ITEM_BITS = 16
#: What a decode step of transformers' `generate` takes on the host at the least, 28 layers of some 30 launches each. No
#: batch makes it shorter. It is not measured: a run on a device measures transformers itself.
_TRANSFORMERS_STEP_S = 0.027


@dataclass(frozen=True, slots=True)
class _Weights:
    """A format of the layers' weights."""

    name: str
    bits: float  #: of a weight, with its share of the scales
    #: Of the memory's speed at which products read them. 4 bits are bound by instructions: 5.2 to 5.7 for each weight,
    #: by the machine code for sm_90, are 62 to 68 % of it if multiprocessors issue in every clock.
    share: float


_FORMATS = (
    _Weights("4 bits, groups of 128", 4.25, 0.55),
    _Weights("FP8, blocks of 128 x 128", 8.25, 0.75),
)
_QUANTISED = f"""The same with quantised layers; the output head stays in 16 bits. Products are assumed to read weights
    of 4 bits at {_FORMATS[0].share:.0%} of the memory's speed, because they are bound by instructions, and FP8 at
    {_FORMATS[1].share:.0%}."""
_INVARIANT = f"""The same with `batch_invariant`, which multiplies {_INVARIANT_ROWS} rows in a launch, each of which is
    taken to read all weights from memory, folds nothing into products, and attends tokens of prompts one by one,
    {_ATTENDED_ROWS} in a launch."""
_PEERS = f"""The load of {WHOLE.uniform[0]} requests (prompts and answers of {WHOLE.uniform[1]} to {WHOLE.uniform[2]:,}
    tokens) beside transformers' `generate`, whose steps are bound by the host: assumed, not measured, are
    {1e3 * _TRANSFORMERS_STEP_S:g} ms for a step of any batch. "So many times as fast as transformers" therefore means
    nothing without saying how transformers is used. 24 times, the figure that vLLM was announced with, is far below the
    goal beside one request at a time, and above the bound of the device beside batches."""


def estimated_decode_s(limits: Limits, config: dict[str, Any], batch: int, context: float) -> float:
    """One decode step in a graph."""
    parts = dict(decode_parts_s(limits, config, batch, context))
    weights = sum(product_parameters(config))
    is_by_weights = limits.seconds(2 * weights) >= limits.seconds(0, 2 * weights * batch)
    products_s = parts.pop("products") / (_WEIGHTS_SHARE if is_by_weights else _PRODUCTS_SHARE)
    contexts_s = parts.pop("attention") / _CONTEXTS_SHARE
    per_layer, per_step = LAUNCHES_PER_LAYER, LAUNCHES_PER_STEP
    if batch <= FEW_ROWS:
        per_layer, per_step = FEW_ROWS_PER_LAYER, FEW_ROWS_PER_STEP
    launches = per_layer * config["num_hidden_layers"] + per_step
    return products_s + contexts_s + sum(parts.values()) / _ROWS_SHARE + launches * _LAUNCH_S


def estimated_prefill_s(limits: Limits, config: dict[str, Any], num_tokens: int) -> float:
    """One prompt on the device; the host may take longer to launch a short one."""
    products_s, attention_s = prefill_parts_s(limits, config, num_tokens)
    launches = LAUNCHES_PER_LAYER * config["num_hidden_layers"] + LAUNCHES_PER_STEP
    attention_share = _PROMPTS_SHARE[config["head_dim"]]
    return products_s / _PRODUCTS_SHARE + attention_s / attention_share + launches * _LAUNCH_S


def invariant_s(limits: Limits, config: dict[str, Any], num_rows: int, context: float, num_samples: int) -> float:
    """One step of num_rows tokens with contexts of that length on average, with EngineConfig.batch_invariant."""
    parts = dict(decode_parts_s(limits, config, num_rows, context))
    blocks, head_blocks = (-(-count // _INVARIANT_ROWS) for count in (num_rows, num_samples))
    parts.pop("products")
    layers, head = product_parameters(config)
    products_s = limits.seconds(2 * (blocks * layers + head_blocks * head)) / _WEIGHTS_SHARE
    contexts_s = parts.pop("attention") / _CONTEXTS_SHARE
    more_per_layer = _PRODUCTS_PER_LAYER * (blocks - 1) + -(-num_rows // _ATTENDED_ROWS) - 1
    launches = (LAUNCHES_PER_LAYER + more_per_layer) * config["num_hidden_layers"] + LAUNCHES_PER_STEP + head_blocks - 1
    return products_s + contexts_s + sum(parts.values()) / _ROWS_SHARE + launches * _LAUNCH_S


def invariant_table() -> str:
    """Markdown: the price of EngineConfig.batch_invariant, in tokens per second on one H200."""
    rows = []
    for work, model, size in _INVARIANT_POINTS:
        config, is_decode = CONFIGS[model], work == "decode"
        plain = (
            estimated_decode_s(H200, config, size, CONTEXT) if is_decode else estimated_prefill_s(H200, config, size)
        )
        invariant = invariant_s(H200, config, size, *((CONTEXT, size) if is_decode else (size / 2, 1)))
        numbers = (f"{float(f'{size / seconds:.3g}'):,.0f}" for seconds in (plain, invariant))
        rows.append([model, f"decode, {size}" if is_decode else f"prompt of {size:,}", *numbers])
    return table(["model", "work", "estimate", "estimate, batch_invariant"], rows)


def assumptions() -> str:
    """What the estimates rest on, as sentences."""
    memory, products = f"{H200.bytes_per_s / 1e12:g} TB/s", f"{H200.flops / 1e12:g} TFLOP/s"
    prompts = " or ".join(f"{share:.0%} (heads of {size})" for size, share in _PROMPTS_SHARE.items())
    text = f"""Taken as the limits of an H200: {memory} and {products}. Bounds follow from them and from the bytes and
        operations of each model's shapes. Assumed for the estimates: products read weights at {_WEIGHTS_SHARE:.0%} of
        that speed or multiply at {_PRODUCTS_SHARE:.0%}, attention reads contexts at {_CONTEXTS_SHARE:.0%} and
        multiplies prompts at {prompts}, other kernels move bytes at {_ROWS_SHARE:.0%}, and each of
        {LAUNCHES_PER_LAYER} launches a layer and {LAUNCHES_PER_STEP} a step, or {FEW_ROWS_PER_LAYER} and
        {FEW_ROWS_PER_STEP} up to {FEW_ROWS} rows where products are ours, takes {1e6 * _LAUNCH_S:g} us more."""
    return _filled(text)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Markdown: one line for each row; the first column is text, numbers are strings already."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def load_s(limits: Limits, config: dict[str, Any], work: Sequence[Work], *, is_bound: bool) -> float:
    """A load of which all requests are there at once: its prompts, then steps of all that have not ended. is_bound: the
    bound, else the estimate."""
    prompt_s, step_s = (prefill_s, decode_s) if is_bound else (estimated_prefill_s, estimated_decode_s)
    seconds = sum(prompt_s(limits, config, len(item.ids)) for item in work)
    for step in range(1, max(item.out for item in work)):
        contexts = [len(item.ids) + step for item in work if item.out > step]
        seconds += step_s(limits, config, len(contexts), sum(contexts) / len(contexts))
    return seconds


def estimates_table(results: Path = RESULTS) -> str:
    """Markdown: tokens per second of every model and batch on one H200. results: the parent of folders of results."""
    measured = _measurements(results) or {"measured": {}}
    rows = []
    for (model, batch), goal in DECODE_GOALS.items():
        seconds = [each(H200, CONFIGS[model], batch, CONTEXT) / batch for each in (decode_s, estimated_decode_s)]
        rows.append(_row(("decode", model, batch), f"decode, {batch}", seconds, goal, measured))
    for (model, tokens), goal in PREFILL_GOALS.items():
        seconds = [each(H200, CONFIGS[model], tokens) / tokens for each in (prefill_s, estimated_prefill_s)]
        rows.append(_row(("prefill", model, tokens), f"prompt of {tokens:,}", seconds, goal, measured))
    seconds = [_uniform_s(is_bound=is_bound) for is_bound in (True, False)]
    point = ("uniform", WHOLE.load_model, WHOLE.uniform[0])
    rows.append(_row(point, f"{WHOLE.uniform[0]} requests at once", seconds, UNIFORM_GOAL, measured))
    return table(["model", "work", "bound", "estimate", "goal", "first milestone", *measured], rows)


def _uniform() -> list[Work]:
    return uniform_work(*WHOLE.uniform, CONFIGS[WHOLE.load_model]["vocab_size"])


def _uniform_s(*, is_bound: bool) -> float:
    """Seconds for each output token of the uniform load."""
    work = _uniform()
    return load_s(H200, CONFIGS[WHOLE.load_model], work, is_bound=is_bound) / sum(item.out for item in work)


def transformers_table() -> str:
    """Markdown: the uniform load by transformers at its best; bound, estimate and goal as multiples of that."""
    outputs = sorted(item.out for item in _uniform())
    num_tokens, batch = sum(outputs), WHOLE.peer_batch
    num_steps = {
        "one request at a time": num_tokens,
        f"padded batches of {batch}, sorted by length": sum(outputs[batch - 1 :: batch]),
        f"all {len(outputs)} at once, or continuous batching": outputs[-1],
    }
    ours = [1 / _uniform_s(is_bound=True), 1 / _uniform_s(is_bound=False), UNIFORM_GOAL.goal]
    rows = []
    for name, steps in num_steps.items():
        speed = num_tokens / (steps * _TRANSFORMERS_STEP_S)
        rows.append([name, f"{speed:,.0f}", *(f"{each / speed:.3g} x" for each in ours)])
    return table(["transformers", "its tokens per second at most", "our bound", "our estimate", "our goal"], rows)


def quantised_table() -> str:
    """Markdown: tokens per second of decodes with quantised layers, by the same method. The output head stays in 16
    bits, as in most checkpoints."""
    rows = []
    for model in _QUANTISED_MODELS:
        config = CONFIGS[model]
        layer_weights, _ = product_parameters(config)
        layers_s = H200.seconds(layer_weights * _ITEM_BITS / 8)
        for weights in _FORMATS:
            quantised_s = layers_s * weights.bits / _ITEM_BITS
            for batch in _QUANTISED_BATCHES:
                bound_s = decode_s(H200, config, batch, CONTEXT) - layers_s + quantised_s
                plain_s = estimated_decode_s(H200, config, batch, CONTEXT)
                estimate_s = plain_s - layers_s / _WEIGHTS_SHARE + quantised_s / weights.share
                speeds = (float(f"{batch / each:.3g}") for each in (bound_s, estimate_s, plain_s))
                rows.append([model, weights.name, f"decode, {batch}", *(f"{speed:,.0f}" for speed in speeds)])
    return table(["model", "layers' weights", "work", "bound", "estimate", "estimate in 16 bits"], rows)


def _row(point: Point, work: str, seconds: Sequence[float], goal: Goal, measured: Mapping[str, Speeds]) -> list[str]:
    """seconds: of a token, by the bound and by the estimate."""
    _, model, _ = point
    computed = [float(f"{1 / each:.3g}") for each in seconds]
    speeds = [*computed, goal.goal, goal.milestone, *(run.get(point) for run in measured.values())]
    return [model, work, *("" if speed is None else f"{speed:,.0f}" for speed in speeds)]


def _measurements(results: Path) -> dict[str, Speeds]:
    """By folder."""
    runs = {}
    for path in sorted(results.glob("*/gpu.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        runs[f"{path.parent.name}, measured"] = {
            (row["work"], row["model"], row.get("batch") or row.get("requests") or row["prompt_tokens"]): row[
                "tokens_per_s"
            ]
            for row in document["rows"]
            if row["system"] == "agon" and "tokens_per_s" in row
        }
    return runs


def with_table(page: str, results: Path = RESULTS) -> str:
    """The page with its tables replaced; the rest stays."""
    before, _, rest = page.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    parts = [assumptions(), estimates_table(results), _filled(_PEERS), transformers_table()]
    if not _measurements(results):
        parts.insert(0, _filled("**Nothing has been measured on a GPU yet**: the table's last column is empty."))
    parts += [_filled(_QUANTISED), quantised_table(), _filled(_INVARIANT), invariant_table()]
    return f"{before}{_BEGIN}\n{chr(10).join(parts)}\n{_END}{after}"


def _filled(text: str) -> str:
    return textwrap.fill(" ".join(text.replace("%", " %").split()), 130) + "\n"


def write_tables() -> None:
    """Replace the tables of docs/gpu.md."""
    DOCUMENT.write_text(with_table(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
