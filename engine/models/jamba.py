"""Jamba: Mamba layers with a few attention layers between them, a mixture of experts in every other layer, and no
embedding of positions."""

from engine.kernels.operators import Routing
from engine.layers.decoder import DecoderLayer, Mixer
from engine.layers.embedding import TokenEmbedding
from engine.layers.experts import ExpertNames, Experts, load_expert
from engine.layers.linear import Linear
from engine.layers.mamba import Mamba, MambaSizes, MambaWeights
from engine.layers.mlp import FeedForward
from engine.layers.norm import RMSNorm
from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.hybrid import HybridLM, HybridParts, load_attention, read_shape
from engine.models.mamba import read_rank


def jamba(config: ConfigReader, weights: WeightSource) -> HybridLM:
    """Builds Jamba. Periods and offsets in the config say which layers have attention or experts."""
    config.expect("hidden_act", "silu")
    num_layers = config.require("num_hidden_layers", int)
    period, offset = config.get("attn_layer_period", int, 8), config.get("attn_layer_offset", int, 4)
    has_attention = [index % period == offset for index in range(num_layers)]
    sizes, shape = _sizes(config), read_shape(config)
    hidden, eps = sizes.hidden, config.get("rms_norm_eps", float, 1e-6)
    vocab_size = config.require("vocab_size", int)
    layers = []
    for index in range(num_layers):
        name = f"model.layers.{index}"
        num_attention = sum(has_attention[:index])
        if has_attention[index]:
            mixer: Mixer = load_attention(weights, f"{name}.self_attn", num_attention, shape, hidden)
        else:
            mixer = _recurrence(weights, f"{name}.mamba", index - num_attention, sizes, eps)
        layers.append(
            DecoderLayer(
                mixer_norm=RMSNorm.load(weights, f"{name}.input_layernorm", hidden, eps),
                mixer=mixer,
                mlp_norm=RMSNorm.load(weights, f"{name}.pre_ff_layernorm", hidden, eps),
                mlp=_feed_forward(config, index, f"{name}.feed_forward", hidden, weights),
            )
        )
    head = None if config.get("tie_word_embeddings", bool, False) else "lm_head"
    parts = HybridParts(
        vocab_size=vocab_size,
        max_positions=config.get("max_position_embeddings", int, 262_144),
        attention_shapes=(shape,) * sum(has_attention),
        state_shapes=sizes.state_shapes(weights.dtype) * (num_layers - sum(has_attention)),
        tokens=TokenEmbedding.load(weights, "model.embed_tokens", vocab_size, hidden, head=head),
        layers=layers,
        norm=RMSNorm.load(weights, "model.final_layernorm", hidden, eps),
    )
    return HybridLM(parts, weights)


def _recurrence(weights: WeightSource, name: str, index: int, sizes: MambaSizes, eps: float) -> Mamba:
    """The recurrent layer with that many recurrent layers before it."""
    norms = [
        RMSNorm.load(weights, f"{name}.{part}_layernorm", size, eps)
        for part, size in (("dt", sizes.rank), ("b", sizes.num_states), ("c", sizes.num_states))
    ]
    return Mamba(2 * index, 2 * index + 1, MambaWeights.load(weights, name, sizes, (norms[0], norms[1], norms[2])))


def _feed_forward(config: ConfigReader, index: int, name: str, hidden: int, weights: WeightSource) -> FeedForward:
    ffn = config.require("intermediate_size", int)
    num_experts = config.get("num_experts", int, 16)
    period, offset = config.get("expert_layer_period", int, 2), config.get("expert_layer_offset", int, 1)
    if num_experts == 1 or index % period != offset:
        return load_expert(weights, ExpertNames.projections(name), hidden, ffn)
    names = [ExpertNames.projections(f"{name}.experts.{expert}") for expert in range(num_experts)]
    router = Linear.load_router(weights, f"{name}.router", hidden, num_experts)
    routing = Routing(config.get("num_experts_per_tok", int, 2), sums_to_one=False)
    return Experts.load(weights, router, names, hidden, ffn, routing)


def _sizes(config: ConfigReader) -> MambaSizes:
    hidden = config.require("hidden_size", int)
    return MambaSizes(
        hidden=hidden,
        num_channels=config.get("mamba_expand", int, 2) * hidden,
        num_states=config.get("mamba_d_state", int, 16),
        num_taps=config.get("mamba_d_conv", int, 4),
        rank=read_rank(config, "mamba_dt_rank", hidden),
        has_bias=config.get("mamba_proj_bias", bool, False),
        has_conv_bias=config.get("mamba_conv_bias", bool, True),
    )
