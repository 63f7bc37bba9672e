"""Tables of the results in a folder, as first_minutes.sh leaves them: what passed, whole models beside bounds,
estimates, goals and other engines, the kernels of their steps, each kernel alone, tuned tiles.

Whatever is missing is left out: a run that was cut off has a report, too.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from benchmarks.gpu.estimates import estimated_decode_s, estimated_prefill_s, table
from benchmarks.gpu.shapes import CONFIGS
from benchmarks.kernels.limits import Limits

Row = dict[str, Any]

_NUM_LONGEST = 12  #: kernels that are listed by name
_NAME_LENGTH = 60


@dataclass(frozen=True, slots=True)
class _Published:
    """A figure of others: the engine, what it ran on, the workload, output tokens per second, where it is from. None is
    the same test as ours."""

    model: str
    engine: str
    device: str
    work: str
    tokens_per_s: float
    source: str


_TENSORRT = "TensorRT-LLM, docs/source/performance/perf-overview.md"
_AIMULTIPLE = "research.aimultiple.com/inference-engines"
_NANO = "github.com/cosmoliu2002/nano-vllm-triton, issue 1"

_PUBLISHED: tuple[_Published, ...] = (
    _Published("llama-3.1-8b", "TensorRT-LLM, FP8", "H200", "1,000 in, 1,000 out, full load", 17_744, _TENSORRT),
    _Published("llama-3.1-8b", "TensorRT-LLM, FP8", "H200", "500 in, 2,000 out, full load", 20_770, _TENSORRT),
    _Published("llama-3.1-8b", "TensorRT-LLM, FP8", "H100", "1,000 in, 1,000 out, full load", 15_220, _TENSORRT),
    _Published("llama-3.1-8b", "SGLang", "H100", "1,000 ShareGPT prompts", 16_215, _AIMULTIPLE),
    _Published("llama-3.1-8b", "LMDeploy", "H100", "1,000 ShareGPT prompts", 16_132, _AIMULTIPLE),
    _Published("llama-3.1-8b", "vLLM with FlashInfer", "H100", "1,000 ShareGPT prompts", 12_553, _AIMULTIPLE),
    _Published("qwen3-0.6b", "nano-vllm-triton", "A800", "256 requests of 100 to 1,024", 10_009, _NANO),
    _Published("qwen3-0.6b", "vLLM 0.10.2", "A800", "256 requests of 100 to 1,024", 8_588, _NANO),
    _Published("llama-3.2-1b", "nano-vllm-triton", "A800", "256 requests of 100 to 1,024", 15_068, _NANO),
    _Published("llama-3.2-1b", "vLLM 0.10.2", "A800", "256 requests of 100 to 1,024", 12_627, _NANO),
)


def report(folder: Path) -> str:
    """Markdown."""
    lines, run, kernels = _lines(folder), _read(folder / "gpu.json"), _read(folder / "kernels.json")
    parts = [f"# Results in {folder.name}\n", _where(lines, [each for each in (run, kernels) if each])]
    parts += [_stages(lines), _probes(lines), _smoke(lines), _tests(folder / "tests.xml")]
    if run and "limits" in run:
        parts += ["## Whole models\n", _limits(run["limits"]), *_models(run), *_profiles(run)]
    if kernels:
        parts += ["## Each kernel alone\n", _limits(kernels["limits"]), _kernels(kernels["rows"])]
    parts += [_tiles(path) for path in sorted([*folder.glob("sm_*.json"), *folder.glob("interpreter.json")])]
    return "\n".join(part for part in parts if part)


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def _lines(folder: Path) -> list[Row]:
    path = folder / "lines.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return [json.loads(line) for line in lines if line.endswith("}")]  # the last one may be cut off


def _where(lines: list[Row], runs: list[Any]) -> str:
    devices = [*(line["facts"] for line in lines if "facts" in line), *(run.get("device") for run in runs)]
    machine = next((device for device in devices if device and "versions" in device), {})
    versions = ", ".join(f"{name} {version}" for name, version in machine.get("versions", {}).items())
    commits = ", ".join(sorted({str(run["commit"]) for run in runs}))
    return f"{machine.get('name', 'unknown device')}; {versions}; commit {commits}.\n"


def _stages(lines: list[Row]) -> str:
    rows = {}
    for line in lines:
        if "stage" in line:  # one that was repeated counts as it ended last
            outcome = {0: "passed", 124: "out of time"}.get(line["status"], f"failed, status {line['status']}")
            rows[line["stage"]] = [line["stage"], outcome, str(line["at"]), str(line["seconds"])]
    return "## Stages\n\n" + table(["stage", "outcome", "began at second", "seconds"], rows.values()) if rows else ""


def _probes(lines: list[Row]) -> str:
    """A probe that has begun and says nothing has ended its process."""
    answers = {line["probe"]: line for line in lines if "probe" in line}
    rows = []
    for name, line in answers.items():
        outcome = {True: "right", False: "wrong", None: ""}[line.get("is_right")]
        figures = {key: value for key, value in line.items() if key not in ("probe", "is_right", "seconds")}
        if figures.pop("has_begun", False):
            outcome = "ended its process"
        rows.append([name, outcome, _figures(figures)])
    return "## Probes\n\n" + table(["probe", "outcome", "found"], rows) if rows else ""


def _smoke(lines: list[Row]) -> str:
    rows = []
    for line in lines:
        if "smoke" in line:
            figures = {key: value for key, value in line.items() if key not in ("smoke", "form", "is_right")}
            outcome = "right" if line["is_right"] else "wrong"
            rows.append([line["smoke"], line.get("form", ""), outcome, _figures(figures)])
    return "## Smoke test\n\n" + table(["way", "form of the model", "outcome", "found"], rows) if rows else ""


def _figures(figures: Row) -> str:
    return ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in figures.items()).replace("|", " ")


def _tests(path: Path) -> str:
    """How many tests ran, and the names and last lines of those that failed."""
    try:
        cases = list(ElementTree.parse(path).iter("testcase"))
    except (OSError, ElementTree.ParseError):
        return ""
    rows = []
    for case in cases:
        for problem in (*case.findall("failure"), *case.findall("error")):
            text = (problem.get("message") or problem.text or "").strip().replace("|", " ").splitlines()
            rows.append([f"{case.get('classname')}::{case.get('name')}", text[0] if text else ""])
    skipped = sum(case.find("skipped") is not None for case in cases)
    summary = f"## Tests\n\n{len(cases)} tests, {len(rows)} failed, {skipped} skipped.\n"
    return summary + ("\n" + table(["failed", "why"], rows) if rows else "")


def _limits(limits: dict[str, float]) -> str:
    tera = [limits[key] / 1e12 for key in ("bytes_per_s", "flops")]
    return f"Limits measured in the same run: {tera[0]:.3g} TB/s, {tera[1]:.3g} TFLOP/s.\n"


def _models(run: dict[str, Any]) -> Iterator[str]:
    """Tables of decodes, prompts and loads, and what went wrong."""
    rows, limits = run["rows"], Limits(**run["limits"])
    for work, size in (("decode", "batch"), ("prefill", "prompt_tokens")):
        if lines := [_speeds(row, size, limits) for row in rows if row["work"] == work and "tokens_per_s" in row]:
            head = [
                "model",
                size.replace("_", " "),
                "tokens/s",
                "bound",
                "of it",
                "estimate",
                "goal",
                "first milestone",
            ]
            yield f"### {work}\n\n" + table(head, lines)
    if loads := [row for row in rows if "requests" in row]:
        lines = [[row["model"], row["work"], row["system"], *_counts(row)] for row in loads]
        models = {row["model"] for row in loads}
        others = [p for p in _PUBLISHED if p.model in models or any(row["model"] == p.model for row in rows)]
        lines += [
            [p.model, p.work, f"published: {p.engine}, {p.device}", "", f"{p.tokens_per_s:,.0f}", ""] for p in others
        ]
        yield "### loads\n\n" + table(["model", "work", "system", "requests", "output tokens/s", "goal"], lines)
        if others:
            sources = "; ".join(dict.fromkeys(p.source for p in others))
            yield f"No published figure is of the same test. Sources: {sources}.\n"
    if wrong := [row for row in rows if "failed" in row or "skipped" in row]:
        what = ("work", "system", "model", "batch", "prompt_tokens")
        lines = [
            [" ".join(str(row[key]) for key in what if key in row), row.get("failed") or row["skipped"]]
            for row in wrong
        ]
        yield "### not measured\n\n" + table(["row", "why"], lines)


def _speeds(row: Row, size: str, limits: Limits) -> list[str]:
    config = CONFIGS[row["model"]]
    speed, estimate = row["tokens_per_s"], ""
    if config["head_dim"] >= 64:  # those of the tiny model mean nothing
        if size == "batch":
            seconds = estimated_decode_s(limits, config, row["batch"], row["context"]) / row["batch"]
        else:
            seconds = estimated_prefill_s(limits, config, row["prompt_tokens"]) / row["prompt_tokens"]
        estimate = f"{1 / seconds:,.0f}"
    return [
        row["model"],
        f"{row[size]:,}",
        f"{speed:,.0f}",
        f"{row['bound']:,.0f}",
        f"{100 * speed / row['bound']:.0f} %",
        estimate,
        *(_reached(speed, row.get(key)) for key in ("goal", "first_milestone")),
    ]


def _counts(row: Row) -> list[str]:
    return [f"{row['requests']:,}", f"{row['tokens_per_s']:,.0f}", _reached(row["tokens_per_s"], row.get("goal"))]


def _reached(speed: float, wanted: float | None) -> str:
    return "" if wanted is None else f"{wanted:,.0f}, {'reached' if speed >= wanted else 'missed'}"


def _profiles(run: dict[str, Any]) -> Iterator[str]:
    """For each model: microseconds of a decode step by class of kernels, and the kernels that take longest."""
    profiles = [row for row in run["rows"] if row["work"] == "profile" and "classes" in row]
    decodes = {(row["model"], row["batch"]): row for row in run["rows"] if row["work"] == "decode" and "step_ms" in row}
    for model in dict.fromkeys(row["model"] for row in profiles):
        of_model = [row for row in profiles if row["model"] == model]
        names = [part["kernel_class"] for part in of_model[0]["classes"]]
        lines = [[name, *(_class_cell(row["classes"][index]) for row in of_model)] for index, name in enumerate(names)]
        lines.append(["all kernels", *(f"{row['us']:,.0f} us, {row['launches']:,.0f} launches" for row in of_model)])
        steps = [decodes.get((model, row["batch"])) for row in of_model]
        lines.append(
            ["step, without the profiler", *("" if s is None else f"{1e3 * s['step_ms']:,.0f} us" for s in steps)]
        )
        heads = [f"batch of {row['batch']}" for row in of_model]
        text = f"### {model}: microseconds of a decode step, by class of kernels\n\n"
        yield text + table(["class", *heads], lines)
        longest = of_model[-1]["kernels"][:_NUM_LONGEST]
        lines = [
            [k["name"][:_NAME_LENGTH].replace("|", " "), k["kernel_class"], f"{k['launches']:,.1f}", f"{k['us']:,.1f}"]
            for k in longest
        ]
        text = f"The longest of its kernels, batch of {of_model[-1]['batch']}:\n\n"
        yield text + table(["kernel", "class", "launches", "us"], lines)


def _class_cell(part: Row) -> str:
    bound = "" if part["bound_us"] is None else f", bound {part['bound_us']:,.0f}"
    return f"{part['us']:,.0f} us{bound}, {part['launches']:,.0f} launches"


def _kernels(rows: list[Row]) -> str:
    lines = []
    for row in rows:
        what = [row["kernel"], row["shape"]]
        if "us" not in row:
            lines.append([*what, row.get("failed") or row.get("skipped", "cut off"), *[""] * 6])
            continue
        goal = row["goal"] or {}
        share, us = goal.get("share"), goal.get("microseconds")
        wanted = "" if not goal else f"{us:g} us" if us is not None else f"{100 * share:.0f} %"
        met = {None: "", True: "met", False: "missed"}[row["is_goal_met"]]
        times = ["" if row[key] is None else f"{row[key]:,.1f}" for key in ("us", "warm_us", "bound_us")]
        peer = "" if row["torch_us"] is None else f"{row['torch_us']:,.1f}"
        lines.append([*what, *times, f"{100 * row['share_of_bound']:.0f} %", wanted, met, peer])
    head = ["kernel", "shape", "us", "warm us", "bound us", "of the bound", "goal", "", "torch us"]
    return table(head, lines)


def _tiles(path: Path) -> str:
    entries = _read(path)["entries"]
    products = [entry for entry in entries if entry["kernel"] == "skinny_product"]
    attention = [entry for entry in entries if entry["kernel"] != "skinny_product"]
    return _attention_tiles(path, attention) + (_product_tiles(path, products) if products else "")


def _product_tiles(path: Path, entries: Sequence[dict[str, Any]]) -> str:
    lines = []
    for entry in entries:
        ours, library = (entry["measured"][key] for key in ("microseconds", "library_microseconds"))
        values = ", ".join(f"{name} {value}" for name, value in entry["values"].items()) or "cuBLAS"
        own = "" if ours is None else f"{ours:,.1f}"
        lines.append([f"{entry['size']} x {entry['channels']}", str(entry["rows"]), values, own, f"{library:,.1f}"])
    head = ["weights", "rows", "used", "our us", "cuBLAS us"]
    return f"\n## Products of few rows, {path.stem}\n\n" + table(head, lines)


def _attention_tiles(path: Path, entries: Sequence[dict[str, Any]]) -> str:
    if not entries:
        return f"## Tiles, {path.stem}\n\nThe formula's tiles are the best in every class.\n"
    lines = []
    for entry in entries:
        times, formula = (entry["measured"][key] for key in ("microseconds", "formula_microseconds"))
        cost = sum(times[shape] / formula[shape] for shape in formula) / len(formula)
        key = f"{entry['kernel']}, {entry['mode']}, {entry['page_dtype']}, D {entry['head_dim']}, {entry['rows']} rows"
        values = ", ".join(f"{name} {value}" for name, value in entry["values"].items())
        lines.append([key, values, f"{100 * cost:.0f} %"])
    return f"## Tiles, {path.stem}\n\n" + table(["class", "tiles", "of the formula's time"], lines)
