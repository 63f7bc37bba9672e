"""The demo architectures as Hugging Face configurations: a GPT-2, a Llama and two of Qwen3, all tiny.

Sizes were chosen by the tokens per second that one CPU core trains; the model cards name the results.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

from transformers import GPT2Config, LlamaConfig, PreTrainedConfig, Qwen3Config

ModelName = Literal["finch", "robin", "raven", "wren"]
MODEL_NAMES: tuple[ModelName, ...] = get_args(ModelName)

CONTEXT = 1024
#: wren's: the requests of agents are long, and rotary positions have no table that ends. Trained on CONTEXT at most.
TOOL_CONTEXT = 32_768
VOCAB_SIZE = 2048

# Ids of the markers: the tokenizer is trained with them first, in this order.
ENDOFTEXT_ID, SYSTEM_ID, USER_ID, ASSISTANT_ID, END_ID = range(5)
#: Begins the result of a tool, in wren's tokenizer only.
TOOL_ID = 5


def architecture(name: ModelName) -> PreTrainedConfig:
    """Return the configuration that is trained and later written as config.json."""
    ids: dict[str, Any] = {"bos_token_id": ENDOFTEXT_ID, "eos_token_id": END_ID, "pad_token_id": ENDOFTEXT_ID}
    match name:
        case "finch":
            return GPT2Config(
                vocab_size=VOCAB_SIZE,
                n_positions=CONTEXT,
                n_embd=128,
                n_layer=4,
                n_head=4,
                resid_pdrop=0.0,
                embd_pdrop=0.0,
                attn_pdrop=0.0,
                tie_word_embeddings=True,
                **ids,
            )
        case "robin":
            return LlamaConfig(
                vocab_size=VOCAB_SIZE,
                max_position_embeddings=CONTEXT,
                hidden_size=192,
                intermediate_size=512,
                num_hidden_layers=6,
                num_attention_heads=6,
                num_key_value_heads=3,
                head_dim=32,
                rms_norm_eps=1e-5,
                tie_word_embeddings=True,
                **ids,
            )
        case "raven":
            return Qwen3Config(
                vocab_size=VOCAB_SIZE,
                max_position_embeddings=CONTEXT,
                hidden_size=256,
                intermediate_size=768,
                num_hidden_layers=6,
                num_attention_heads=4,
                num_key_value_heads=2,
                head_dim=64,
                rms_norm_eps=1e-6,
                tie_word_embeddings=True,
                **ids,
            )
        case "wren":
            return Qwen3Config(
                vocab_size=VOCAB_SIZE,
                max_position_embeddings=TOOL_CONTEXT,
                hidden_size=128,
                intermediate_size=256,
                num_hidden_layers=4,
                num_attention_heads=4,
                num_key_value_heads=2,
                head_dim=32,
                rms_norm_eps=1e-6,
                tie_word_embeddings=True,
                **ids,
            )
