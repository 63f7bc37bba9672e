"""Qwen3.5: Qwen3-Next with other names of tensors, dense or with experts, by itself or as the text model of a
checkpoint with a vision tower. Sections of positions (mrope) differ for images only: a text has one position in all of
them."""

import re

from engine.layers.delta_net import DeltaShare
from engine.layers.linear import Linear
from engine.layers.weights import WeightSource, text_model_of
from engine.models.config_reader import ConfigReader
from engine.models.llama import MLPLoader, gated_mlp
from engine.models.qwen2_moe import qwen_experts
from engine.models.qwen3_next import Qwen3Next

#: The vision tower, and the layers that predict several tokens at once.
EXTRA_TENSORS = re.compile(r"((model\.)?visual|mtp)\..*")


def qwen3_5(config: ConfigReader, weights: WeightSource) -> Qwen3Next:
    """Builds the dense model; its config may be a whole config.json or have a text_config."""
    return _build(config, weights, gated_mlp)


def qwen3_5_moe(config: ConfigReader, weights: WeightSource) -> Qwen3Next:
    """Likewise, with a mixture of experts in every layer."""
    text = config.section("text_config") or config
    text.expect("norm_topk_prob", True)
    load_mlp = qwen_experts(text, num_experts=256, num_chosen=8, ffn=512, shared_ffn=512, sums_to_one=True)
    return _build(config, weights, load_mlp)


def _build(config: ConfigReader, weights: WeightSource, load_mlp: MLPLoader) -> Qwen3Next:
    text = config.section("text_config") or config
    is_tied = config.get("tie_word_embeddings", bool, text.get("tie_word_embeddings", bool, False))
    return Qwen3Next(text, text_model_of(weights), load_mlp, _projections, is_tied=is_tied)


def _projections(weights: WeightSource, name: str, share: DeltaShare) -> Linear:
    parts = {"qkv": share.convolved, "z": share.values, "b": share.heads, "a": share.heads}
    names = [f"{name}.in_proj_{part}" for part in parts]
    return Linear.fused(weights, names, share.whole.hidden, list(parts.values()), bias=False)
