"""llama.cpp through the low-level calls of llama-cpp-python, with continuous batching as its own server does it.

Every step decodes one token of each running request and, while the batch has room, whole prompts of waiting ones.
`weights` among the options names the GGUF file: f16, bf16 or q8_0.
"""

from collections import deque
from typing import Any

import channel

BATCH_TOKENS = 2048


class LlamaCpp:
    def __init__(self, settings: dict[str, Any]) -> None:
        import llama_cpp
        import numpy

        self.version = f"llama-cpp-python {llama_cpp.__version__}"
        self._lib, self._numpy = llama_cpp, numpy
        llama_cpp.llama_backend_init()
        self._log = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self._log, None)
        path = f"{settings['model']}-{settings['options']['weights']}.gguf"
        model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
        if not model:
            raise SystemExit(f"llama.cpp cannot load {path}")
        self._num_slots = settings["max_running"]
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = settings["max_model_len"] * self._num_slots
        params.n_seq_max = self._num_slots
        params.n_batch = BATCH_TOKENS
        params.n_threads = params.n_threads_batch = settings["threads"]
        params.kv_unified = False
        self._context = llama_cpp.llama_init_from_model(model, params)
        self._vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._batch = llama_cpp.llama_batch_init(BATCH_TOKENS, 0, 1)

    def generate(self, prompts: list[channel.Tokens], lengths: list[int]) -> list[channel.Tokens]:
        self._lib.llama_memory_clear(self._memory, False)
        answers: list[channel.Tokens] = [[] for _ in prompts]
        waiting = deque(range(len(prompts)))
        free = list(range(self._num_slots))
        running: dict[int, int] = {}  # request by slot
        while waiting or running:
            self._batch.n_tokens = 0
            drawing: list[tuple[int, int]] = []  # slot, row of its logits
            for slot, request in running.items():
                answer = answers[request]
                row = self._append(answer[-1], len(prompts[request]) + len(answer) - 1, slot, draws=True)
                drawing.append((slot, row))
            while waiting and free and self._batch.n_tokens + len(prompts[waiting[0]]) <= BATCH_TOKENS:
                request, slot = waiting.popleft(), free.pop()
                running[slot] = request
                last = len(prompts[request]) - 1
                for position, token in enumerate(prompts[request]):
                    row = self._append(token, position, slot, draws=position == last)
                drawing.append((slot, row))
            if status := self._lib.llama_decode(self._context, self._batch):
                raise RuntimeError(f"llama_decode gave {status}")
            for slot, row in drawing:
                request = running[slot]
                answers[request].append(self._likeliest(row))
                if len(answers[request]) == lengths[request]:
                    del running[slot]
                    free.append(slot)
                    self._lib.llama_memory_seq_rm(self._memory, slot, -1, -1)
        return answers

    def _append(self, token: int, position: int, slot: int, *, draws: bool) -> int:
        batch, row = self._batch, self._batch.n_tokens
        batch.token[row] = token
        batch.pos[row] = position
        batch.n_seq_id[row] = 1
        batch.seq_id[row][0] = slot
        batch.logits[row] = draws
        batch.n_tokens = row + 1
        return row

    def _likeliest(self, row: int) -> int:
        pointer = self._lib.llama_get_logits_ith(self._context, row)
        return int(self._numpy.ctypeslib.as_array(pointer, shape=(self._vocabulary,)).argmax())


if __name__ == "__main__":
    channel.serve(LlamaCpp)
