"""docs/performance.md: figures follow from the results, with their commit; missing results name their command."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.performance import DOCUMENT, MEASUREMENTS, OTHER_SET, RESULTS, write
from cli.bench.record import document

LIMITS = {
    "memory_gb_per_s": 55.0,
    "cache_gb_per_s": 1.0,
    "bfloat16_gflops": 998.0,
    "float32_gflops": 1.0,
    "int8_gops": 1.0,
}


def row(peer: str, workload: str, **more: Any) -> dict[str, Any]:
    return {
        "peer": peer,
        "version": "1",
        "workload": workload,
        "requests": 4,
        "limit": None,
        "prompt_tokens": 3116,
        "output_tokens": 3899,
        "spread_percent": 1.0,
        "others_cores": [0.02, 0.3],
        "is_quiet": False,
        "first_tokens_equal": "4 of 4",
        **more,
    }


def put(folder: Path, name: str, kind: str, rows: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """Store a result where --measure would."""
    folder.mkdir(exist_ok=True)
    result = document(kind, {"model": "smol-135m"}, rows, **more)
    (folder / MEASUREMENTS[name][0]).write_text(json.dumps(result))
    return result


def text_of(folder: Path) -> str:
    write(folder, folder / "performance.md", folder / "figures")
    return (folder / "performance.md").read_text()


def cells(text: str, first_head: str) -> list[list[str]]:
    """The rows of the first table whose first column has that head."""
    lines = iter(text.splitlines())
    next(line for line in lines if line.startswith(f"| {first_head} |"))
    found = []
    for line in list(lines)[1:]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def columns(rows: Iterable[list[str]], *indices: int) -> list[tuple[str, ...]]:
    return [tuple(row[index] for index in indices) for row in rows]


def test_the_document_is_what_the_stored_results_make(tmp_path: Path) -> None:
    """`make bench-performance` writes it again."""
    write(RESULTS, tmp_path / "performance.md", tmp_path / "figures")
    assert (tmp_path / "performance.md").read_text() == DOCUMENT.read_text()


def test_without_results_every_section_names_its_command(tmp_path: Path) -> None:
    text = text_of(tmp_path)
    for _, command in MEASUREMENTS.values():
        assert f"Not measured yet: `python -m {' '.join(command)}`." in text


def test_a_result_stands_with_its_commit_and_only_its_command_is_no_longer_named(tmp_path: Path) -> None:
    before = text_of(tmp_path).count("Not measured yet")
    result = put(tmp_path, "peers", "peers", [], failed={"third": "no compiler\nmore"})
    text = text_of(tmp_path)
    assert text.count("Not measured yet") == before - 1
    assert f"Commit {result['commit']}" in text
    assert "Failed: third (no compiler)" in text


def test_more_tokens_per_second_and_fewer_milliseconds_are_faster(tmp_path: Path) -> None:
    rows = [
        row("slower", "sharegpt", output_tokens_per_s=200.0),
        row("agon", "sharegpt", output_tokens_per_s=300.0),
        row("faster", "sharegpt", output_tokens_per_s=600.0),
        row("slower", "single", tpot_ms=15.0, ttft_ms=25.0),
        row("agon", "single", tpot_ms=10.0, ttft_ms=50.0),
        row("faster", "single", tpot_ms=5.0, ttft_ms=100.0),
    ]
    put(tmp_path, "peers", "peers", rows, failed={})
    text = text_of(tmp_path)
    assert columns(cells(text, "sharegpt"), 0, 2) == [
        ("faster (1)", "0.50 x as fast"),
        ("agon (1)", "1.00 x as fast"),
        ("slower (1)", "1.50 x as fast"),
    ]
    assert columns(cells(text, "single stream"), 0, 2, 4) == [
        ("faster (1)", "0.50 x as fast", "2.00 x as fast"),
        ("agon (1)", "1.00 x as fast", "1.00 x as fast"),
        ("slower (1)", "1.50 x as fast", "0.50 x as fast"),
    ]


def test_a_contended_run_says_so_with_its_worst_share(tmp_path: Path) -> None:
    rows = [
        row("agon", "sharegpt", output_tokens_per_s=2.0),
        row("other", "sharegpt", output_tokens_per_s=1.0, others_cores=[0.04, 0.01], is_quiet=True),
    ]
    put(tmp_path, "peers", "peers", rows, failed={})
    assert columns(cells(text_of(tmp_path), "sharegpt"), 5) == [("0.30 (contended)",), ("0.04",)]


def test_nothing_is_compared_with_a_run_of_ours_that_is_missing(tmp_path: Path) -> None:
    put(tmp_path, "peers", "peers", [row("other", "sharegpt", output_tokens_per_s=1.0)], failed={})
    assert columns(cells(text_of(tmp_path), "sharegpt"), 1, 2) == [("1.0", "")]


def test_the_bound_counts_every_product_of_every_token(tmp_path: Path) -> None:
    """By hand: 106,168,320 weights in the layers, 28,311,552 in the head; at 998 GFLOP/s and 55 GB/s."""
    put(tmp_path, "peers", "peers", [row("agon", "sharegpt", output_tokens_per_s=300.0)], failed={})
    put(tmp_path, "operators", "operators", [], limits=LIMITS)
    seconds = 2 * (106_168_320 * (3116 + 3899) + 28_311_552 * 3899) / 998e9
    bound = f"sharegpt at {3899 / seconds:.0f} output tokens/s, a single stream at 4.89 ms per token"
    assert bound in text_of(tmp_path)


def test_a_processor_without_avx512_has_a_section_of_its_own_with_its_own_limits(tmp_path: Path) -> None:
    assert "Without AVX-512" not in text_of(tmp_path)
    other = tmp_path / OTHER_SET
    put(other, "peers", "peers", [row("agon", "sharegpt", output_tokens_per_s=30.0)], failed={})
    put(other, "operators", "operators", [], limits=LIMITS | {"bfloat16_gflops": 150.0})
    main_section, _, other_section = text_of(tmp_path).partition("## Without AVX-512")
    assert "agon (1)" not in main_section
    assert columns(cells(other_section, "sharegpt"), 0, 1) == [("agon (1)", "30.0")]
    seconds = 2 * (106_168_320 * (3116 + 3899) + 28_311_552 * 3899) / 150e9
    assert f"sharegpt at {3899 / seconds:.0f} output tokens/s" in other_section


def test_points_of_a_step_are_sorted_along_their_axis_and_drawn(tmp_path: Path) -> None:
    shares = {"operators": "cpp", "batch": 32, "steps": 8, "step_ms": 10.0, "overhead_share": 0.1}
    shares |= {"parts_ms": {"model": 9.0, "sampling": 1.0}, "shares": {"model": 0.9, "sampling": 0.1}}
    axes = {"batch": "batch", "context": "context", "page_tokens": "page_tokens", "prompt_tokens": "new_tokens"}
    points = [
        {"varied": varied, "batch": 1, "context": 64, "new_tokens": 1, "page_tokens": 16, axis: at, "median_ms": ms}
        for varied, axis in axes.items()
        for at, ms in ((256, 9.5), (8, 2.5))
    ]
    put(tmp_path, "engine", "engine", points, shares=shares)
    text = text_of(tmp_path)
    assert columns(cells(text, "part"), 0, 2) == [("model", "90.00 %"), ("sampling", "10.00 %")]
    for head in ("sequences that decode", "tokens of context", "tokens in a page", "tokens of one prompt"):
        line = next(line for line in text.splitlines() if line.startswith(f"| {head}"))
        assert line.endswith("| 8 | 256 |")
    assert text.count("| ms | 2.5 | 9.5 |") == len(axes)
    for varied in axes:
        assert (tmp_path / "figures" / f"performance-{varied.replace('_', '-')}.png").stat().st_size > 0


@pytest.mark.parametrize(("interval", "added"), [(None, "1.5"), ((1.25, 1.75), "1.5 (1.25 to 1.75)")])
def test_what_a_hop_adds_stands_with_its_interval_where_one_was_measured(
    tmp_path: Path, interval: tuple[float, float] | None, added: str
) -> None:
    hop: dict[str, Any] = {"hop": "worker", "streams": 32, "output_tokens_per_s": 90.0, "of_the_engine": 0.875}
    hop |= {"ttft_ms_p50": 5.0, "added_ttft_ms": 1.5, "added_ttft_ms_95": interval}
    put(tmp_path, "serving", "hops", [hop])
    assert columns(cells(text_of(tmp_path), "through"), 0, 2, 4) == [("worker", "87.5 %", added)]


def test_memory_after_a_cold_start_is_in_mib(tmp_path: Path) -> None:
    cold: dict[str, Any] = {"first_token_s": 3.5, "streams": 32}
    sizes = {
        "resident_bytes_at_first_token": 611,
        "resident_bytes_after_streams": 622,
        "weight_bytes": 233,
        "pool_bytes": 144,
        "interpreter_and_imports_bytes": 255,
    }
    cold |= {name: mib * 2**20 for name, mib in sizes.items()}
    put(tmp_path, "serving", "hops", [], cold_start=cold)
    text = text_of(tmp_path)
    assert "first token 3.5 s after its process was started" in text
    for mib in sizes.values():
        assert f" {mib} MiB" in text


def test_implementations_of_an_operator_stand_beside_each_other(tmp_path: Path) -> None:
    slow: dict[str, Any] = {"operator": "RMS norm", "implementation": "torch", "shape": "8 rows", "dtype": "bfloat16"}
    slow |= {"best_us": 4.0, "median_us": 5.0, "share_of_limit": 0.25, "limit_us": 1.0}
    fast = {**slow, "implementation": "cpp-avx2", "best_us": 2.0, "share_of_limit": 0.5}
    alone = {**slow, "shape": "9 rows"}
    put(tmp_path, "operators", "operators", [slow, fast, alone], limits=LIMITS)
    assert cells(text_of(tmp_path), "shape") == [
        ["8 rows", "bfloat16", "1.0", "4.0", "25.0 %", "2.0", "50.0 %"],
        ["9 rows", "bfloat16", "1.0", "4.0", "25.0 %", "", ""],
    ]


def test_hybrid_models_stand_beside_transformers_and_their_operators_beside_the_limit(tmp_path: Path) -> None:
    model: dict[str, Any] = {"shape": "mamba", "dtype": "float32", "agon_ms": 2.0, "transformers_ms": 5.0}
    model["limit_ms"] = 1.5
    prefill = {**model, "load": "prefill", "tokens": 2048, "first_tokens_equal": "3 of 3"}
    decode = {**model, "load": "decode", "tokens": 32}
    scan: dict[str, Any] = {"operator": "head scan", "shape": "32 rows", "dtype": "float32"}
    scan |= {"best_us": 4.0, "limit_us": 1.0, "share_of_limit": 0.25}
    put(tmp_path, "hybrids", "hybrids", [prefill, decode], operators=[scan], limits=LIMITS)
    text = text_of(tmp_path)
    assert "read memory in this run (55.0 GB/s)" in text
    assert columns(cells(text, "shape"), 2, 5, 6, 7) == [
        ("prompt of 2048 tokens", "2.50 x as fast", "1.5", "3 of 3"),
        ("decode step of 32 rows", "2.50 x as fast", "1.5", ""),
    ]
    assert columns(cells(text, "operator"), 0, 5) == [("head scan", "25.0 %")]


def test_later_turns_stand_beside_the_first(tmp_path: Path) -> None:
    summary = {"shape": "qwen3.5", "cold_ms": 900.0, "later_ms": 45.0, "times_sooner": 20.0, "most_computed": 543}
    summary |= {"as_expected": True, "without_caching_ms": 990.0}
    result = document("prefix_turns", {"turns": 20, "document": 8192, "question": 32, "answer": 16}, [])
    (tmp_path / MEASUREMENTS["prefix-turns"][0]).write_text(json.dumps({**result, "summaries": [summary]}))
    text = text_of(tmp_path)
    assert columns(cells(text, "shape"), 3, 5) == [("20.0 x", "yes")]
    assert "20 turns over a document of 8192 tokens" in text
