"""Qwen2-MoE (Qwen1.5-MoE too): Qwen2, but with a mixture of experts in place of the MLP, in all layers or in those that
the config lists, and a shared expert that every token goes through."""

from dataclasses import replace

from engine.kernels.operators import Routing
from engine.layers.experts import ExpertNames, Experts, WithSharedExpert, load_expert
from engine.layers.linear import Linear
from engine.layers.mlp import FeedForward
from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.llama import Llama, LlamaConfig, MLPLoader, gated_mlp
from engine.models.windows import read_windows
from engine.parallel.shard import Shard


def qwen2_moe(config: ConfigReader, weights: WeightSource) -> Llama:
    """Builds Qwen2-MoE. If windows are on, every other layer below max_window_layers has one."""
    settings = LlamaConfig.read(config)
    load_mlp = qwen_experts(config, num_experts=60, num_chosen=4, ffn=1408, shared_ffn=5632)
    is_on = config.get("use_sliding_window", bool, False)
    end = config.get("max_window_layers", int, 28) if is_on else 0
    window = config.get("sliding_window", int, 4096) if is_on else None
    windows = read_windows(config, window, [i % 2 == 0 and i < end for i in range(settings.num_layers)])
    has_qkv_bias = config.get("qkv_bias", bool, True)
    settings = replace(settings, has_qkv_bias=has_qkv_bias, has_output_bias=False, windows=windows, load_mlp=load_mlp)
    return Llama(settings, weights)


def qwen_experts(
    config: ConfigReader,
    *,
    num_experts: int,
    num_chosen: int,
    ffn: int,
    shared_ffn: int | None,
    sums_to_one: bool = False,
) -> MLPLoader:
    """A loader of feed-forward parts. The values are the architecture's defaults; shared_ffn None: none is shared."""
    num_experts = config.get("num_experts", int, config.get("num_local_experts", int, num_experts))
    num_chosen = config.get("num_experts_per_tok", int, num_chosen)
    routing = Routing(num_chosen, sums_to_one=config.get("norm_topk_prob", bool, sums_to_one))
    ffn = config.get("moe_intermediate_size", int, ffn)
    if shared_ffn is not None:
        shared_ffn = config.get("shared_expert_intermediate_size", int, shared_ffn)
    period = config.get("decoder_sparse_step", int, 1)
    dense = config.get("mlp_only_layers", list, [])

    def load_mlp(settings: LlamaConfig, layer_id: int, weights: WeightSource) -> FeedForward:
        if layer_id in dense or (layer_id + 1) % period:
            return gated_mlp(settings, layer_id, weights)
        name, hidden = f"model.layers.{layer_id}.mlp", settings.hidden_size
        router = Linear.load_router(weights, f"{name}.gate", hidden, num_experts)
        part = Shard.even(ffn, weights.group.place, "intermediate size of an expert")
        if f"{name}.experts.gate_up_proj" in weights:
            experts = Experts.load_joined(weights, router, f"{name}.experts", num_experts, hidden, part, routing)
        else:
            names = [ExpertNames.projections(f"{name}.experts.{index}") for index in range(num_experts)]
            experts = Experts.load(weights, router, names, hidden, part, routing)
        if shared_ffn is None:
            return experts
        gate = Linear.load(weights, f"{name}.shared_expert_gate", hidden, 1, bias=False)
        part = Shard.even(shared_ffn, weights.group.place, "intermediate size of the shared expert")
        shared = load_expert(weights, ExpertNames.projections(f"{name}.shared_expert"), hidden, part)
        return WithSharedExpert(experts, shared, gate)

    return load_mlp
