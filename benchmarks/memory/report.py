"""docs/memory.md from the results. The text is in template.md; here are the tables."""

import json
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import Any

from benchmarks.memory.experiments import layers_of
from engine.memory.planning.designs import lcm_design, max_page_design, uniform_waste
from engine.memory.planning.planner import plan_layers

_LENGTHS = (100, 500, 2_000, 32_000)
_RUN_COLUMNS = ("waste", "decode_batch", "steps", "output_tokens_per_s", "preemptions")


_HERE = Path(__file__).parent


def render(results: dict[str, Any]) -> str:
    """The page. The opposed load and the memory of many models have commands and results of their own."""
    opposed = json.loads((_HERE / "opposed.json").read_text())
    serving = json.loads((_HERE / "opposed_serving.json").read_text())
    many = json.loads((_HERE / "many_models.json").read_text())
    by_page = results["waste_by_page_size"]
    tables = {
        "papers": _table(["what", "paper", "here"], [*_closed_forms(), *_measured(results)]),
        "gemma": _gemma(),
        "long_documents": _runs(results["long_documents"]),
        "chat": _runs(results["chat_waste"]),
        "by_page": _table(
            ["load", *next(iter(by_page.values()))],
            [(load, *(_percent(waste) for waste in row.values())) for load, row in by_page.items()],
        ),
        "contiguous": "\n\n".join(f"{load}:\n\n{_runs(runs)}" for load, runs in results["memory_use"].items()),
        "hits": "\n\n".join(
            _hits(f"{model}, {load}", load, curves)
            for model, loads in results["hit_rates"].items()
            for load, curves in loads.items()
        ),
        "page_costs": _costs(results["operations"]["per_page"]),
        "step_costs": _costs(results["operations"]["step_of_256_requests"]),
        "machine": "{cores} cores, Python {python}".format(**results["machine"]),
        "opposed_two": _opposed(opposed["two models"]),
        "opposed_three": _opposed(opposed["two and a hybrid"]),
        "opposed_waste": _percent(opposed["two models"]["ways"]["shared"]["waste"]),
        "opposed_seldom": _seldom(opposed["seldom"]),
        "serving_two": _opposed(serving["two models"]),
        "serving_three": _opposed(serving["two and a hybrid"]),
        "serving_setting": _serving_setting(serving),
        "many_models": _many(many),
        "vision": _runs(results["vision"], ("decode_batch", "steps", "preemptions", "encoded_images")),
        "arena": _runs(results["arena"], ("decode_batch", "output_tokens_per_s", "hit_rate", "preemptions")),
    }
    return Template((_HERE / "template.md").read_text()).substitute(tables)


def _closed_forms() -> list[tuple[str, ...]]:
    jamba = layers_of("jamba-1.5-mini")
    lcm = lcm_design(jamba, page_tokens=16)
    attention = next(kind for kind in lcm.types if kind.spec.kind == "full")
    longest = next(kind for kind in max_page_design(jamba, page_tokens=16).types if kind.spec.kind == "full")
    one_table = "waste of one page table"
    return [
        (
            f"Llama-3.2-11B-Vision, 43 text + 6193 image tokens: {one_table}",
            "79.6 %",
            uniform("llama-3.2-11b-vision", 43, 6193),
        ),
        (f"Gemma-2 at 8,192 tokens: {one_table}", "25 %", uniform("gemma-2-27b", 8192)),
        (f"Ministral-8B at 131,072 tokens: {one_table}", "56.25 %", uniform("ministral-8b", 131_072)),
        ("Jamba-1.5-mini: large page / attention page", "84", str(lcm.ratio(attention))),
        ("Jamba-1.5-mini: tokens per page in a max-page design", "1,344", f"{longest.page_tokens:,}"),
    ]


def _measured(results: dict[str, Any]) -> list[tuple[str, ...]]:
    runs, sharing = results["long_documents"], results["sharing"]
    load = "Ministral, 20 long documents"
    ours, theirs = runs["planner"], runs["uniform"]
    batches = f"{ours['decode_batch']:.2f} / {theirs['decode_batch']:.2f}"
    gain = ours["decode_batch"] / theirs["decode_batch"]
    memory = results["memory_use"]["sharegpt"]
    shares = (f"{100 * (1 - memory[name]['waste']):.1f}" for name in ("max", "power_of_two", "oracle", "paged"))
    return [
        (f"{load}: waste, least common multiple", "0.04 %", _percent(runs["lcm"]["waste"], 3)),
        (f"{load}: waste, the planner's design", "-", _percent(ours["waste"], 3)),
        (f"{load}: waste, one page table", "38.2 %", _percent(theirs["waste"])),
        (f"{load}: decode batch, against one page table", "5.39 / 2.63 = 2.05x", f"{batches} = {gain:.2f}x"),
        (f"{load}: steps", "about 300 / 600", f"{ours['steps']} / {theirs['steps']}"),
        (
            "ShareGPT-like lengths, 16-token pages: waste",
            "under 4 %",
            _percent(results["waste_by_page_size"]["sharegpt"]["16"]),
        ),
        (
            "memory that holds tokens, ShareGPT-like: max / power of two / oracle / paged",
            "20.4 / 26.8 / 38.2 / 96.3 %",
            " / ".join(shares) + " %",
        ),
        (
            "parallel sampling saves, Alpaca-like, 2 / 4 / 6 samples",
            "6.1 to 9.8 %",
            _savings(sharing, "alpaca", "parallel"),
        ),
        ("parallel sampling saves, ShareGPT-like", "16.2 to 30.5 %", _savings(sharing, "sharegpt", "parallel")),
        ("beam search saves, Alpaca-like, width 2 / 4 / 6", "37.6 to 55.2 %", _savings(sharing, "alpaca", "beam")),
        ("beam search saves, ShareGPT-like", "44.3 to 66.3 %", _savings(sharing, "sharegpt", "beam")),
    ]


def uniform(model: str, num_tokens: int, image_tokens: int = 0) -> str:
    return _percent(uniform_waste(layers_of(model), num_tokens, image_tokens), 3)


def _percent(share: float, digits: int = 2) -> str:
    return f"{100 * share:.{digits}f} %"


def _savings(sharing: dict[str, Any], load: str, kind: str) -> str:
    return " / ".join(f"{100 * entry[kind]:.1f}" for entry in sharing[load].values()) + " %"


def _gemma() -> str:
    report = plan_layers(layers_of("gemma-3-27b"), page_tokens=16)
    names = ("lcm", "gcd", "equal_page", "chosen")
    rows = [(f"{length:,}", *(f"+{_percent(report.waste(name, length), 1)}" for name in names)) for length in _LENGTHS]
    return _table(["tokens", *names], rows)


def _runs(runs: dict[str, Any], columns: Sequence[str] = _RUN_COLUMNS) -> str:
    rows = []
    for name, entry in runs.items():
        cells = [_percent(entry[key], 3) if key in ("waste", "hit_rate") else str(entry[key]) for key in columns]
        rows.append((name, *cells))
    return _table(["", *(column.replace("_", " ") for column in columns)], rows)


def _opposed(found: dict[str, Any]) -> str:
    first = next(iter(found["ways"].values()))
    columns = [
        name
        for name in (
            "admitted_tokens",
            "batch",
            "goodput_tokens_per_s",
            "output_tokens_per_s",
            "waste",
            "idle_median",
            "idle_worst",
            "idle_median_beside_two",
            "idle_worst_beside_two",
            "preemptions",
        )
        if first.get(name) is not None
    ]
    gain = ", ".join(f"{key.replace('_', ' ')} {value:.2f} x" for key, value in found["gain"].items())
    return f"{_runs(found['ways'], columns)}\n\nShared against split: {gain}."


def _seldom(found: dict[str, Any]) -> str:
    return (
        f"{found['idle_requests']} requests beside one other model with work took {found['idle_median']:.2f} x their "
        f"time alone (median) and {found['idle_worst']:.2f} x (worst), {found['idle_requests_beside_two']} beside two "
        f"{found['idle_worst_beside_two']:.2f} x at worst"
    )


def _serving_setting(found: dict[str, Any]) -> str:
    settings = found["settings"]
    ways = [way for name in ("two models", "two and a hybrid") for way in found[name]["ways"].values()]
    requests = sum(way["idle_requests"] + way["idle_requests_beside_two"] for way in ways)
    return (
        f"a pool of {settings['pool_kib'] / 1024:.0f} MiB, {settings['clients']} clients, phases of "
        f"{settings['phase_s']:.0f} s in which another model has the load; a first token counts within "
        f"{settings['patience_s']:.0f} s; {requests} requests of idle models; {found['machine']['cores']} cores, "
        f"load before {found['machine']['load_before']}"
    )


def _many(found: dict[str, Any]) -> str:
    one, each = found["one_process"], found["a_process_for_each"]
    rows: list[tuple[str, ...]] = [
        (f"one process, {found['models']} models", str(one["resident_mib"]), str(one["private_mib"])),
        ("the bound: its weights, page pool and 300", str(one["bound_mib"]), ""),
        ("its weights and page pool alone", f"{one['weights_mib'] + one['pool_mib']:.1f}", ""),
        ("a process with one of them and its part of the pool", str(each["each_mib"]), str(each["each_private_mib"])),
        (f"{found['models']} such processes", "", str(each["all_private_mib"])),
    ]
    return _table(["", "resident MiB", "private MiB"], rows)


def _costs(costs: dict[str, Any]) -> str:
    columns = list(next(iter(costs.values())))
    rows = [(name, *(str(entry[column]) for column in columns)) for name, entry in costs.items()]
    return _table(["", *(column.replace("_", " ") for column in columns)], rows)


def _hits(title: str, load: str, curves: dict[str, Any]) -> str:
    header = "articles" if load == "articles" else "pool / all conversations"
    rows = [(name, *(_percent(rate, 1) for rate in curve.values())) for name, curve in curves.items()]
    return f"{title}:\n\n" + _table([header, *next(iter(curves.values()))], rows)


def _table(header: list[str], rows: list[tuple[str, ...]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
