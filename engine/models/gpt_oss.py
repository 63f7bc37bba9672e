"""gpt-oss: Llama with a window in every other layer, attention sinks, biases, and experts with a clamped gate."""

from dataclasses import replace

import torch

from engine.kernels.operators import ClampedGate, ExpertOptions, Routing
from engine.kernels.quantised import MatrixStack, QuantisedStack
from engine.layers.experts import Experts
from engine.layers.linear import Linear
from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.llama import Llama, LlamaConfig, MLPLoader
from engine.models.rope import Rope, require_rope_section, rope_in
from engine.models.windows import read_windows
from engine.parallel.shard import Shard, Size, held_size


def gpt_oss(config: ConfigReader, weights: WeightSource) -> Llama:
    """Builds gpt-oss: a window in layers with even numbers, or in those that `layer_types` lists."""
    settings = LlamaConfig.read(config)
    num_layers, has_bias = settings.num_layers, config.get("attention_bias", bool, True)
    rule = [index % 2 == 0 for index in range(num_layers)]
    sinks = [
        weights.take(f"model.layers.{index}.self_attn.sinks", settings.shape.num_heads) for index in range(num_layers)
    ]
    return Llama(
        replace(
            settings,
            norm_eps=config.get("rms_norm_eps", float, 1e-5),
            rope=rope_in(require_rope_section(config), Rope(config.get("rope_theta", float, 150_000.0))),
            windows=read_windows(config, config.get("sliding_window", int, 128), rule),
            sinks=tuple(tuple(own.tolist()) for own in sinks),
            has_qkv_bias=has_bias,
            has_output_bias=has_bias,
            load_mlp=_experts(config),
        ),
        weights,
    )


def _experts(config: ConfigReader) -> MLPLoader:
    num_experts = config.get("num_local_experts", int, 128)
    routing = Routing(config.get("num_experts_per_tok", int, 4), sums_to_one=True)
    gate = ClampedGate(config.get("swiglu_alpha", float, 1.702), config.get("swiglu_limit", float, 7.0))

    def load_mlp(settings: LlamaConfig, layer_id: int, weights: WeightSource) -> Experts:
        name, hidden = f"model.layers.{layer_id}.mlp", settings.hidden_size
        part = Shard.even(settings.intermediate_size, weights.group.place, "intermediate_size")
        pairs = Shard(2 * part.size, tuple((2 * start, 2 * end) for start, end in part.ranges))
        gate_up = _take_stack(weights, f"{name}.experts.gate_up_proj", num_experts, pairs, hidden)
        down = _take_stack(weights, f"{name}.experts.down_proj", num_experts, hidden, part)
        gate_up_bias = weights.take(f"{name}.experts.gate_up_proj_bias", num_experts, pairs)
        down_bias = weights.take(f"{name}.experts.down_proj_bias", num_experts, hidden)
        return Experts.stacked(
            weights,
            Linear.load_router(weights, f"{name}.router", hidden, num_experts, bias=True),
            _with_gates_first(gate_up, held_size(pairs)),
            down,
            routing,
            ExpertOptions(_gates_first(gate_up_bias).float(), down_bias.float(), gate),
            summed_over=None if part.is_whole else weights.group,
        )

    return load_mlp


def _take_stack(
    weights: WeightSource, name: str, num_experts: int, out_features: Size, in_features: Size
) -> MatrixStack:
    """[experts, out, in]. In 16 bits the checkpoint has [experts, in, out], in MXFP4 [experts, out, in]."""
    if weights.is_quantised(name):
        return weights.take_stack(name, num_experts, out_features, in_features)
    return weights.take_matrix(name, num_experts, in_features, out_features).transpose(1, 2)


def _with_gates_first(stack: MatrixStack, num_rows: int) -> MatrixStack:
    """As _gates_first."""
    if not isinstance(stack, QuantisedStack):
        return _gates_first(stack)
    order = torch.arange(num_rows).view(-1, 2).T.flatten()
    return stack.mapped(lambda matrix: matrix[order])


def _gates_first(stack: torch.Tensor) -> torch.Tensor:
    """[experts, 2 * size, ...], gate and up of each channel beside each other -> all gates, then all ups."""
    num_experts, num_rows, *rest = stack.shape
    return stack.reshape(num_experts, num_rows // 2, 2, *rest).transpose(1, 2).reshape(stack.shape)
