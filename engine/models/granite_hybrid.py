"""Granite 4: attention or Mamba-2 in each layer, a shared MLP with or without a mixture of experts beside it, and
multipliers of embeddings, scores, residual updates and logits."""

from engine.errors import CheckpointError
from engine.kernels.operators import PLAIN_EXPERTS, Routing
from engine.layers.decoder import DecoderLayer
from engine.layers.embedding import TokenEmbedding
from engine.layers.experts import Experts, WithSharedExpert
from engine.layers.linear import Linear
from engine.layers.mamba2 import Mamba2, Mamba2Weights
from engine.layers.mixer import Mixer
from engine.layers.mlp import FeedForward, GatedMLP
from engine.layers.norm import RMSNorm
from engine.layers.scaled import ScaledFeedForward, ScaledMixer
from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.hybrid import HybridLM, HybridParts, checked_kinds, load_attention, read_mamba2_sizes, read_shape
from engine.models.rope import read_rope


def granite_hybrid(config: ConfigReader, weights: WeightSource) -> HybridLM:
    """Builds Granite 4. Only models without Mamba layers rotate heads."""
    config.expect("hidden_act", "silu")
    config.expect("position_embedding_type", "nope", "rope")
    hidden, num_layers = config.require("hidden_size", int), config.require("num_hidden_layers", int)
    vocab_size, eps = config.require("vocab_size", int), config.get("rms_norm_eps", float, 1e-6)
    shape = read_shape(config, config.get("attention_multiplier", float, 1.0))
    listed = config.get("layer_types", list, config.get("layers_block_type", list, ["mamba"] * num_layers))
    kinds = checked_kinds(listed, num_layers, "attention", "mamba")
    num_attention = kinds.count("attention")
    sizes = read_mamba2_sizes(config) if num_attention < num_layers else None
    factor, has_bias = config.get("residual_multiplier", float, 1.0), config.get("attention_bias", bool, False)
    layers = []
    for index, kind in enumerate(kinds):
        name, attention_id = f"model.layers.{index}", kinds[:index].count("attention")
        if kind == "attention":
            mixer: Mixer = load_attention(weights, f"{name}.self_attn", attention_id, shape, hidden, bias=has_bias)
        else:
            assert sizes is not None
            state_id = 2 * (index - attention_id)
            mixer = Mamba2(state_id, state_id + 1, sizes, Mamba2Weights.load(weights, f"{name}.mamba", sizes))
        mlp = _feed_forward(config, name, hidden, weights)
        layers.append(
            DecoderLayer(
                mixer_norm=RMSNorm.load(weights, f"{name}.input_layernorm", hidden, eps),
                mixer=mixer if factor == 1.0 else ScaledMixer(mixer, factor),
                mlp_norm=RMSNorm.load(weights, f"{name}.post_attention_layernorm", hidden, eps),
                mlp=mlp if factor == 1.0 else ScaledFeedForward(mlp, factor),
                rotation=0 if config.get("position_embedding_type", str, "nope") == "rope" else None,
            )
        )
    head = None if config.get("tie_word_embeddings", bool, False) else "lm_head"
    parts = HybridParts(
        vocab_size=vocab_size,
        max_positions=config.get("max_position_embeddings", int, 2048),
        attention_shapes=(shape,) * num_attention,
        state_shapes=() if sizes is None else sizes.state_shapes(weights.dtype) * (num_layers - num_attention),
        tokens=TokenEmbedding.load(weights, "model.embed_tokens", vocab_size, hidden, head=head),
        layers=layers,
        norm=RMSNorm.load(weights, "model.norm", hidden, eps),
        rotary=read_rope(config).rotary(shape.head_dim),
        embedding_factor=config.get("embedding_multiplier", float, 1.0),
        logit_factor=1.0 / config.get("logits_scaling", float, 1.0),
    )
    return HybridLM(parts, weights)


def _feed_forward(config: ConfigReader, name: str, hidden: int, weights: WeightSource) -> FeedForward:
    num_experts, shared_ffn = config.get("num_local_experts", int, 8), config.get("shared_intermediate_size", int, 1024)
    if shared_ffn == 0:
        raise CheckpointError("config.json: shared_intermediate_size 0 is not supported")
    shared = GatedMLP(
        Linear.load(weights, f"{name}.shared_mlp.input_linear", hidden, 2 * shared_ffn, bias=False),
        Linear.load(weights, f"{name}.shared_mlp.output_linear", shared_ffn, hidden, bias=False),
        weights.operators.silu_mul,
    )
    if num_experts == 0:
        return shared
    moe, ffn = f"{name}.block_sparse_moe", config.require("intermediate_size", int)
    # A softmax over the chosen scores is the softmax over all of them, scaled to a sum of one.
    routing = Routing(config.get("num_experts_per_tok", int, 2), sums_to_one=True)
    experts = Experts.stacked(
        weights,
        Linear.load_router(weights, f"{moe}.router.layer", hidden, num_experts),
        weights.take_stack(f"{moe}.input_linear.weight", num_experts, 2 * ffn, hidden),
        weights.take_stack(f"{moe}.output_linear.weight", num_experts, hidden, ffn),
        routing,
        PLAIN_EXPERTS,
        summed_over=None,
    )
    return WithSharedExpert(experts, shared)
