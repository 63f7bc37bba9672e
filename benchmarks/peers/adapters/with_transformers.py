"""transformers in its three ways: generate one at a time, padded static batches, and its continuous batching.

`mode` among the options: one, static or continuous. Static batches of 8 are sorted by answer and prompt length, which
is their best case: a batch ends with its longest answer.
"""

from typing import Any

import channel

BATCH = 8
TIMEOUT_S = 900.0


class Transformers:
    def __init__(self, settings: dict[str, Any]) -> None:
        import torch
        import transformers

        torch.set_num_threads(settings["threads"])
        transformers.logging.set_verbosity_error()
        self.version = f"transformers {transformers.__version__}, torch {torch.__version__}"
        self._torch, self._transformers = torch, transformers
        model = transformers.AutoModelForCausalLM.from_pretrained(
            settings["model"], dtype=getattr(torch, settings["dtype"]), attn_implementation="sdpa"
        )
        self._model = model.eval()
        self._model.generation_config = transformers.GenerationConfig(do_sample=False, pad_token_id=0)
        mode = settings["options"].get("mode", "one")
        self.generate = {"one": self._one, "static": self._static, "continuous": self._continuous}[mode]

    def _one(self, prompts: list[channel.Tokens], lengths: list[int]) -> list[channel.Tokens]:
        return [self._batch([ids], length)[0] for ids, length in zip(prompts, lengths, strict=True)]

    def _static(self, prompts: list[channel.Tokens], lengths: list[int]) -> list[channel.Tokens]:
        order = sorted(range(len(prompts)), key=lambda i: (lengths[i], len(prompts[i])))
        answers: list[channel.Tokens] = [[] for _ in prompts]
        for start in range(0, len(order), BATCH):
            chosen = order[start : start + BATCH]
            whole = self._batch([prompts[i] for i in chosen], max(lengths[i] for i in chosen))
            for index, tokens in zip(chosen, whole, strict=True):
                answers[index] = tokens[: lengths[index]]
        return answers

    def _batch(self, prompts: list[channel.Tokens], length: int) -> list[channel.Tokens]:
        torch = self._torch
        width = max(len(ids) for ids in prompts)
        ids = torch.zeros(len(prompts), width, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, prompt in enumerate(prompts):  # padded on the left: the answer follows the prompt
            ids[row, width - len(prompt) :] = torch.tensor(prompt)
            mask[row, width - len(prompt) :] = 1
        with torch.inference_mode():
            whole = self._model.generate(ids, attention_mask=mask, max_new_tokens=length, min_new_tokens=length)
        return whole[:, width:].tolist()

    def _continuous(self, prompts: list[channel.Tokens], lengths: list[int]) -> list[channel.Tokens]:
        import time

        config = self._transformers.GenerationConfig(
            max_new_tokens=max(lengths), do_sample=False, eos_token_id=-1, pad_token_id=0
        )
        manager = self._model.init_continuous_batching(generation_config=config)
        manager.start()
        answers: dict[str, channel.Tokens] = {}
        try:
            for index, (ids, length) in enumerate(zip(prompts, lengths, strict=True)):
                manager.add_request(ids, request_id=str(index), max_new_tokens=length, eos_token_id=-1)
            deadline = time.monotonic() + TIMEOUT_S
            while len(answers) < len(prompts):
                result = manager.get_result(timeout=5)
                if result is not None and result.is_finished():
                    answers[result.request_id] = list(result.generated_tokens)
                elif time.monotonic() > deadline:
                    raise TimeoutError(f"{len(answers)} of {len(prompts)} requests had finished")
        finally:
            manager.stop(block=True)
        return [answers[str(index)] for index in range(len(prompts))]


if __name__ == "__main__":
    channel.serve(Transformers)
