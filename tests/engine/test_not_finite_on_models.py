"""A token whose embedding is NaN: requests that come upon it fail by name, and no other request notices, with every
option of a request, on the eager runner and on that of devices."""

import random
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from engine.async_engine import AsyncEngine
from engine.config import EngineConfig
from engine.drafts.proposer import Proposer
from engine.errors import NotFinite
from engine.llm import LLM
from engine.llm_outputs import RequestOutput
from engine.runner import load_runner
from engine.runner.build import Builder, build_device_runner, build_runner
from engine.sampling_params import BeamSearch, PoolingParams, SamplingParams
from tests.engine.runner.device.device_runners import torch_machinery
from tests.engine.test_drafts_on_models import (
    DEFAULTS,
    GREEDY,
    PARAMS,
    PROMPTS,
    SAMPLED,
    Remembered,
    TinyModels,
    answers,
    engine,
)

NAN = 303  #: the token; no answer of SOUND comes upon it
ON_DEVICE = partial(build_device_runner, machinery=torch_machinery())
#: A chunk whose NaN is known by the next one only: its pages could be found meanwhile.
SHORT_STEPS = {"max_batched_tokens": 19, "enable_prefix_caching": False}
MORE = [
    replace(GREEDY, prompt_logprobs=1),
    replace(GREEDY, prompt_logprobs=0, max_tokens=0),
    replace(GREEDY, beam=BeamSearch(3, 1.0, False), max_tokens=6),
    replace(SAMPLED, n=2, best_of=3),
]
SOUND = list(zip([*PROMPTS, *PROMPTS[:4]], [*PARAMS, *MORE], strict=True))
#: It comes in the prompt, or it is sampled: alone, under penalties, by several samples.
UNSOUND = [
    *(([*prompt, NAN, *prompt[:3]], params) for prompt, params in SOUND),
    (PROMPTS[0], replace(GREEDY, allowed_token_ids=(NAN,))),
    (PROMPTS[1], replace(SAMPLED, allowed_token_ids=(NAN,), repetition_penalty=1.2, logprobs=1)),
    (PROMPTS[2], replace(SAMPLED, allowed_token_ids=(NAN,), n=2)),
]


@pytest.fixture(scope="module")
def folder(tiny_model: TinyModels, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("not-finite") / "llama"
    shutil.copytree(tiny_model("llama").folder, folder)
    weights = load_file(folder / "model.safetensors")
    weights["model.embed_tokens.weight"][NAN] = float("nan")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.fixture(autouse=True)
def weights_are_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint with NaN is refused; NaN may still come of sums that overflow."""
    monkeypatch.setattr("engine.loader.checkpoint_weights._is_finite", lambda tensor: True)


def ask(llm: LLM, requests: list[tuple[list[int], SamplingParams]]) -> list[RequestOutput]:
    return llm.generate([prompt for prompt, _ in requests], [params for _, params in requests])


def load(folder: Path, build: Builder, proposer: Proposer | None = None, /, **settings: object) -> LLM:
    config = EngineConfig(str(folder), **{**DEFAULTS, **settings})  # type: ignore[arg-type]
    return engine(load_runner(config, build=build), config, proposer)


@pytest.mark.parametrize(
    ("build", "has_drafts", "settings"),
    [
        (build_runner, False, {}),
        (build_runner, True, {"operators": "torch", **SHORT_STEPS, "overlap": True}),
        (ON_DEVICE, False, {"operators": "torch"}),
        (ON_DEVICE, True, {"operators": "torch", "overlap": False, **SHORT_STEPS}),
    ],
    ids=["eager", "eager in flight, drafts", "device", "device in turn, drafts"],
)
def test_only_the_requests_that_come_upon_it_fail(
    folder: Path, build: Builder, has_drafts: bool, settings: dict[str, object]
) -> None:
    wanted = ask(load(folder, build_runner, **{k: v for k, v in settings.items() if k == "operators"}), SOUND)
    assert all(NAN not in answer for answer in answers(wanted))
    llm = load(folder, build, Remembered(answers(wanted)) if has_drafts else None, **settings)
    for _ in range(2):  # the second time their pages have held NaN
        requests = [*SOUND, *UNSOUND]
        order = random.Random(5).sample(range(len(requests)), len(requests))
        found = dict(zip(order, ask(llm, [requests[index] for index in order]), strict=True))
        for got, expected in zip((found[index] for index in range(len(SOUND))), wanted, strict=True):
            assert not got.error
            assert [(o.token_ids, o.finish_reason) for o in got.outputs] == [
                (o.token_ids, o.finish_reason) for o in expected.outputs
            ]
        for got in (found[index] for index in range(len(SOUND), len(requests))):
            assert got.error == "the model's logits for a token of this request are not finite"
            assert {output.finish_reason for output in got.outputs} == {"abort"}
            assert all(output.token_ids in ([], [NAN]) for output in got.outputs)
        llm._core.check_integrity()


async def test_a_stream_ends_with_the_error_after_its_tokens(folder: Path) -> None:
    served = await AsyncEngine.from_config(EngineConfig(str(folder), **DEFAULTS))  # type: ignore[arg-type]
    try:
        stream = served.generate(PROMPTS[0], replace(GREEDY, allowed_token_ids=(NAN,)))
        delta = await anext(stream)
        assert (delta.token_ids, delta.finish_reason) == ((NAN,), None)
        with pytest.raises(NotFinite, match="not finite"):
            await anext(stream)
        with pytest.raises(NotFinite, match="hidden states"):
            await served.embed([*PROMPTS[0], NAN], PoolingParams("mean"))
        assert [d.finish_reason async for d in served.generate(PROMPTS[0], GREEDY)][-1] == "length"
    finally:
        await served.shutdown()
