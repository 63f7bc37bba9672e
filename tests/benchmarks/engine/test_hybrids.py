"""The benchmarks of hybrid models, on tiny shapes: every row is there, and later turns find what they should."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from benchmarks.engine import hybrids, prefix_turns
from benchmarks.engine.product_limits import Products, products_of
from benchmarks.operators.recurrent import hybrid_cases


def test_every_load_has_a_row_with_both_sides_and_every_operator_one_with_its_share(tmp_path: Path) -> None:
    file = tmp_path / "hybrids.json"
    hybrids.main(["--quick", "--shapes", "qwen3-moe", "--threads", "1", "--json", str(file)])
    result = json.loads(file.read_text())
    found = {(row["shape"], row["dtype"], row["load"]) for row in result["rows"]}
    assert len(found) == len(result["rows"]) == 2 * 2
    for row in result["rows"]:
        assert row["agon_ms"] > 0
        assert row["transformers_ms"] > 0
        assert 0 < row["limit_ms"] < row["agon_ms"]
        if row["load"] == "prefill" and row["dtype"] == "float32":
            assert row["first_tokens_equal"] == "1 of 1"
    assert len(result["operators"]) == len(list(hybrid_cases(1, is_quick=True)))
    assert all(row["share_of_limit"] > 0 for row in result["operators"])


def test_products_count_the_weights_that_tokens_pass(tmp_path: Path) -> None:
    sizes = {"hidden_size": 8, "num_attention_heads": 2, "num_experts": 4, "num_experts_per_tok": 1}
    (tmp_path / "config.json").write_text(json.dumps(sizes))
    shapes = {
        "model.embed_tokens.weight": (10, 8),
        "model.layers.0.norm.weight": (8,),
        "model.layers.0.conv1d.weight": (8, 1, 4),
        "model.layers.0.self_attn.q_proj.weight": (8, 8),
        "model.layers.1.self_attn.q_proj.weight": (8, 8),
        "model.layers.1.self_attn.k_proj.weight": (4, 8),
        **{f"model.layers.0.experts.{expert}.weight": (8, 4) for expert in range(4)},
        "model.layers.1.block_sparse_moe.output_linear.weight": (4, 8, 4),  # all experts in one
    }
    save_file({name: torch.zeros(shape) for name, shape in shapes.items()}, tmp_path / "model.safetensors")
    assert products_of(tmp_path) == Products(
        dense=160,
        experts=256,
        head=80,
        expert_share=0.25,
        attention=64,
        last_dense=64,
        last_experts=128,
        last_attention=32,
    )


def test_later_turns_find_what_earlier_ones_computed_and_nothing_without_caching(tmp_path: Path) -> None:
    file = tmp_path / "prefix_turns.json"
    prefix_turns.main(["--quick", "--threads", "1", "--json", str(file)])
    result = json.loads(file.read_text())
    assert [summary["shape"] for summary in result["summaries"]] == list(prefix_turns.NAMES)
    assert all(summary["as_expected"] for summary in result["summaries"])
    for row in result["rows"]:
        assert (row["cached_tokens"] > 0) == (row["is_caching"] and row["turn"] > 1)
        assert row["computed_tokens"] + row["cached_tokens"] == row["prompt_tokens"]
