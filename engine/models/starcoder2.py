"""StarCoder2: Llama, but with LayerNorm, biases and a plain MLP; one window for all layers, or none."""

from dataclasses import replace

from engine.layers.linear import Linear
from engine.layers.mlp import MLP
from engine.layers.norm import LayerNorm
from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader, read_activation
from engine.models.llama import Llama, LlamaConfig
from engine.parallel.shard import Shard


def starcoder2(config: ConfigReader, weights: WeightSource) -> Llama:
    """Builds StarCoder2."""
    has_bias = config.get("use_bias", bool, True)
    activation = read_activation(config, "hidden_act", "gelu_pytorch_tanh", weights.operators)

    def load_mlp(settings: LlamaConfig, layer_id: int, weights: WeightSource) -> MLP:
        name, hidden = f"model.layers.{layer_id}.mlp", settings.hidden_size
        ffn = Shard.even(settings.intermediate_size, weights.group.place, "intermediate_size")
        return MLP(
            Linear.load(weights, f"{name}.c_fc", hidden, ffn, bias=has_bias),
            Linear.load(weights, f"{name}.c_proj", ffn, hidden, bias=has_bias),
            activation,
        )

    settings = LlamaConfig.read(config, is_gated=False)
    settings = replace(
        settings,
        windows=(config.optional("sliding_window", int),) * settings.num_layers,
        max_positions=config.get("max_position_embeddings", int, 4096),
        norm_eps=config.get("norm_epsilon", float, 1e-5),
        has_qkv_bias=has_bias,
        has_output_bias=has_bias,
        is_tied=config.get("tie_word_embeddings", bool, True),
        load_norm=LayerNorm.load,
        load_mlp=load_mlp,
    )
    return Llama(settings, weights)
