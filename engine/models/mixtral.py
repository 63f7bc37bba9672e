"""Mixtral: Llama, but a mixture of experts in place of the MLP."""

from dataclasses import replace

from engine.kernels.operators import Routing
from engine.layers.experts import ExpertNames, Experts
from engine.layers.linear import Linear
from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.llama import Llama, LlamaConfig
from engine.models.rope import read_rope
from engine.parallel.shard import Shard


def mixtral(config: ConfigReader, weights: WeightSource) -> Llama:
    """Builds Mixtral: every layer has `num_local_experts` experts and no shared expert."""
    num_experts = config.get("num_local_experts", int, 8)
    num_chosen = config.get("num_experts_per_tok", int, 2)

    def load_experts(settings: LlamaConfig, layer_id: int, weights: WeightSource) -> Experts:
        name = f"model.layers.{layer_id}.block_sparse_moe"
        hidden = settings.hidden_size
        ffn = Shard.even(settings.intermediate_size, weights.group.place, "intermediate_size")
        names = [
            ExpertNames(f"{part}.w1", f"{part}.w3", f"{part}.w2")
            for part in (f"{name}.experts.{index}" for index in range(num_experts))
        ]
        router = Linear.load_router(weights, f"{name}.gate", hidden, num_experts)
        return Experts.load(weights, router, names, hidden, ffn, Routing(num_chosen, sums_to_one=True))

    settings = LlamaConfig.read(config)
    windows = (config.optional("sliding_window", int),) * settings.num_layers
    rope = read_rope(config, default_base=1_000_000.0)
    return Llama(replace(settings, windows=windows, rope=rope, load_mlp=load_experts), weights)
