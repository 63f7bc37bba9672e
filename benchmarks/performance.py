"""Writes docs/performance.md and its pictures from the results in benchmarks/results; with --measure, measures first.

python -m benchmarks.performance [--measure [--only NAME,...]]

Every section says on which commit and machine its figures were measured, and how busy others kept that machine. A
section whose results are missing says which command makes them. Processors without AVX-512 bf16 have results of their
own, in a folder named by their instruction set.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.models import CONFIGS, product_parameters
from benchmarks.operators.limits import CACHED_BYTES
from benchmarks.performance_hybrids import hybrids, prefix_turns
from benchmarks.performance_tables import table, times
from cli.bench.pictures import draw_bars, draw_lines
from engine.kernels.cpu.build import best_instruction_set

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
DOCUMENT = ROOT / "docs" / "performance.md"
FIGURES = ROOT / "docs" / "figures"

#: The instruction set whose results are in benchmarks/results itself; avx2 has a folder and a section of its own.
MAIN_SET, OTHER_SET = "avx512-bf16", "avx2"

#: What --measure runs, in this order: name, result file, command.
MEASUREMENTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "operators": ("operators.json", ("benchmarks.operators",)),
    "engine": ("engine.json", ("benchmarks.engine",)),
    "serving": ("serving.json", ("benchmarks.serving",)),
    "peers": ("peers-smol-135m.json", ("benchmarks.peers", "run", "--model", "smol-135m")),
    **{
        model: (
            f"peers-{model}.json",
            (
                "benchmarks.peers",
                "run",
                "--model",
                model,
                "--peers",
                "agon,vllm,openvino",
                "--workloads",
                "sharegpt,single",
            ),
        )
        for model in ("tiny-15m", "gemma2-tiny", "gpt2-124m")
    },
    "qwen3-0.6b-int4": (
        "peers-qwen3-0.6b-int4.json",
        (
            "benchmarks.peers",
            "run",
            "--model",
            "qwen3-0.6b",
            "--peers",
            "agon,4-bits",
            "--workloads",
            "single,sharegpt",
            "--limits",
        ),
    ),
    "hybrids": ("hybrids.json", ("benchmarks.engine.hybrids",)),
    "prefix-turns": ("prefix_turns.json", ("benchmarks.engine.prefix_turns",)),
    "accuracy": ("accuracy.json", ("benchmarks.engine.accuracy",)),
}

_HEAD = """# Performance on CPUs

Written by `make bench-performance` from the JSON files in `benchmarks/results`; do not edit. `make measure-performance`
measures everything again first (`benchmarks/README.md`). All models have random weights; token ids, lengths and threads
are the same for every engine; greedy, past the end of sequence, prefix caches off. *Others* are cores that other
processes used during a run: above 0.1 the row is contended, and only ratios within one table mean something.
"""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true", help="measure before writing")
    parser.add_argument("--only", default=",".join(MEASUREMENTS), help=f"with commas: {', '.join(MEASUREMENTS)}")
    chosen = parser.parse_args(arguments)
    names = chosen.only.split(",")
    if unknown := [name for name in names if name not in MEASUREMENTS]:
        parser.error(f"there is no measurement {unknown[0]!r}")
    failed = [name for name in names if not _measure(name)] if chosen.measure else []
    write(RESULTS, DOCUMENT, FIGURES)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}; the results before stay")


def _measure(name: str) -> bool:
    print(f"==> {name}", flush=True)
    file, command = MEASUREMENTS[name]
    instruction_set = best_instruction_set()
    folder = RESULTS if instruction_set == MAIN_SET else RESULTS / instruction_set
    folder.mkdir(exist_ok=True)
    to_file = () if name == "accuracy" else ("--json", str(folder / file))  # accuracy is the same everywhere
    return subprocess.run([sys.executable, "-m", *command, *to_file], cwd=ROOT, check=False).returncode == 0


def write(results: Path, document: Path, figures: Path) -> None:
    """The document and its pictures from the results that are there."""
    figures.mkdir(parents=True, exist_ok=True)
    found = _results_in(results)
    sections = [
        _HEAD,
        "## Against other engines: smol-135m (SmolLM2-135M's shape)\n",
        *_section("peers", found, _peers_of(found, figures / "performance-peers.png")),
        "## In 4 bits: qwen3-0.6b (Qwen3-0.6B's shape)\n",
        *_section("qwen3-0.6b-int4", found, _peers_in_4_bits),
        "## Other shapes\n",
        *(
            part
            for model in ("tiny-15m", "gemma2-tiny", "gpt2-124m")
            for part in (f"### {model}\n", *_section(model, found, _peers_of(found)))
        ),
        "## One step of the engine\n",
        *_section("engine", found, lambda result: _engine(result, figures)),
        "## Recurrent, hybrid and expert models\n",
        *_section("hybrids", found, hybrids),
        "## Later turns about a long document\n",
        *_section("prefix-turns", found, prefix_turns),
        "## What serving adds\n",
        *_section("serving", found, _serving),
        "## Operators\n",
        *_section("operators", found, _operators),
        "## What fewer bits cost\n",
        *_section("accuracy", found, _accuracy),
        *_other_processors(_results_in(results / OTHER_SET)),
    ]
    document.write_text("\n".join(sections).rstrip() + "\n", encoding="utf-8")
    print(document)


def _other_processors(found: dict[str, dict[str, Any] | None]) -> list[str]:
    """The section on a processor without AVX-512; empty if it has no results."""
    bodies: dict[str, tuple[str, Any]] = {
        **{
            name: (f"against other engines: {'smol-135m' if name == 'peers' else name}", _peers_of(found))
            for name in ("peers", "tiny-15m", "gemma2-tiny", "gpt2-124m")
        },
        "qwen3-0.6b-int4": ("in 4 bits: qwen3-0.6b", _peers_in_4_bits),
        "hybrids": ("recurrent, hybrid and expert models", hybrids),
        "prefix-turns": ("later turns about a long document", prefix_turns),
        "serving": ("what serving adds", _serving),
        "operators": ("operators", lambda result: _operators(result, heading="####")),
    }
    parts = [
        part
        for name, (title, body) in bodies.items()
        if found[name] is not None
        for part in (f"### AVX2, {title}\n", *_section(name, found, body))
    ]
    return ["## Without AVX-512: a processor with AVX2\n", *parts] if parts else []


def _peers_of(
    found: dict[str, dict[str, Any] | None], picture: Path | None = None
) -> Callable[[dict[str, Any]], list[str]]:
    operators = found["operators"]
    limits = operators["limits"] if operators is not None else None
    return lambda result: _peers(result, limits, picture)


def _results_in(folder: Path) -> dict[str, dict[str, Any] | None]:
    return {name: _read(folder / file) for name, (file, _) in MEASUREMENTS.items()}


def _read(path: Path) -> dict[str, Any] | None:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def _section(name: str, found: dict[str, dict[str, Any] | None], body: Any) -> list[str]:
    result = found[name]
    if result is None:
        command = " ".join(("python -m", *MEASUREMENTS[name][1]))
        return [f"Not measured yet: `{command}`.\n"]
    return [_where(result), *body(result)]


def _where(result: dict[str, Any]) -> str:
    machine, settings = result["machine"], result["settings"]
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items() if version)
    told = ", ".join(f"{name} {value}" for name, value in settings.items())
    noise = f"; others used {result['noise']['others_cores']} cores on average" if "noise" in result else ""
    return (
        f"Commit {result['commit']}, {result['when'][:10]}, {machine['cpu']} with {machine['cores']} cores "
        f"({packages}); {told}{noise}.\n"
    )


def _peers(
    result: dict[str, Any], limits: dict[str, float] | None, picture: Path | None, reference: str = "agon"
) -> list[str]:
    """`reference`: the peer that the others are compared with."""
    parts = []
    if limits is not None:
        parts.append(_bounds(result, limits))
    bars: dict[str, float] = {}
    for workload in dict.fromkeys(row["workload"] for row in result["rows"]):
        rows = [row for row in result["rows"] if row["workload"] == workload]
        ours = next((row for row in rows if row["peer"] == reference), None)
        if workload == "single":
            parts.append(_single_table(rows, ours))
            continue
        rows.sort(key=lambda row: -row["output_tokens_per_s"])
        bars |= {f"{workload}: {row['peer']}": row["output_tokens_per_s"] for row in rows}
        parts.append(_throughput_table(workload, rows, ours))
    if result.get("failed"):
        parts.append(
            "Failed: " + "; ".join(f"{peer} ({why.splitlines()[0]})" for peer, why in result["failed"].items())
        )
    if picture is not None and bars:
        draw_bars(picture, f"{result['settings']['model']}, bfloat16", "output tokens per second", bars)
        parts.append(f"![Output tokens per second by engine](figures/{picture.name})\n")
    return parts


def _peers_in_4_bits(result: dict[str, Any]) -> list[str]:
    """Beside Agon in 4 bits, with the shares of the read limit that was measured in the same run."""
    layers, head = product_parameters(CONFIGS[result["settings"]["model"]])
    measured = result["limits"]["memory_gb_per_s"]
    read = {
        row["peer"]: ((layers * bits[0] + head * bits[1]) / 8e6, row["tpot_ms"])
        for row in result["rows"]
        if row["workload"] == "single" and (bits := result["bits_read"].get(row["peer"])) is not None
    }
    limit = max(measured, *(megabytes / ms for megabytes, ms in read.values()))
    shares = (f"{peer} {mb:.0f} MB, {100 * mb / ms / limit:.0f} %" for peer, (mb, ms) in read.items())
    said = (
        f"Read limit: {limit:.1f} GB/s, the better of a sum in torch ({measured}) and the fastest stream. Weights that "
        f"a token of the single stream reads, and the share of the limit at which it does: {'; '.join(shares)}.\n"
    )
    return [
        "`llama-server-q4` is llama.cpp's server with Q4_K_M, `vllm-gptq` and `agon-gptq` read the same GPTQ folder, "
        "`openvino-int4` is optimum's default (groups of 128, the head 8 bits), `agon` is bfloat16. *Agon is* compares "
        "with `agon-int4`.\n",
        said,
        *_peers(result, None, None, "agon-int4"),
    ]


def _bounds(result: dict[str, Any], limits: dict[str, float]) -> str:
    """Upper bounds for any engine in bfloat16, from the limits of the operators' run; attention is not counted."""
    layers, head = product_parameters(CONFIGS[result["settings"]["model"]])
    token_ms = 2 * (layers + head) / limits["memory_gb_per_s"] / 1e6
    texts = []
    whole = {row["workload"]: row for row in result["rows"] if row["workload"] != "single" and row["limit"] is None}
    for workload, row in whole.items():
        operations = 2 * layers * (row["prompt_tokens"] + row["output_tokens"]) + 2 * head * row["output_tokens"]
        seconds = operations / limits["bfloat16_gflops"] / 1e9
        texts.append(f"{workload} at {row['output_tokens'] / seconds:.0f} output tokens/s")
    bound = f"a single stream at {token_ms:.2f} ms per token" if 2 * (layers + head) > CACHED_BYTES else ""
    texts += [bound] if bound else []
    return f"The matrix products alone bound, at the limits below: {', '.join(texts)}.\n" if texts else ""


def _throughput_table(workload: str, rows: list[dict[str, Any]], ours: dict[str, Any] | None) -> str:
    heads = (workload, "output tokens/s", "Agon is", "spread %", "requests", "others", "first tokens as Agon's")
    cells = (
        (
            _label(row),
            row["output_tokens_per_s"],
            times(ours and ours["output_tokens_per_s"], row["output_tokens_per_s"]),
            row["spread_percent"],
            row["requests"],
            _others(row),
            row["first_tokens_equal"],
        )
        for row in rows
    )
    return table(heads, cells)


def _single_table(rows: list[dict[str, Any]], ours: dict[str, Any] | None) -> str:
    rows.sort(key=lambda row: row["tpot_ms"])
    heads = ("single stream", "ms per token", "Agon is", "first token ms", "Agon is", "spread %", "others")
    cells = (
        (
            _label(row),
            row["tpot_ms"],
            times(row["tpot_ms"], ours and ours["tpot_ms"]),
            row["ttft_ms"],
            times(row["ttft_ms"], ours and ours["ttft_ms"]),
            row["spread_percent"],
            _others(row),
        )
        for row in rows
    )
    return table(heads, cells)


def _label(row: dict[str, Any]) -> str:
    return f"{row['peer']} ({row['version']})"


def _others(row: dict[str, Any]) -> str:
    return f"{max(row['others_cores']):.2f}" + ("" if row["is_quiet"] else " (contended)")


def _engine(result: dict[str, Any], figures: Path) -> list[str]:
    shares = result["shares"]
    parts = [
        f"With {shares['operators']} operators a decode step of {shares['batch']} sequences takes "
        f"{shares['step_ms']} ms; everything but the model's own "
        f"products, attention and output head is {100 * shares['overhead_share']:.1f} % of it "
        f"(mean of {shares['steps']} steps).\n",
        table(
            ("part", "ms", "share"),
            ((name, ms, f"{100 * shares['shares'][name]:.2f} %") for name, ms in shares["parts_ms"].items()),
        ),
    ]
    titles = {
        "batch": ("sequences that decode, each with 256 tokens of context", "ms per step"),
        "context": ("tokens of context of each of 8 sequences that decode", "ms per step"),
        "page_tokens": ("tokens in a page; 8 sequences with 1024 tokens of context", "ms per step"),
        "prompt_tokens": ("tokens of one prompt, computed at once", "ms per step"),
    }
    for varied, (x_label, y_label) in titles.items():
        rows = [row for row in result["rows"] if row["varied"] == varied]
        axis = {"page_tokens": "page_tokens", "prompt_tokens": "new_tokens"}.get(varied, varied)
        rows.sort(key=lambda row: row[axis])
        picture = figures / f"performance-{varied.replace('_', '-')}.png"
        x = [row[axis] for row in rows]
        draw_lines(picture, "One step", x_label, y_label, x, {"median": [row["median_ms"] for row in rows]})
        parts.append(table((x_label, *map(str, x)), [("ms", *(row["median_ms"] for row in rows))]))
        parts.append(f"![Step time against {varied}](figures/{picture.name})\n")
    return parts


def _serving(result: dict[str, Any]) -> list[str]:
    parts = []
    if result["rows"]:
        heads = ("through", "output tokens/s", "of the engine alone", "first token ms, p50", "added ms")
        cells = (
            (
                row["hop"],
                row["output_tokens_per_s"],
                f"{100 * row['of_the_engine']:.1f} %",
                row["ttft_ms_p50"],
                _with_interval(row["added_ttft_ms"], row.get("added_ttft_ms_95")),
            )
            for row in result["rows"]
        )
        parts.append(
            f"{result['rows'][0]['streams']} streams; first tokens of one stream at a time. Added is the median of "
            "what the hop adds to the same prompt, with its 95 % interval; where there is none, the engine's own "
            "variation is part of it.\n"
        )
        parts.append(table(heads, cells))
    if cold := result.get("cold_start"):
        mib = 2**20
        parts.append(
            f"A worker gives its first token {cold['first_token_s']} s after its process was started. Its resident set "
            f"is then {cold['resident_bytes_at_first_token'] / mib:.0f} MiB, and after {cold['streams']} streams at "
            f"once {cold['resident_bytes_after_streams'] / mib:.0f} MiB: weights {cold['weight_bytes'] / mib:.0f} MiB, "
            f"page pool {cold['pool_bytes'] / mib:.0f} MiB (touched only where pages were used), Python and its "
            f"packages without a model {cold['interpreter_and_imports_bytes'] / mib:.0f} MiB.\n"
        )
        if found := cold.get("found_packed"):
            two = cold["two_workers_bytes"]
            parts.append(
                f"With `--share-weights` its packed weights are found in the cache folder by every later start, which "
                f"gives its first token after {found['first_token_s']} s. Two workers of the model take "
                f"{two['auto'] / mib:.0f} MiB together; with weights of their own {two['off'] / mib:.0f} MiB.\n"
            )
    return parts


def _with_interval(value: float, interval: Sequence[float] | None) -> str:
    """The figure with its interval; older results have no interval."""
    return str(value) if interval is None else f"{value} ({interval[0]} to {interval[1]})"


def _operators(result: dict[str, Any], heading: str = "###") -> list[str]:
    limits = result["limits"]
    parts = [
        f"Limits measured in the same run: reading {limits['memory_gb_per_s']} GB/s from memory and "
        f"{limits['cache_gb_per_s']} GB/s from the last cache; products of 2048 x 2048 at {limits['bfloat16_gflops']} "
        f"GFLOP/s in bfloat16, {limits['float32_gflops']} in float32, {limits['int8_gops']} Gop/s in int8 (that of "
        "float32 where the processor is no faster in a format). The share "
        "is the time that the limit allows over the best time; operands below 16 MiB count as read from the cache, so "
        "the share of a small one says how much is overhead.\n"
    ]
    for operator in dict.fromkeys(row["operator"] for row in result["rows"]):
        rows = [row for row in result["rows"] if row["operator"] == operator]
        parts += [f"{heading} {operator}\n", _operator_table(rows)]
    return parts


def _operator_table(rows: list[dict[str, Any]]) -> str:
    """One line for each shape; for each implementation its best time and its share of the limit."""
    implementations = list(dict.fromkeys(row["implementation"].partition("-")[0] for row in rows))
    lines: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for row in rows:
        lines.setdefault((row["shape"], row["dtype"]), {})[row["implementation"].partition("-")[0]] = row
    heads = ["shape", "dtype", "limit us"]
    for name in implementations:
        heads += [f"{name} us", "of the limit"]
    cells = []
    for (shape, dtype), by_name in lines.items():
        line: list[Any] = [shape, dtype, next(iter(by_name.values()))["limit_us"]]
        for name in implementations:
            row = by_name.get(name)
            line += [row["best_us"], f"{100 * row['share_of_limit']:.1f} %"] if row else [None, None]
        cells.append(line)
    return table(heads, cells)


def _accuracy(result: dict[str, Any]) -> list[str]:
    rows = [
        (
            row["model"],
            row["format"],
            f"{100 * sum(row['correct'].values()) / len(row['correct']):.1f}",
            f"{100 * row['same_as_float32']:.1f}",
        )
        for row in result["rows"]
    ]
    return [
        "The demo models' held-out probes, greedy: share of correct answers (mean over skills), and of answers that "
        "are word for word those in float32.\n",
        table(("model", "format", "correct, %", "as in float32, %"), rows),
    ]


if __name__ == "__main__":
    main()
