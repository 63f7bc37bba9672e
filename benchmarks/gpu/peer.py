"""transformers on the same work: generate one at a time, generate in padded batches, and its continuous batching.

Batches are sorted by answer and prompt length, which is their best case: a batch ends with its longest answer.
"""

import time
from collections.abc import Sequence
from typing import Any, Self

from benchmarks.gpu.ours import rates, release
from cli.bench.workloads import Work

_STOP_S = 20.0


class Transformers:
    def __init__(self, config: dict[str, Any], device: str) -> None:
        import torch
        import transformers

        library: Any = transformers  # typed in parts only
        library.logging.set_verbosity_error()
        self._torch, self._library, self._device = torch, library, device
        fields = {key: value for key, value in config.items() if key != "model_type"}
        settings = library.AutoConfig.for_model(config["model_type"], **fields)
        torch.manual_seed(0)
        with torch.device(device):
            model = library.AutoModelForCausalLM.from_config(settings, dtype=torch.bfloat16, attn_implementation="sdpa")
        self._model = model.eval()
        self._model.generation_config = library.GenerationConfig(do_sample=False, pad_token_id=0)

    def one_at_a_time(self, work: Sequence[Work]) -> dict[str, Any]:
        self._generate(work[:1], 2)
        started = time.perf_counter()
        for item in work:
            self._generate([item], item.out)
        return rates(work, time.perf_counter() - started)

    def batched(self, work: Sequence[Work], size: int) -> dict[str, Any]:
        order = sorted(work, key=lambda item: (item.out, len(item.ids)))
        self._generate(order[:size], 2)
        started = time.perf_counter()
        for first in range(0, len(order), size):
            batch = order[first : first + size]
            self._generate(batch, max(item.out for item in batch))
        return rates(work, time.perf_counter() - started)

    def continuous(self, work: Sequence[Work], timeout_s: float) -> dict[str, Any]:
        """Raises TimeoutError where not all answers have come in time, RuntimeError where one has failed."""
        deadline = time.monotonic() + timeout_s
        longest = max(item.out for item in work)
        config = self._library.GenerationConfig(
            max_new_tokens=longest, do_sample=False, eos_token_id=-1, pad_token_id=0
        )
        manager = self._model.init_continuous_batching(generation_config=config)
        manager.start()
        try:
            self._answers(manager, [Work(work[0].ids, 2)], "warm", deadline)
            started = time.perf_counter()
            self._answers(manager, work, "timed", deadline)
            return rates(work, time.perf_counter() - started)
        finally:
            # Without hard_stop it first answers all remaining requests.
            manager.stop(block=True, timeout=_STOP_S, hard_stop=True)

    def _answers(self, manager: Any, work: Sequence[Work], name: str, deadline: float) -> None:
        for index, item in enumerate(work):
            manager.add_request(list(item.ids), request_id=f"{name}-{index}", max_new_tokens=item.out, eos_token_id=-1)
        num_finished = 0
        while num_finished < len(work):
            result = manager.get_result(timeout=1)
            if result is not None and result.error is not None:
                raise RuntimeError(f"a request failed: {result.error}")
            num_finished += result is not None and result.is_finished()
            if result is None and not manager.is_running():
                raise RuntimeError(f"its thread ended when {num_finished} of {len(work)} requests had finished")
            if time.monotonic() > deadline:
                raise TimeoutError(f"{num_finished} of {len(work)} requests had finished")

    def _generate(self, batch: Sequence[Work], num_tokens: int) -> None:
        torch = self._torch
        width = max(len(item.ids) for item in batch)
        ids = torch.zeros(len(batch), width, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, item in enumerate(batch):  # padded on the left: the new tokens follow the prompt
            ids[row, width - len(item.ids) :] = torch.tensor(item.ids)
            mask[row, width - len(item.ids) :] = 1
        ids, mask = ids.to(self._device), mask.to(self._device)
        with torch.inference_mode():
            whole = self._model.generate(ids, attention_mask=mask, max_new_tokens=num_tokens, min_new_tokens=num_tokens)
            whole[:, -1].tolist()  # waits for the device

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        del self._model
        release()
