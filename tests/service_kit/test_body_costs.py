"""What the largest bodies cost that clients may send: parsing and validation hold the interpreter, also in a thread, so
every other request of the service waits for them."""

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from docs import api_page
from wire.admin import CreateNotice, DrainWorker, SetModel, SetTerms
from wire.anthropic.requests import CountTokensRequest, MessagesRequest
from wire.battles import CastVote, CreateBattle, CreateTurn
from wire.captcha import CheckVisitor
from wire.chats import AnswerAgain, AskChat, CreateChat
from wire.embeddings import EmbedRequest
from wire.errors import ApiError
from wire.feedback import FeedbackRecord, GiveFeedback
from wire.invitations import CreateInvitation
from wire.joining import JoinCheck
from wire.judgements import CastJudgement, Judgement
from wire.labels import LabelRecord
from wire.model_cards import BoardCard
from wire.notices import AcceptTerms
from wire.openai.embeddings import EmbeddingRequest
from wire.openai.requests import ChatCompletionRequest, CompletionRequest
from wire.openai.tokens import DetokenizeRequest, TokenizeRequest
from wire.responses.requests import ResponsesRequest
from wire.served_models import AddModel, AdminActOnModel, AdminAddModel, NamedModel
from wire.strict_json import parse_model
from wire.votes import VoteRecord
from wire.workers import GenerateRequest, HeartbeatRequest, RegisterRequest, TokensRequest

NUM_BYTES = 1_000_000  #: the limit of the controller; the worker's is 5 % larger
FACTOR = 8.0  #: over decoding a list of numbers; bad items in a list cost some 100 times as much without the limits

#: Lists of every model, and how the body goes on after them.
LISTS: dict[str, tuple[type[BaseModel], str, str]] = {
    "messages": (ChatCompletionRequest, '{"model":"m","messages":[', "]}"),
    "parts": (ChatCompletionRequest, '{"model":"m","messages":[{"role":"user","content":[', "]}]}"),
    "stop": (ChatCompletionRequest, '{"model":"m","messages":[{"role":"user","content":"a"}],"stop":[', "]}"),
    "stop ids": (CompletionRequest, '{"model":"m","prompt":"a","stop_token_ids":[', "]}"),
    "prompt": (CompletionRequest, '{"model":"m","prompt":[', "]}"),
    "resumed": (GenerateRequest, '{"request_id":"r","prompt":"a","resume_token_ids":[', "]}"),
    "generated": (GenerateRequest, '{"request_id":"r","messages":[', "]}"),
    "sampling": (GenerateRequest, '{"request_id":"r","prompt":"a","sampling":{"stop":[', "]}}"),
    "models": (CreateBattle, '{"mode":"named","models":[', "]}"),
    "reasons": (CastVote, '{"outcome":"a","reasons":[', "]}"),
    "decided": (GiveFeedback, '{"reasons":[', "]}"),
    "fed back": (FeedbackRecord, '{"kind":"feedback","reasons":[', "]}"),
    "labelled": (LabelRecord, '{"kind":"label","categories":[', "]}"),
    "pages": (HeartbeatRequest, '{"epoch":1,"state":"ready","load":{"pages":[', "]}}"),
    "voted": (VoteRecord, '{"conversations":{"a":[', "]}}"),
    "card": (RegisterRequest, '{"card":[', "]}"),
    "judged": (Judgement, '{"kind":"judgement","battle_ids":[', "]}"),
    "tongues": (BoardCard, '{"model":"m","languages":[', "]}"),
    "starters": (BoardCard, '{"model":"m","starter_prompts":[', "]}"),
    "flagged": (CastJudgement, '{"battle_ids":[', "]}"),
    "tools": (ChatCompletionRequest, '{"model":"m","messages":[{"role":"user","content":"a"}],"tools":[', "]}"),
    "items": (ResponsesRequest, '{"model":"m","input":[', "]}"),
    "tools of responses": (ResponsesRequest, '{"model":"m","input":"a","tools":[', "]}"),
    "blocks": (MessagesRequest, '{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[', "]}]}"),
    "counted": (CountTokensRequest, '{"model":"m","messages":[', "]}"),
    "embedded": (EmbeddingRequest, '{"model":"m","input":[', "]}"),
    "inputs": (EmbedRequest, '{"request_id":"r","inputs":[', "]}"),
    "token ids": (TokensRequest, '{"token_ids":[', "]}"),
    "tokenized": (TokenizeRequest, '{"model":"m","messages":[', "]}"),
    "detokenized": (DetokenizeRequest, '{"model":"m","tokens":[', "]}"),
}
ITEMS = (
    "0",
    "-1",
    '""',
    "{}",
    '{"role":"user","content":""}',
    '{"type":"text","text":""}',
    '{"role":"x","content":[{}]}',
)
OBJECTS: dict[str, tuple[type[BaseModel], str, str]] = {
    "body": (ChatCompletionRequest, "{", "}"),
    "message": (ChatCompletionRequest, '{"model":"m","messages":[{', "}]}"),
    "metadata": (ChatCompletionRequest, '{"model":"m","messages":[{"role":"user","content":"a"}],"metadata":{', "}}"),
    "logit_bias": (CompletionRequest, '{"model":"m","prompt":"a","logit_bias":{', "}}"),
    "turn": (CreateTurn, "{", "}"),
    "chat": (CreateChat, "{", "}"),
    "chat turn": (AskChat, "{", "}"),
    "chat again": (AnswerAgain, "{", "}"),
    "invitation": (CreateInvitation, "{", "}"),
    "board card": (BoardCard, "{", "}"),
    "check": (CheckVisitor, "{", "}"),
    "switch": (SetModel, "{", "}"),
    "drain": (DrainWorker, "{", "}"),
    "join": (JoinCheck, "{", "}"),
    "notice": (CreateNotice, "{", "}"),
    "terms": (SetTerms, "{", "}"),
    "model": (AddModel, "{", "}"),
    "named model": (NamedModel, "{", "}"),
    "served model": (AdminAddModel, "{", "}"),
    "act on a model": (AdminActOnModel, "{", "}"),
    "acceptance": (AcceptTerms, "{", "}"),
    "thumbs": (GiveFeedback, '{"thumbs":{', "}}"),
    "recorded thumbs": (FeedbackRecord, '{"kind":"feedback","thumbs":{', "}}"),
}
TEXTS = {"letters": "x", "escapes": "\\u00e9", "NUL": "\\u0000", "quotes": '\\"', "emoji": "\\ud83d\\ude00"}


def bodies() -> Iterator[tuple[str, type[BaseModel], bytes]]:
    """A name, the model that the body is sent as, and the body."""
    for name, (model, head, tail) in LISTS.items():
        for item in ITEMS:
            yield f"{name} of {item}", model, filled(head, item, tail)
    for name, (model, head, tail) in OBJECTS.items():
        keys = ",".join(f'"k{number:06}":0' for number in range(NUM_BYTES // 12))
        yield f"keys in {name}", model, (head + keys + tail).encode()
    for name, piece in TEXTS.items():
        text = piece * (NUM_BYTES // len(piece))
        yield f"prompt of {name}", CompletionRequest, f'{{"model":"m","prompt":"{text}"}}'.encode()
        yield f"model of {name}", CompletionRequest, f'{{"model":"{text}","prompt":"a"}}'.encode()
        yield f"key of {name}", CompletionRequest, f'{{"{text}":0}}'.encode()
    yield "string without end", CreateTurn, b'{"content":"' + b'\\"' * (NUM_BYTES // 2)
    yield "digits", CompletionRequest, b'{"model":' + b"9" * NUM_BYTES + b"}"
    yield "decimals", CompletionRequest, b'{"temperature":0.' + b"9" * NUM_BYTES + b"}"
    yield "floats", CompletionRequest, filled('{"x":[', "1e1", "]}")
    yield "brackets", CompletionRequest, b"[" * NUM_BYTES
    yield "empty lists", CompletionRequest, b"[]," * (NUM_BYTES // 3)
    yield "brackets that do not match", CompletionRequest, b"[}" * (NUM_BYTES // 2)


def filled(head: str, item: str, tail: str) -> bytes:
    return (head + ",".join([item] * (NUM_BYTES // (len(item) + 1))) + tail).encode()


BODIES = {name: (model, body) for name, model, body in bodies()}


def cpu_s(work: Callable[[], Any]) -> float:
    """Processor time of this thread: what other processes of the machine do does not count."""
    started = time.thread_time()
    with contextlib.suppress(ApiError):
        work()
    return time.thread_time() - started


@pytest.fixture(scope="module")
def allowed_s() -> float:
    numbers = filled("[", "1", "]")
    return FACTOR * min(cpu_s(lambda: json.loads(numbers)) for _ in range(5))


@pytest.mark.parametrize("name", BODIES)
def test_no_body_costs_much_more_than_a_list_of_numbers(name: str, allowed_s: float) -> None:
    model, body = BODIES[name]
    assert any(cpu_s(lambda: parse_model(model, body)) < allowed_s for _ in range(3))


def test_the_table_has_the_body_of_every_route() -> None:
    bodies = [
        schema["$ref"].rpartition("/")[2]
        for document in api_page.documents()
        for operations in document["paths"].values()
        for operation in operations.values()
        for media in operation.get("requestBody", {}).get("content", {}).values()
        for schema in media["schema"].get("anyOf", [media["schema"]])
    ]
    assert {model.__name__ for model, _ in BODIES.values()} == set(bodies)
