"""Qwen3-MoE: Qwen3, but with a mixture of experts in place of the MLP, in all layers or in those the config lists."""

from dataclasses import replace

from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.llama import Llama, LlamaConfig
from engine.models.qwen2_moe import qwen_experts


def qwen3_moe(config: ConfigReader, weights: WeightSource) -> Llama:
    """No shared expert; one window for all layers, or none."""
    load_mlp = qwen_experts(config, num_experts=128, num_chosen=8, ffn=768, shared_ffn=None)
    settings = replace(LlamaConfig.read(config), has_head_norm=True, load_mlp=load_mlp)
    # One rule for all layers: this architecture ignores max_window_layers.
    window = config.optional("sliding_window", int) if config.get("use_sliding_window", bool, False) else None
    return Llama(replace(settings, windows=(window,) * settings.num_layers), weights)
