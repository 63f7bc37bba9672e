"""docs/performance.md: what is there is shown with its commit, and what is missing names its command."""

import json
from pathlib import Path
from typing import Any

from benchmarks.performance import write
from cli.bench.record import document


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


def text_of(folder: Path) -> str:
    write(folder, folder / "performance.md", folder / "figures")
    return (folder / "performance.md").read_text()


def test_without_results_every_section_names_its_command(tmp_path: Path) -> None:
    text = text_of(tmp_path)
    assert text.count("Not measured yet: `python -m benchmarks.") == 8


def test_peers_are_compared_with_ours_row_by_row(tmp_path: Path) -> None:
    rows = [
        row("agon", "sharegpt", output_tokens_per_s=300.0),
        row("other", "sharegpt", output_tokens_per_s=200.0),
        row("agon", "single", tpot_ms=10.0, ttft_ms=50.0),
        row("other", "single", tpot_ms=15.0, ttft_ms=25.0),
    ]
    result = document("peers", {"model": "smol-135m"}, rows, failed={"third": "no compiler\nmore"})
    (tmp_path / "peers-smol-135m.json").write_text(json.dumps(result))
    text = text_of(tmp_path)
    assert "| other (1) | 200.0 | 1.50 x as fast | 1.0 | 4 | 0.30 (contended) | 4 of 4 |" in text
    assert "| other (1) | 15.0 | 1.50 x as fast | 25.0 | 0.50 x as fast | 1.0 | 0.30 (contended) |" in text
    assert "Failed: third (no compiler)" in text
    assert f"Commit {result['commit']}" in text


def test_the_bound_counts_every_product_of_every_token(tmp_path: Path) -> None:
    """By hand: 106,168,320 weights in the layers, 28,311,552 in the head; at 998 GFLOP/s and 55 GB/s."""
    result = document("peers", {"model": "smol-135m"}, [row("agon", "sharegpt", output_tokens_per_s=300.0)], failed={})
    limits = {"memory_gb_per_s": 55.0, "cache_gb_per_s": 1.0, "bfloat16_gflops": 998.0}
    limits |= {"float32_gflops": 1.0, "int8_gops": 1.0}
    (tmp_path / "peers-smol-135m.json").write_text(json.dumps(result))
    (tmp_path / "operators.json").write_text(json.dumps(document("operators", {}, [], limits=limits)))
    text = text_of(tmp_path)
    seconds = 2 * (106_168_320 * (3116 + 3899) + 28_311_552 * 3899) / 998e9
    assert f"sharegpt at {3899 / seconds:.0f} output tokens/s, a single stream at 4.89 ms per token" in text
    assert (tmp_path / "figures" / "performance-peers.png").stat().st_size > 0


def test_overheads_cold_start_and_operators_have_their_tables(tmp_path: Path) -> None:
    parts = {"model": 9.0, "sampling": 1.0}
    shares = {"operators": "cpp", "batch": 32, "steps": 8, "step_ms": 10.0, "parts_ms": parts, "overhead_share": 0.1}
    shares["shares"] = {"model": 0.9, "sampling": 0.1}
    points = [
        {"varied": varied, "batch": 1, "context": 64, "new_tokens": 1, "page_tokens": 16, "median_ms": 2.5}
        for varied in ("batch", "context", "page_tokens", "prompt_tokens")
    ]
    hop = {"hop": "worker", "streams": 32, "output_tokens_per_s": 90.0, "of_the_engine": 0.9}
    hop |= {"ttft_ms_p50": 5.0, "added_ttft_ms": 1.5}
    cold = {"first_token_s": 3.5, "streams": 32}
    for name in ("resident_bytes_at_first_token", "resident_bytes_after_streams", "weight_bytes", "pool_bytes"):
        cold[name] = 100 * 2**20
    cold["interpreter_and_imports_bytes"] = 250 * 2**20
    slow = {"operator": "RMS norm", "implementation": "torch", "shape": "8 rows", "dtype": "bfloat16"}
    slow |= {"best_us": 4.0, "median_us": 5.0, "share_of_limit": 0.25, "limit_us": 1.0}
    fast = {**slow, "implementation": "cpp-avx2", "best_us": 2.0, "share_of_limit": 0.5}
    limits = dict.fromkeys(("memory_gb_per_s", "cache_gb_per_s", "bfloat16_gflops", "float32_gflops", "int8_gops"), 7.0)
    noise = {"own_cores": 1.0, "others_cores": 0.05}
    (tmp_path / "engine.json").write_text(json.dumps(document("engine", {}, points, shares=shares, noise=noise)))
    (tmp_path / "serving.json").write_text(json.dumps(document("hops", {}, [hop], cold_start=cold, noise=noise)))
    (tmp_path / "operators.json").write_text(
        json.dumps(document("operators", {}, [slow, fast], limits=limits, noise=noise))
    )
    text = text_of(tmp_path)
    assert "| sampling | 1.0 | 10.00 % |" in text
    assert "| worker | 90.0 | 90.0 % | 5.0 | 1.5 |" in text
    assert "first token 3.5 s after its process was started" in text
    assert "| 8 rows | bfloat16 | 1.0 | 4.0 | 25.0 % | 2.0 | 50.0 % |" in text
    assert (tmp_path / "figures" / "performance-page-tokens.png").stat().st_size > 0


def test_a_processor_without_avx512_has_a_section_of_its_own_with_its_own_limits(tmp_path: Path) -> None:
    peers = document("peers", {"model": "smol-135m"}, [row("agon", "sharegpt", output_tokens_per_s=30.0)], failed={})
    limits = {"memory_gb_per_s": 30.0, "cache_gb_per_s": 1.0, "bfloat16_gflops": 150.0}
    limits |= {"float32_gflops": 150.0, "int8_gops": 150.0}
    assert "Without AVX-512" not in text_of(tmp_path)
    (tmp_path / "avx2").mkdir()
    (tmp_path / "avx2" / "peers-smol-135m.json").write_text(json.dumps(peers))
    (tmp_path / "avx2" / "operators.json").write_text(json.dumps(document("operators", {}, [], limits=limits)))
    ours, _, other = text_of(tmp_path).partition("## Without AVX-512")
    assert "| agon (1) | 30.0 | 1.00 x as fast |" not in ours
    assert "| agon (1) | 30.0 | 1.00 x as fast |" in other
    seconds = 2 * (106_168_320 * (3116 + 3899) + 28_311_552 * 3899) / 150e9
    assert f"sharegpt at {3899 / seconds:.0f} output tokens/s" in other
