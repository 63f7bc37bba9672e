"""Agon through its library interface, as a user would call it, without prefix caching: rounds repeat prompts."""

from typing import Any

import channel

from engine import LLM, SamplingParams


class Agon:
    def __init__(self, settings: dict[str, Any]) -> None:
        from importlib.metadata import version

        self._llm = LLM(
            settings["model"],
            dtype=settings["dtype"],
            device="cpu",
            enable_prefix_caching=False,
            max_running=settings["max_running"],
            max_model_len=settings["max_model_len"],
            kv_cache_bytes=settings["cache_gib"] * 2**30,
            num_threads=settings["threads"],
            **settings["options"],
        )
        self.version = f"{version('agon')}, operators {self._llm.info.operators}"

    def generate(self, prompts: list[channel.Tokens], lengths: list[int]) -> list[channel.Tokens]:
        params = [SamplingParams(temperature=0.0, max_tokens=length, ignore_eos=True) for length in lengths]
        return [list(output.outputs[0].token_ids) for output in self._llm.generate(prompts, params)]


if __name__ == "__main__":
    channel.serve(Agon)
