"""Answers under JSON schemas, judged by the jsonschema package."""

import json
import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jsonschema

from engine.errors import InvalidRequest
from engine.llm import LLM
from engine.sampling_params import Constraint, SamplingParams

#: Texts that end strings and containers are made likelier, since a random model would write long ones: the mask still
#: decides where they may stand.
_CLOSING = ('"', "}", "]", "0")


@dataclass
class Verdicts:
    """What became of each schema."""

    num_refused: Counter[str] = field(default_factory=Counter)  #: by the reason
    num_valid: int = 0  #: schemas of which all answers are whole and valid
    num_answers: int = 0
    invalid: list[tuple[Any, int, str]] = field(default_factory=list)  #: schema, max_tokens, an answer cut or invalid


def judge(
    llm: LLM, schemas: Iterable[Any], *, most: int | None = None, per_schema: int = 3, is_random: bool = True
) -> Verdicts:
    """So many answers to each schema, at temperature 1; each may have as few tokens as the shortest answer, a few
    more, or 300; at most `most` schemas that compile. is_random: the model's weights are."""
    verdicts = Verdicts()
    accepted: list[tuple[Any, int]] = []
    chance = random.Random(5)
    for schema in schemas:
        if most is not None and len(accepted) == most:
            break
        try:
            closing = llm._core.compiler.compile(_constraint(schema)).closing
        except InvalidRequest as error:
            verdicts.num_refused[str(error)] += 1
            continue
        assert closing is not None, schema
        accepted.append((schema, len(closing.shortest)))
    bias = {llm.tokenizer.encode(text)[0]: 6.0 for text in _CLOSING} if is_random else {}
    asked = [
        (
            schema,
            _params(schema, seed, chance.choice((least, chance.randint(least, least + 20), max(least, 300))), bias),
        )
        for schema, least in accepted
        for seed in range(per_schema)
    ]
    prompts = [[65 + i % 26, 7] if is_random else llm.tokenizer.encode("Tell me about it.") for i in range(len(asked))]
    outputs = [result.outputs[0] for result in llm.generate(prompts, [params for _, params in asked])]
    verdicts.num_answers = len(outputs)
    for (schema, params), output in zip(asked, outputs, strict=True):
        if output.finish_reason != "stop" or not _is_valid(output.text, schema):
            verdicts.invalid.append((schema, params.max_tokens, output.text))
    verdicts.num_valid = len(accepted) - len({json.dumps(schema) for schema, *_ in verdicts.invalid})
    return verdicts


def changed_by_closing(
    closing: LLM, plain: LLM, schemas: Iterable[Any], prompts: Iterable[str]
) -> tuple[int, list[str]]:
    """How many greedy answers of `plain`, whose answers are not closed, end by themselves within 100 tokens, and those
    of them that `closing` gives otherwise."""
    schemas, prompts = list(schemas), list(prompts)
    params = [SamplingParams(temperature=0, max_tokens=100, constraint=_constraint(schema)) for schema in schemas]
    asked = [prompt for prompt in prompts for _ in schemas]
    ended, closed = ([r.outputs[0] for r in llm.generate(asked, params * len(prompts))] for llm in (plain, closing))
    pairs = [(a, b) for a, b in zip(ended, closed, strict=True) if a.finish_reason == "stop"]
    return len(pairs), [b.text for a, b in pairs if a.token_ids != b.token_ids]


def _constraint(schema: Any) -> Constraint:
    return Constraint("json_schema", json.dumps(schema))


def _params(schema: Any, seed: int, max_tokens: int, bias: Mapping[int, float]) -> SamplingParams:
    return SamplingParams(
        max_tokens=max_tokens, seed=seed, logit_bias=bias, stop_token_ids=(300,), constraint=_constraint(schema)
    )


def _is_valid(text: str, schema: Any) -> bool:
    try:
        value = json.loads(text)
    except ValueError:
        return False
    return bool(jsonschema.Draft202012Validator(schema).is_valid(value))
