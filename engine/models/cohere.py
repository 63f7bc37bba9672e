"""Cohere (Command R, Aya): attention and a gated MLP side by side after one LayerNorm without biases, rotation of
adjacent channels, scaled logits. In Cohere 2 most layers read a window, and the others have no positions."""

from dataclasses import replace

from engine.layers.adjacent_pairs import AdjacentPairs
from engine.layers.head_layer_norm import with_head_layer_norm
from engine.layers.heads import HeadShare
from engine.layers.linear import Linear
from engine.layers.norm import LayerNorm
from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.llama import Llama, LlamaConfig
from engine.models.rope import read_rope
from engine.models.windows import read_windows
from engine.parallel.shard import Shard


def cohere(config: ConfigReader, weights: WeightSource) -> Llama:
    """Builds Cohere; Command R+ norms its query and key heads."""
    settings = _read(config, default_base=500_000.0)
    if config.get("use_qk_norm", bool, False):
        settings = replace(settings, load_qkv=_normed_qkv)
    return _build(settings, weights)


def cohere2(config: ConfigReader, weights: WeightSource) -> Llama:
    """Builds Cohere 2: every fourth layer has full attention without positions."""
    settings = _read(config, default_base=10_000.0)
    period = config.get("sliding_window_pattern", int, 4)
    rule = [(index + 1) % period != 0 for index in range(settings.num_layers)]
    windows = read_windows(config, config.get("sliding_window", int, 4096), rule)
    layer_ropes = tuple(None if window is None else settings.rope for window in windows)
    return _build(replace(settings, windows=windows, layer_ropes=layer_ropes), weights)


def _read(config: ConfigReader, *, default_base: float) -> LlamaConfig:
    return replace(
        LlamaConfig.read(config),
        max_positions=config.get("max_position_embeddings", int, 8192),
        norm_eps=config.get("layer_norm_eps", float, 1e-5),
        rope=read_rope(config, default_base=default_base),
        has_mlp_bias=False,
        is_tied=config.get("tie_word_embeddings", bool, True),
        is_parallel=True,
        logit_scale=config.get("logit_scale", float, 0.0625),
        load_norm=LayerNorm.without_bias,
    )


def _build(settings: LlamaConfig, weights: WeightSource) -> Llama:
    head_dim = settings.shape.head_dim
    return Llama(settings, AdjacentPairs(weights, head_dim=head_dim, num_rotated=head_dim))


def _normed_qkv(config: LlamaConfig, heads: HeadShare, name: str, weights: WeightSource) -> Linear:
    names, head_dim = [f"{name}.{part}_proj" for part in "qkv"], config.shape.head_dim
    qkv = Linear.fused(weights, names, config.hidden_size, heads.qkv, bias=config.has_qkv_bias)
    queries, keys = (
        weights.take(f"{name}.{part}_norm.weight", _heads_of(channels, head_dim), head_dim)
        for part, channels in (("q", heads.queries), ("k", heads.keys))
    )
    return with_head_layer_norm(qkv, queries, keys, config.norm_eps)


def _heads_of(channels: Shard, head_dim: int) -> Shard:
    ranges = tuple((start // head_dim, end // head_dim) for start, end in channels.ranges)
    return Shard(channels.size // head_dim, ranges)
