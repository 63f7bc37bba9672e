"""docs/memory.md from the results: text with tables. What is not reproduced is said where the number would stand."""

from typing import Any

from engine.memory.designs import lcm_design, max_page_design, uniform_waste
from engine.memory.layer_tables import CONFIGS, layers_from_config
from engine.memory.planner import plan_layers

_LENGTHS = (100, 500, 2_000, 32_000)


def render(results: dict[str, Any]) -> str:
    long_documents, sharing = results["long_documents"], results["sharing"]
    by_page, memory = results["waste_by_page_size"], results["memory_use"]
    chat = results["chat_waste"]
    jamba = layers_from_config(CONFIGS["jamba-1.5-mini"]).layers
    jamba_lcm = lcm_design(jamba, page_tokens=16)
    attention = next(kind for kind in jamba_lcm.types if kind.spec.kind == "full")
    jamba_max = next(kind for kind in max_page_design(jamba, page_tokens=16).types if kind.spec.kind == "full")
    gain = long_documents["planner"]["decode_batch"] / long_documents["uniform"]["decode_batch"]
    rows = [
        ("Llama-3.2-11B-Vision, 43 text + 6193 image tokens: waste of one page table", "79.6 %", _uniform("llama-3.2-11b-vision", 43, 6193)),
        ("Gemma-2 at 8,192 tokens: waste of one page table", "25 %", _uniform("gemma-2-27b", 8192)),
        ("Ministral-8B at 131,072 tokens: waste of one page table", "56.25 %", _uniform("ministral-8b", 131_072)),
        ("Jamba-1.5-mini: large page / attention page", "84", str(jamba_lcm.ratio(attention))),
        ("Jamba-1.5-mini: tokens per page in a max-page design", "1,344", f"{jamba_max.page_tokens:,}"),
        ("Ministral, 20 long documents: waste, least common multiple", "0.04 %", _percent(long_documents["lcm"]["waste"], 3)),
        ("Ministral, 20 long documents: waste, the planner's design", "-", _percent(long_documents["planner"]["waste"], 3)),
        ("Ministral, 20 long documents: waste, one page table", "38.2 %", _percent(long_documents["uniform"]["waste"])),
        ("Ministral, 20 long documents: decode batch against one page table", "5.39 / 2.63 = 2.0x", f"{long_documents['planner']['decode_batch']:.2f} / {long_documents['uniform']['decode_batch']:.2f} = {gain:.2f}x"),
        ("the same: steps", "about 300 / 600", f"{long_documents['planner']['steps']} / {long_documents['uniform']['steps']}"),
        ("ShareGPT-like lengths, 16-token pages: waste", "under 4 %", _percent(by_page["sharegpt"]["16"])),
        ("memory that holds tokens, ShareGPT-like: max / power of two / oracle / paged", "20.4 / 26.8 / 38.2 / 96.3 %", " / ".join(f"{100 * (1 - memory['sharegpt'][name]['waste']):.1f}" for name in ("max", "power_of_two", "oracle", "paged")) + " %"),
        ("parallel sampling saves, Alpaca-like, 2 / 4 / 6 samples", "6.1 to 9.8 %", _savings(sharing, "alpaca", "parallel")),
        ("parallel sampling saves, ShareGPT-like", "16.2 to 30.5 %", _savings(sharing, "sharegpt", "parallel")),
        ("beam search saves, Alpaca-like, width 2 / 4 / 6", "37.6 to 55.2 %", _savings(sharing, "alpaca", "beam")),
        ("beam search saves, ShareGPT-like", "44.3 to 66.3 %", _savings(sharing, "sharegpt", "beam")),
    ]  # fmt: skip
    return "\n".join(
        [
            "# Memory: what is measured, and what the papers measured",
            "",
            "Written by `python -m benchmarks.memory`, which also draws the figures; every row marked exact is a test",
            "(`tests/engine/memory/test_numbers.py`). The simulator drives the real scheduler and the real page cache; only",
            "the model is replaced by a roofline cost. None of the traces behind the published figures is public: where a",
            "row depends on one, lengths follow the published means (`benchmarks/memory/traces.py`), and what can be compared",
            "is the shape. The first five rows are closed forms and exact.",
            "",
            _table(["what", "paper", "here"], rows),
            "",
            "Sources: PagedAttention (SOSP'23) figures 2 and 15 and its launch note; Jenga (arXiv 2503.18292) sections 3, 4.4",
            "and 7. The SOSP'25 print of Jenga has other headline figures (2.16x instead of 4.92x); these are the preprint's.",
            "The beam savings depend on which beams survive; here parents are drawn with weights that halve from rank to",
            "rank. Lengths are log-normal, which makes ShareGPT-like savings larger than those of the real trace.",
            "",
            "## Bytes that one Gemma-3-27B request holds, over live bytes",
            "",
            _gemma(),
            "",
            "Windows are counted with the page that a moving window straddles. The planner's choice is never worse than the",
            "best of the three, on every layer table, at every length (a test). `agon plan MODEL` prints this for any model.",
            "",
            "![waste by design](figures/waste_by_design.png)",
            "",
            "## Long documents: 20 requests of 55,000 to 110,000 tokens, Ministral-8B, 39.5 GiB",
            "",
            _runs(long_documents),
            "",
            "`uniform` is PagedAttention as published, what the paper compared with. `equal_page` is today's vLLM grouping:",
            "for 9 + 27 layers it needs no padding and frees windows too, so it does as well as ours here.",
            "",
            "![memory over time](figures/memory_over_time.png)",
            "![batch size](figures/batch_size.png)",
            "",
            "## Short chats: Gemma-3-27B, ShareGPT-like",
            "",
            _runs(chat),
            "",
            "`lcm_naive` allocates without knowing requests. While the pool has room that packs tighter, because a large",
            "page is shared at once; its price comes when requests end at different times and leave large pages half used.",
            "Waste here is bytes held that no other type can have, over the whole run.",
            "",
            "## Waste by tokens per page (Llama-3.1-8B)",
            "",
            _table(
                ["load", *next(iter(by_page.values()))],
                [(load, *(_percent(waste) for waste in row.values())) for load, row in by_page.items()],
            ),
            "",
            "## Contiguous reservation and pages: OPT-13B, 12 GiB of KV memory",
            "",
            *(part for load, runs in memory.items() for part in (f"{load}:", "", _runs(runs), "")),
            "## Prefix hit rates",
            "",
            "`aligned` is our eviction on the planner's pages, `release_order` the same pages evicted in the order in which",
            "they were released (what a free list does), `equal_page_release_order` the same with grouped and padded pages.",
            "Sessions: 16 conversations that go on in random order; the pool as a share of what all of them hold.",
            "",
            *(part for model, loads in results["hit_rates"].items() for part in _hit_tables(model, loads)),
            "![hit rates](figures/hit_rate.png)",
            "",
            "## Arena battles: Gemma-3-12B, 2 GiB",
            "",
            _runs(results["arena"], columns=("decode_batch", "output_tokens_per_s", "hit_rate", "preemptions")),
            "",
        ]
    )


def _uniform(model: str, num_tokens: int, image_tokens: int = 0) -> str:
    return _percent(uniform_waste(layers_from_config(CONFIGS[model]).layers, num_tokens, image_tokens), 3)


def _percent(share: float, digits: int = 2) -> str:
    return f"{100 * share:.{digits}f} %"


def _savings(sharing: dict[str, Any], load: str, kind: str) -> str:
    return " / ".join(f"{100 * entry[kind]:.1f}" for entry in sharing[load].values()) + " %"


def _gemma() -> str:
    report = plan_layers(layers_from_config(CONFIGS["gemma-3-27b"]).layers, page_tokens=16)
    names = ("lcm", "gcd", "equal_page", "chosen")
    rows = [(f"{length:,}", *(f"+{_percent(report.waste(name, length), 1)}" for name in names)) for length in _LENGTHS]
    return _table(["tokens", *names], rows)


def _runs(
    runs: dict[str, Any],
    columns: tuple[str, ...] = ("waste", "decode_batch", "steps", "output_tokens_per_s", "preemptions"),
) -> str:
    rows = []
    for name, entry in runs.items():
        cells = [_percent(entry[key], 3) if key in ("waste", "hit_rate") else str(entry[key]) for key in columns]
        rows.append((name, *cells))
    return _table(["", *(column.replace("_", " ") for column in columns)], rows)


def _hit_tables(model: str, loads: dict[str, Any]) -> list[str]:
    parts = []
    for load, curves in loads.items():
        header = "articles" if load == "articles" else "pool / all conversations"
        rows = [(name, *(_percent(rate, 1) for rate in curve.values())) for name, curve in curves.items()]
        parts += [f"{model}, {load}:", "", _table([header, *next(iter(curves.values()))], rows), ""]
    return parts


def _table(header: list[str], rows: list[tuple[str, ...]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
