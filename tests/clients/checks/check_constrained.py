"""outlines through its backends for OpenAI, vLLM and SGLang, guidance through those for OpenAI and vLLM."""

import re
from importlib.metadata import version
from typing import Literal

import guidance
import openai
import outlines
from guidance.models.experimental import VLLMModel
from harness import KEY, MODEL, V1, check, run
from outlines.types import CFG, Regex
from reply import Reply

client = openai.OpenAI(base_url=V1, api_key=KEY, max_retries=0, timeout=120)
OUTLINES, GUIDANCE = f"outlines {version('outlines')}", f"guidance {version('guidance')}"
SENT = {"max_tokens": 100, "temperature": 0}


@check(f"{OUTLINES}, openai: text, stream, two answers, a model's JSON, any JSON")
def outlines_openai():
    model = outlines.from_openai(client, MODEL)
    whole = model("Hello!", **SENT)
    assert "".join(model.stream("Hello!", **SENT)) == whole
    assert len(model("Hello!", n=2, **SENT)) == 2
    Reply.model_validate_json(model("Hello!", Reply, **SENT))
    assert model("Hello!", dict, **SENT).startswith("{")


for name, make in (("vllm", outlines.from_vllm), ("sglang", outlines.from_sglang)):

    @check(f"{OUTLINES}, {name}: text, stream, a model's JSON, choice, type, regular expression, grammar")
    def outlines_server(name=name, make=make):
        model = make(client, MODEL)
        whole = model("Hello!", **SENT)
        assert "".join(model.stream("Hello!", **SENT)) == whole
        Reply.model_validate_json(model("Hello!", Reply, **SENT))
        assert model("Hello!", Literal["yes", "no"], **SENT) in ("yes", "no")
        assert int(model("Hello!", int, **{**SENT, "max_tokens": 8})) is not None
        assert re.fullmatch("[0-9]{3}", model("Hello!", Regex("[0-9]{3}"), **SENT))
        grammar = 'start: "yes" | "no"' if name == "vllm" else 'root ::= "yes" | "no"'
        assert model("Hello!", CFG(grammar), **SENT) in ("yes", "no")


def said(model, expression):
    """What the expression named x captures in the answer."""
    with guidance.user():
        model += "Hello!"
    with guidance.assistant():
        model += expression
    return model["x"]


def guided(kind):
    return kind(MODEL, api_key=KEY, base_url=V1, echo=False)


@check(f"{GUIDANCE}, openai: gen, json")
def guidance_openai():
    assert said(guided(guidance.models.OpenAI), guidance.gen("x", max_tokens=12))
    Reply.model_validate_json(said(guided(guidance.models.OpenAI), guidance.json("x", schema=Reply)))


@check(f"{GUIDANCE}, vllm: gen, regular expression, select, json")
def guidance_vllm():
    assert said(guided(VLLMModel), guidance.gen("x", max_tokens=12))
    assert re.fullmatch("[0-9]{3}", said(guided(VLLMModel), guidance.gen("x", regex="[0-9]{3}")))
    assert said(guided(VLLMModel), guidance.select(["yes", "no"], name="x")) in ("yes", "no")
    Reply.model_validate_json(said(guided(VLLMModel), guidance.json("x", schema=Reply)))


run("constrained")
