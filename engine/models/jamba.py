"""Jamba: Mamba layers with a few attention layers between them, a mixture of experts in every other layer, and no
embedding of positions."""

from engine.kernels.operators import Routing
from engine.layers.experts import ExpertNames, Experts, load_expert
from engine.layers.linear import Linear
from engine.layers.mamba import Mamba, MambaSizes, MambaWeights
from engine.layers.mlp import FeedForward
from engine.layers.norm import RMSNorm
from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.hybrid import HybridKinds, HybridLM, load_hybrid
from engine.models.mamba import read_rank


def jamba(config: ConfigReader, weights: WeightSource) -> HybridLM:
    """Builds Jamba. Periods and offsets in the config say which layers have attention or experts."""
    config.expect("hidden_act", "silu")
    num_layers = config.require("num_hidden_layers", int)
    period, offset = config.get("attn_layer_period", int, 8), config.get("attn_layer_offset", int, 4)
    sizes, eps = _sizes(config), config.get("rms_norm_eps", float, 1e-6)
    kinds = HybridKinds(
        has_attention=[index % period == offset for index in range(num_layers)],
        state_shapes=sizes.state_shapes(weights.dtype),
        recurrence=lambda name, state_id: _recurrence(weights, name, state_id, sizes, eps),
        feed_forward=lambda name, index: _feed_forward(config, index, name, sizes.hidden, weights),
        norm_eps=eps,
    )
    return load_hybrid(config, weights, kinds)


def _recurrence(weights: WeightSource, name: str, state_id: int, sizes: MambaSizes, eps: float) -> Mamba:
    norms = [
        RMSNorm.load(weights, f"{name}.{part}_layernorm", size, eps)
        for part, size in (("dt", sizes.rank), ("b", sizes.num_states), ("c", sizes.num_states))
    ]
    return Mamba(state_id, state_id + 1, MambaWeights.load(weights, name, sizes, (norms[0], norms[1], norms[2])))


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
