"""`torchrun ... torchrun_program.py FOLDER PROMPTS`: what a user's program looks like; prints tokens as JSON."""

import json
import sys

from engine.llm import LLM
from engine.sampling_params import SamplingParams

if __name__ == "__main__":
    folder, prompts = sys.argv[1], json.loads(sys.argv[2])
    with LLM(
        folder, tensor_parallel=2, page_tokens=4, kv_cache_bytes=20_000, max_batched_tokens=7, num_threads=1
    ) as llm:
        results = llm.generate(prompts, SamplingParams(temperature=0.0, max_tokens=16, ignore_eos=True))
        assert llm.stats().preemptions_total > 0
        print(json.dumps([result.outputs[0].token_ids for result in results]))
