"""Granite 3 with a mixture of experts in place of the MLP; the experts of a layer are one tensor."""

from dataclasses import replace

from engine.kernels.operators import ExpertOptions, Routing
from engine.layers.experts import Experts
from engine.layers.linear import Linear
from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.granite import read_granite
from engine.models.llama import Llama, LlamaConfig
from engine.parallel.shard import Shard


def granite_moe(config: ConfigReader, weights: WeightSource) -> Llama:
    """Builds Granite 3 with experts in every layer."""
    num_experts = config.get("num_local_experts", int, 8)
    routing = Routing(config.get("num_experts_per_tok", int, 2), sums_to_one=True)

    def load_experts(settings: LlamaConfig, layer_id: int, weights: WeightSource) -> Experts:
        name, hidden = f"model.layers.{layer_id}.block_sparse_moe", settings.hidden_size
        ffn = Shard.even(settings.intermediate_size, weights.group.place, "intermediate_size")
        return Experts.stacked(
            weights,
            Linear.load_router(weights, f"{name}.router.layer", hidden, num_experts),
            weights.take_stack(f"{name}.input_linear.weight", num_experts, Shard.stacked([ffn, ffn]), hidden),
            weights.take_stack(f"{name}.output_linear.weight", num_experts, hidden, ffn),
            routing,
            ExpertOptions(),
            summed_over=None if ffn.is_whole else weights.group,
        )

    return Llama(replace(read_granite(config), load_mlp=load_experts), weights)
