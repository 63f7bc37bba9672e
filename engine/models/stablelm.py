"""StableLM: Llama, but with LayerNorm and partly rotated heads. The 12B model of StableLM 2 norms each head with scales
of its own, and computes attention and MLP side by side."""

from dataclasses import replace

import torch

from engine.layers.head_layer_norm import with_head_layer_norm
from engine.layers.heads import HeadShare
from engine.layers.linear import Linear
from engine.layers.norm import LayerNorm
from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.llama import Llama, LlamaConfig
from engine.models.rope import read_rope
from engine.parallel.shard import Shard


def stablelm(config: ConfigReader, weights: WeightSource) -> Llama:
    """Builds StableLM 1 to 2."""
    settings = replace(
        LlamaConfig.read(config),
        max_positions=config.get("max_position_embeddings", int, 4096),
        norm_eps=config.get("layer_norm_eps", float, 1e-5),
        rope=read_rope(config, default_share=0.25),
        has_qkv_bias=config.get("use_qkv_bias", bool, False),
        has_output_bias=False,
        has_mlp_bias=False,
        is_parallel=config.get("use_parallel_residual", bool, False),
        load_norm=LayerNorm.load,
        load_qkv=_normed_qkv if config.get("qk_layernorm", bool, False) else None,
    )
    return Llama(settings, weights)


def _normed_qkv(config: LlamaConfig, heads: HeadShare, name: str, weights: WeightSource) -> Linear:
    names, head_dim = [f"{name}.{part}_proj" for part in "qkv"], config.shape.head_dim
    qkv = Linear.fused(weights, names, config.hidden_size, heads.qkv, bias=config.has_qkv_bias)
    queries, keys = (
        _scales(weights, f"{name}.{part}_layernorm", channels, head_dim)
        for part, channels in (("q", heads.queries), ("k", heads.keys))
    )
    return with_head_layer_norm(qkv, queries, keys, config.norm_eps)


def _scales(weights: WeightSource, name: str, channels: Shard, head_dim: int) -> torch.Tensor:
    """Checkpoints have a tensor for each head; [heads of this process, head_dim]. The others' are taken and dropped, so
    that all tensors of the checkpoint count as read."""
    scales = [weights.take(f"{name}.norms.{index}.weight", head_dim) for index in range(channels.size // head_dim)]
    ((start, end),) = channels.ranges
    return torch.stack(scales[start // head_dim : end // head_dim])
