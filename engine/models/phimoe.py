"""Phi-3.5-MoE: Mixtral, but with LayerNorm, biases, experts weighted by SparseMixer, and rotated heads that longrope
scales by a factor of its own."""

from dataclasses import replace

from engine.errors import CheckpointError
from engine.kernels.operators import Routing
from engine.layers.experts import ExpertNames
from engine.layers.mlp import FeedForward
from engine.layers.norm import LayerNorm
from engine.layers.rotary import LongScaling
from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.llama import Llama, LlamaConfig
from engine.models.mixtures import load_mixture
from engine.models.rope import Rope, read_rope


def phimoe(config: ConfigReader, weights: WeightSource) -> Llama:
    """Builds Phi-3.5-MoE; noise on inputs and routers is for training."""
    num_experts = config.get("num_local_experts", int, 16)
    # A router's jitter noise bounds the distance on both sides.
    nearness = 2.0 * config.get("router_jitter_noise", float, 0.01)
    routing = Routing(config.get("num_experts_per_tok", int, 2), sums_to_one=False, nearness=nearness)
    if routing.num_chosen != 2:
        raise CheckpointError(f"config.json: num_experts_per_tok {routing.num_chosen} is not supported, only 2")

    def load_mlp(settings: LlamaConfig, layer_id: int, weights: WeightSource) -> FeedForward:
        name = f"model.layers.{layer_id}.block_sparse_moe"
        experts = [f"{name}.experts.{index}" for index in range(num_experts)]
        names = [ExpertNames(f"{expert}.w1", f"{expert}.w3", f"{expert}.w2") for expert in experts]
        ffn = settings.intermediate_size
        return load_mixture(weights, f"{name}.gate", names, settings.hidden_size, ffn, routing)

    settings = LlamaConfig.read(config)
    settings = replace(
        settings,
        windows=(config.optional("sliding_window", int),) * settings.num_layers,
        max_positions=config.get("max_position_embeddings", int, 131_072),
        norm_eps=config.get("rms_norm_eps", float, 1e-5),
        rope=_read_rope(config),
        has_head_bias=config.get("lm_head_bias", bool, False),
        load_norm=LayerNorm.load,
        load_mlp=load_mlp,
    )
    return Llama(settings, weights)


def _read_rope(config: ConfigReader) -> Rope:
    rope = read_rope(config, default_base=1_000_000.0)
    section = config.section("rope_parameters") or config.section("rope_scaling")
    if section is None or rope.scaling is None:
        return rope
    short, long = section.require("short_mscale", float), section.require("long_mscale", float)
    if not isinstance(rope.scaling, LongScaling) or short != long:
        raise CheckpointError("config.json: scaled positions are supported as longrope with one mscale only")
    return replace(rope, scaling=replace(rope.scaling, amplitude=long))
