"""Requests that schemathesis makes from a generated OpenAPI document: valid ones, and ones that break the schema."""

import json
import warnings
from dataclasses import dataclass
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import HypothesisException
from schemathesis.core.errors import SchemathesisError
from schemathesis.generation import GenerationMode

_PER_OPERATION = 2_000  #: more take no new shapes
_ONLY_GENERATE = settings(
    database=None, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck), derandomize=False
)


@dataclass(frozen=True)
class Generated:
    """One request of schemathesis: its operation in the document, and what it drew."""

    method: str
    path: str
    parameters: dict[str, Any]  #: of the path
    query: dict[str, Any]
    headers: dict[str, Any]
    body: bytes | None


def generated(document: dict[str, Any], number: int, seed_: int) -> list[Generated]:
    """About `number` requests to all operations of `document`; the same ones for the same arguments."""
    schema = schemathesis.openapi.from_dict(document)
    operations: list[Any] = [result.ok() for result in schema.get_all_operations()]  # type: ignore[union-attr]
    wanted = [each for each in operations if each.body or each.query]  # others have only a path: mutations.py
    share = min(_PER_OPERATION, max(1, number // (2 * len(wanted))))
    found = []
    for operation in wanted:
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            found += _drawn(operation, mode, share, seed_)
    return found


def _drawn(operation: Any, mode: GenerationMode, number: int, seed_: int) -> list[Generated]:
    found: list[Generated] = []

    def note(case: Any) -> None:
        found.append(
            Generated(
                operation.method.upper(),
                operation.path,
                dict(case.path_parameters or {}),
                dict(case.query or {}),
                dict(case.headers or {}),
                _body(case.body),
            )
        )

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            strategy = operation.as_strategy(generation_mode=mode)
            seed(seed_)(settings(_ONLY_GENERATE, max_examples=number)(given(case=strategy)(note)))()
    except (HypothesisException, SchemathesisError):
        pass  # nothing breaks this schema, or its body is no JSON
    return found[:number]


def _body(body: Any) -> bytes | None:
    if type(body).__name__ == "NotSet":
        return None
    if isinstance(body, bytes):
        return body
    try:
        return json.dumps(body).encode()
    except TypeError:
        return repr(body).encode()
