"""Which code serves which checkpoint: by the name in config.json's `architectures`."""

import re
from collections.abc import Callable
from dataclasses import dataclass

import torch

from engine.errors import CheckpointError
from engine.layers.weights import WeightSource
from engine.models import gemma3 as gemma3_module
from engine.models import gpt2 as gpt2_module
from engine.models import gpt_neox as gpt_neox_module
from engine.models import llama as llama_module
from engine.models import mamba as mamba_module
from engine.models import opt as opt_module
from engine.models.causal_lm import CausalLM
from engine.models.config_reader import ConfigReader
from engine.models.gemma2 import gemma2
from engine.models.gemma3 import gemma3, gemma3_of_seeing
from engine.models.gpt2 import gpt2
from engine.models.gpt_neox import gpt_neox
from engine.models.jamba import jamba
from engine.models.llama import Llama, LlamaConfig
from engine.models.mamba import mamba
from engine.models.mistral import ministral, mistral
from engine.models.mixtral import mixtral
from engine.models.opt import opt
from engine.models.phi3 import phi3
from engine.models.qwen2 import qwen2
from engine.models.qwen2_moe import qwen2_moe
from engine.models.qwen3 import qwen3
from engine.models.qwen3_moe import qwen3_moe

#: (config.json, weights, dtype, context limit or None for the checkpoint's own) -> model
Builder = Callable[[ConfigReader, WeightSource, torch.dtype, int | None], CausalLM]


def llama(config: ConfigReader, weights: WeightSource, dtype: torch.dtype, max_model_len: int | None) -> Llama:
    return Llama(LlamaConfig.read(config), weights, dtype)


@dataclass(frozen=True)
class Architecture:
    name: str
    build: Builder
    ignored: re.Pattern[str]  #: tensors of its checkpoints that the model does not read
    is_divisible: bool = True  #: whether several processes can share it (tensor parallelism)


ARCHITECTURES = {
    architecture.name: architecture
    for architecture in (
        Architecture("LlamaForCausalLM", llama, llama_module.IGNORED),
        Architecture("MistralForCausalLM", mistral, llama_module.IGNORED),
        Architecture("MinistralForCausalLM", ministral, llama_module.IGNORED),
        Architecture("Qwen2ForCausalLM", qwen2, llama_module.IGNORED),
        Architecture("Qwen3ForCausalLM", qwen3, llama_module.IGNORED),
        Architecture("Gemma2ForCausalLM", gemma2, llama_module.IGNORED),
        Architecture("Gemma3ForCausalLM", gemma3, llama_module.IGNORED),
        Architecture("Gemma3ForConditionalGeneration", gemma3_of_seeing, gemma3_module.IGNORED_OF_SEEING),
        Architecture("Phi3ForCausalLM", phi3, llama_module.IGNORED),
        Architecture("MixtralForCausalLM", mixtral, llama_module.IGNORED),
        Architecture("Qwen2MoeForCausalLM", qwen2_moe, llama_module.IGNORED),
        Architecture("Qwen3MoeForCausalLM", qwen3_moe, llama_module.IGNORED),
        Architecture("GPTNeoXForCausalLM", gpt_neox, gpt_neox_module.IGNORED),
        Architecture("OPTForCausalLM", opt, opt_module.IGNORED),
        Architecture("MambaForCausalLM", mamba, mamba_module.IGNORED, is_divisible=False),
        Architecture("JambaForCausalLM", jamba, mamba_module.IGNORED, is_divisible=False),
        Architecture("GPT2LMHeadModel", gpt2, gpt2_module.IGNORED),
    )
}


def architecture_of(config: ConfigReader) -> Architecture:
    names = config.require("architectures", list)
    for name in names:
        if name in ARCHITECTURES:
            return ARCHITECTURES[name]
    raise CheckpointError(f"no code for architecture {names}; supported: {', '.join(sorted(ARCHITECTURES))}")
