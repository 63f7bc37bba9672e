"""LFM2: gated short convolutions, with attention in the layers that the config lists; normalised, rotated heads."""

from collections.abc import Callable

from engine.attention.backend import AttentionShape, HeadNorms
from engine.layers.attention import SelfAttention
from engine.layers.decoder import DecoderLayer
from engine.layers.embedding import TokenEmbedding
from engine.layers.experts import ExpertNames, load_expert
from engine.layers.linear import Linear
from engine.layers.mixer import Mixer
from engine.layers.mlp import FeedForward
from engine.layers.norm import RMSNorm
from engine.layers.short_conv import ShortConv
from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.hybrid import HybridLM, HybridParts, checked_kinds, read_shape
from engine.models.rope import read_rope

#: (index of a layer, name of its feed-forward part) -> that part
FeedForwardLoader = Callable[[int, str], FeedForward]


def lfm2(config: ConfigReader, weights: WeightSource) -> HybridLM:
    """Builds LFM2."""
    hidden, ffn = config.require("hidden_size", int), _feed_forward_size(config)

    def load(index: int, name: str) -> FeedForward:
        return load_expert(weights, mlp_names(name), hidden, ffn)

    return short_conv_model(config, weights, load)


def mlp_names(name: str) -> ExpertNames:
    """The matrices of an MLP of that name."""
    return ExpertNames(gate=f"{name}.w1", up=f"{name}.w3", down=f"{name}.w2")


def short_conv_model(config: ConfigReader, weights: WeightSource, load_feed_forward: FeedForwardLoader) -> HybridLM:
    """LFM2 with these feed-forward parts."""
    hidden, num_layers = config.require("hidden_size", int), config.require("num_hidden_layers", int)
    eps, vocab_size = config.get("norm_eps", float, 1e-5), config.require("vocab_size", int)
    num_taps, has_bias = config.get("conv_L_cache", int, 3), config.get("conv_bias", bool, False)
    shape, kinds = read_shape(config), _read_kinds(config, num_layers)
    layers = []
    for index, kind in enumerate(kinds):
        name, attention_id = f"model.layers.{index}", kinds[:index].count("attention")
        if kind == "attention":
            mixer: Mixer = _attention(weights, f"{name}.self_attn", attention_id, shape, hidden, eps)
        else:
            mixer = ShortConv(index - attention_id, weights, f"{name}.conv", hidden, num_taps, bias=has_bias)
        layers.append(
            DecoderLayer(
                mixer_norm=RMSNorm.load(weights, f"{name}.operator_norm", hidden, eps),
                mixer=mixer,
                mlp_norm=RMSNorm.load(weights, f"{name}.ffn_norm", hidden, eps),
                mlp=load_feed_forward(index, f"{name}.feed_forward"),
                rotation=0,
            )
        )
    num_attention = kinds.count("attention")
    is_tied = config.get("tie_embedding", bool, config.get("tie_word_embeddings", bool, True))
    state = ShortConv.state_shape(hidden, num_taps, weights.dtype)
    parts = HybridParts(
        vocab_size=vocab_size,
        max_positions=config.get("max_position_embeddings", int, 128_000),
        attention_shapes=(shape,) * num_attention,
        state_shapes=(state,) * (num_layers - num_attention),
        tokens=TokenEmbedding.load(
            weights, "model.embed_tokens", vocab_size, hidden, head=None if is_tied else "lm_head"
        ),
        layers=layers,
        norm=RMSNorm.load(weights, "model.embedding_norm", hidden, eps),
        rotary=read_rope(config, default_base=1_000_000.0).rotary(shape.head_dim),
    )
    return HybridLM(parts, weights)


def _attention(
    weights: WeightSource, name: str, layer_id: int, shape: AttentionShape, hidden: int, eps: float
) -> SelfAttention:
    query_size, kv_size = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    query, key = (weights.take(f"{name}.{part}_layernorm.weight", shape.head_dim).float() for part in "qk")
    return SelfAttention(
        layer_id,
        shape,
        Linear.fused(
            weights, [f"{name}.{part}_proj" for part in "qkv"], hidden, [query_size, kv_size, kv_size], bias=False
        ),
        Linear.load(weights, f"{name}.out_proj", query_size, hidden, bias=False),
        HeadNorms(query, key, eps),
    )


def _read_kinds(config: ConfigReader, num_layers: int) -> list[str]:
    """ "attention" or "conv" for each layer; older configs list the indices of the attention layers."""
    listed = config.optional("layer_types", list)
    if listed is None:
        indices = config.get("full_attn_idxs", list, list(range(num_layers)))
        listed = ["attention" if index in indices else "conv" for index in range(num_layers)]
    return checked_kinds(listed, num_layers, "attention", "conv")


def _feed_forward_size(config: ConfigReader) -> int:
    """The width of the MLPs: configs give another one, which is adjusted and rounded up."""
    size = config.get("block_ff_dim", int, config.get("intermediate_size", int, 12288))
    if not config.get("block_auto_adjust_ff_dim", bool, True):
        return size
    multiple = config.get("block_multiple_of", int, 256)
    size = int(config.get("block_ffn_dim_multiplier", float, 1.0) * int(2 * size / 3))
    return max(1, -(-size // multiple)) * multiple
