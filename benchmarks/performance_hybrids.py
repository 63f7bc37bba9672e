"""The sections of docs/performance.md about recurrent, hybrid and expert models, and about later turns."""

from typing import Any

from benchmarks.performance_tables import table, times


def hybrids(result: dict[str, Any]) -> list[str]:
    """The body of the section from the result of benchmarks.engine.hybrids."""
    heads = (
        "shape",
        "dtype",
        "load",
        "Agon ms",
        "transformers ms",
        "Agon is",
        "products alone ms",
        "first tokens equal",
    )
    cells = (
        (
            row["shape"],
            row["dtype"],
            f"prompt of {row['tokens']} tokens" if row["load"] == "prefill" else f"decode step of {row['tokens']} rows",
            row["agon_ms"],
            row["transformers_ms"],
            times(row["transformers_ms"], row["agon_ms"]),
            row["limit_ms"],
            row.get("first_tokens_equal"),
        )
        for row in result["rows"]
    )
    operators = (
        (
            row["operator"],
            row["shape"],
            row["dtype"],
            row["best_us"],
            row["limit_us"],
            f"{100 * row['share_of_limit']:.1f} %",
        )
        for row in result["operators"]
    )
    return [
        "Medians of turns; the shapes are in `benchmarks/engine/hybrid_shapes.py`: eight layers each, those of mamba, "
        "mamba2, qwen3.5-0.8b and granite-1b-a400m of published models. Transformers has a process of its own and runs "
        "its own PyTorch code of the recurrences (its faster kernels need CUDA). In bfloat16 first tokens may differ. "
        "*Products*: the matrix products alone, attention's included, of the rows that are needed, at the machine's "
        f"rate or as fast as it read memory in this run ({result['limits']['memory_gb_per_s']} GB/s).\n",
        table(heads, cells),
        "Their operators alone, beside limits that were measured in the same run as those below are. States are read "
        "and written once; recurrences compute in float32.\n",
        table(("operator", "shape", "dtype", "us", "limit us", "of the limit"), operators),
    ]


def prefix_turns(result: dict[str, Any]) -> list[str]:
    """The body of the section from the result of benchmarks.engine.prefix_turns."""
    settings = result["settings"]
    heads = (
        "shape",
        "first turn ms",
        "later turns ms",
        "sooner",
        "most tokens computed",
        "cached as expected",
        "last turn without caching ms",
    )
    cells = (
        (
            row["shape"],
            row["cold_ms"],
            row["later_ms"],
            f"{row['times_sooner']} x",
            row["most_computed"],
            "yes" if row["as_expected"] else "no",
            row["without_caching_ms"],
        )
        for row in result["summaries"]
    )
    return [
        f"{settings['turns']} turns over a document of {settings['document']} tokens: time to the first token of the "
        f"first turn, and the median of the later ones. Each adds a question of {settings['question']} tokens and an "
        f"answer of {settings['answer']}; recurrent layers go on from their last checkpoint.\n",
        table(heads, cells),
    ]
