"""Answers of a random-weight model under JSON schemas, judged by the jsonschema package."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import jsonschema

from engine.errors import InvalidRequest
from engine.llm import LLM
from engine.sampling_params import Constraint, SamplingParams

MOST_TOKENS = 180
#: Texts that end strings and containers are made likelier, since a random model would write long ones: the mask still
#: decides where they may stand.
_CLOSING = ('"', "}", "]", "0")


@dataclass
class Verdicts:
    """What became of each schema."""

    num_refused: Counter[str] = field(default_factory=Counter)  #: by the reason
    num_valid: int = 0
    num_cut: int = 0  #: no answer ended before MOST_TOKENS
    invalid: list[tuple[Any, str]] = field(default_factory=list)


def judge(llm: LLM, schemas: Iterable[Any], *, most: int | None = None) -> Verdicts:
    """Three seeds for each schema, at temperature 1; at most `most` schemas that compile."""
    verdicts = Verdicts()
    accepted: list[Any] = []
    for schema in schemas:
        if most is not None and len(accepted) == most:
            break
        try:
            llm.generate([[5]], _params(llm, schema, 0, max_tokens=1))
            accepted.append(schema)
        except InvalidRequest as error:
            verdicts.num_refused[str(error)] += 1
    params = [_params(llm, schema, seed) for schema in accepted for seed in range(3)]
    outputs = [result.outputs[0] for result in llm.generate([[65 + i % 26, 7] for i in range(len(params))], params)]
    for index, schema in enumerate(accepted):
        ended = [output for output in outputs[3 * index : 3 * index + 3] if output.finish_reason == "stop"]
        verdicts.num_cut += not ended
        wrong = [output.text for output in ended if not _is_valid(output.text, schema)]
        verdicts.invalid += [(schema, text) for text in wrong]
        verdicts.num_valid += bool(ended) and not wrong
    return verdicts


def _params(llm: LLM, schema: Any, seed: int, max_tokens: int = MOST_TOKENS) -> SamplingParams:
    closing = {llm.tokenizer.encode(text)[0]: 6.0 for text in _CLOSING}
    return SamplingParams(
        max_tokens=max_tokens,
        seed=seed,
        logit_bias=closing,
        stop_token_ids=(300,),
        constraint=Constraint("json_schema", json.dumps(schema)),
    )


def _is_valid(text: str, schema: Any) -> bool:
    try:
        value = json.loads(text)
    except ValueError:
        return False
    return bool(jsonschema.Draft202012Validator(schema).is_valid(value))
