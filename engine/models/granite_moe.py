"""Granite 3 with a mixture of experts in place of the MLP, and factors on embeddings, on attention scores, on what each
part adds to the residual stream, and on logits.

The stream is kept divided by the factor of the parts, so that they are added as they are: a norm does not change with
the scale of its input if its epsilon is divided by the square. The factor goes into the embeddings instead.
"""

from dataclasses import replace

from engine.kernels.operators import Routing
from engine.layers.experts import Experts
from engine.layers.linear import Linear
from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.llama import Llama, LlamaConfig
from engine.parallel.shard import Shard


def granite_moe(config: ConfigReader, weights: WeightSource) -> Llama:
    """Builds Granite 3 with experts in every layer."""
    num_experts = config.get("num_local_experts", int, 8)
    num_chosen = config.get("num_experts_per_tok", int, 2)

    def load_experts(settings: LlamaConfig, layer_id: int, weights: WeightSource) -> Experts:
        name, hidden = f"model.layers.{layer_id}.block_sparse_moe", settings.hidden_size
        return Experts.stacked(
            weights,
            Linear.load(weights, f"{name}.router.layer", hidden, num_experts, bias=False),
            f"{name}.input_linear",
            f"{name}.output_linear",
            num_experts,
            hidden,
            Shard.even(settings.intermediate_size, weights.group.place, "intermediate_size"),
            Routing(num_chosen, sums_to_one=True),
        )

    settings = LlamaConfig.read(config)
    factor = config.get("residual_multiplier", float, 1.0)
    settings = replace(
        settings,
        shape=replace(settings.shape, score_scale=config.get("attention_multiplier", float, 1.0)),
        norm_eps=settings.norm_eps / factor**2,
        embedding_scale=config.get("embedding_multiplier", float, 1.0) / factor,
        logit_scale=1.0 / config.get("logits_scaling", float, 1.0),
        load_mlp=load_experts,
    )
    return Llama(settings, weights)
