"""OpenVINO GenAI's continuous batching pipeline (paged attention) on an exported model. Prefix caching off.

`weights` among the options names the export: fp16, int8 or int4. INFERENCE_PRECISION_HINT follows the dtype.
"""

from typing import Any

import channel


class OpenVINO:
    def __init__(self, settings: dict[str, Any]) -> None:
        import numpy as np
        import openvino
        import openvino_genai

        self.version = f"openvino-genai {openvino_genai.__version__}"
        self._np, self._openvino, self._genai = np, openvino, openvino_genai
        options = dict(settings["options"])
        folder = settings["model"] + "-openvino-" + options.pop("weights", "fp16")
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.cache_size = settings["cache_gib"]
        scheduler.max_num_seqs = settings["max_running"]
        scheduler.max_num_batched_tokens = 2048
        scheduler.dynamic_split_fuse = True
        scheduler.enable_prefix_caching = False
        properties = {
            "INFERENCE_PRECISION_HINT": {"bfloat16": "bf16", "float32": "f32"}[settings["dtype"]],
            "PERFORMANCE_HINT": "THROUGHPUT",
            "INFERENCE_NUM_THREADS": settings["threads"],
            "NUM_STREAMS": 1,
            **options,
        }
        self._pipeline = openvino_genai.ContinuousBatchingPipeline(folder, scheduler, "CPU", properties)

    def generate(self, prompts: list[channel.Tokens], lengths: list[int]) -> list[channel.Tokens]:
        inputs = [self._openvino.Tensor(self._np.array([ids], dtype=self._np.int64)) for ids in prompts]
        results = self._pipeline.generate(inputs, [self._config(length) for length in lengths])
        return [list(result.m_generation_ids[0]) for result in results]

    def _config(self, length: int) -> Any:
        config = self._genai.GenerationConfig()
        config.max_new_tokens = config.min_new_tokens = length
        config.ignore_eos = True
        config.do_sample = False
        return config


if __name__ == "__main__":
    channel.serve(OpenVINO)
