"""`agon votes label`: what a model says of voted conversations is in the log, and the boards follow it."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from cli.arena.running_arena import arena_client
from cli.errors import CliError
from cli.labels import DEFINITIONS, Labelled, Labeller, label_log, named_in
from cli.votes import app
from tests.cli.formats.test_schemas import record
from tests.controller.support.arena import ADMIN_TOKEN, Arena, eventually, make_settings, running_arena
from tests.controller.support.running import running_store
from tests.controller.votes.journal.support import board, voted
from wire.chat import ChatMessage


class Model:
    """A model behind a transport that gives one answer to everything. `faults`: status codes that come before it."""

    def __init__(self, answer: str, *faults: int) -> None:
        self.answer = answer
        self.faults = list(faults)
        self.asked: list[str] = []

    def labeller(self, **definitions: str) -> Labeller:
        client = httpx.Client(base_url="http://model", transport=httpx.MockTransport(self._handle))
        return Labeller(client, "wise", {**DEFINITIONS, **definitions}, patience_s=5.0)

    def _handle(self, request: httpx.Request) -> httpx.Response:
        if self.faults:
            return httpx.Response(self.faults.pop(0), headers={"Retry-After": "0"})
        self.asked.append(json.loads(request.content)["messages"][1]["content"])
        return httpx.Response(200, json={"choices": [{"message": {"content": self.answer}}]})


@pytest.fixture
async def arena(tmp_path: Path) -> AsyncIterator[Arena]:
    with running_store(tmp_path / "store") as store:
        async with running_arena(make_settings(store.url, "labels")) as arena:
            await arena.add_two()
            yield arena


async def _label(arena: Arena, labeller: Labeller) -> Labelled:
    def run() -> Labelled:
        with arena_client(arena.url, ADMIN_TOKEN) as client:
            return label_log(client, labeller, parallel=2, patience_s=5.0)

    return await asyncio.to_thread(run)


async def test_labels_take_the_place_of_the_rules_and_a_second_run_asks_nothing(arena: Arena) -> None:
    await voted(arena, 3)
    model = Model("The person wants a story.\nCategories: creative, hard.", 503)

    done = await _label(arena, model.labeller(hard="needs several steps"))
    again = await _label(arena, model.labeller(hard="needs several steps"))

    assert (done, again) == (Labelled(labelled=3), Labelled(known=3))
    assert len(model.asked) == 3
    labels = [entry for entry in await arena.vote_log() if entry.get("kind") == "label"]
    assert {entry["by"] for entry in labels} == {"wise"}
    assert {"creative", "hard"} <= set(labels[0]["categories"])

    async def is_on_its_board() -> bool:
        answer = await arena.client.get("/arena/leaderboard", params={"board": "hard"})
        return answer.status_code == 200 and answer.json()["num_votes"] == 3

    await eventually(is_on_its_board)
    assert {"creative", "hard"} <= set((await board(arena.client))["boards"])


async def test_an_answer_that_is_not_understood_leaves_the_rules_categories(arena: Arena) -> None:
    await voted(arena, 1)

    assert await _label(arena, Model("I think it is about code").labeller()) == Labelled(not_understood=1)
    assert all(entry.get("kind") != "label" for entry in await arena.vote_log())


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("code", ("code",)),
        ("Categories: Maths, `code`.", ("code", "maths")),
        ("<think>\ncode?\n</think>\nnone", ()),
        ("This is not code", None),
        ("code, poetry", None),
        ("", None),
    ],
)
def test_only_a_list_of_known_names_is_an_answer(answer: str, expected: tuple[str, ...] | None) -> None:
    assert named_in(answer, DEFINITIONS) == expected


def test_a_label_keeps_what_the_model_was_not_asked_about() -> None:
    said = ChatMessage(role="user", content="1+1?")
    vote = record(conversations={"a": (said,), "b": (said,)}, categories=("code", "short_prompt"))

    label = Model("maths").labeller().label(vote)

    assert label is not None
    assert label.categories == ("short_prompt", "maths")


def test_a_model_that_refuses_ends_the_run_with_its_reason() -> None:
    said = ChatMessage(role="user", content="1+1?")
    with pytest.raises(CliError, match="HTTP 401"):
        Model("none", 401).labeller().label(record(conversations={"a": (said,), "b": (said,)}))


@pytest.mark.parametrize("category", ["hard", "Hard=x", "hard= "])
def test_a_category_has_a_name_and_a_meaning(category: str) -> None:
    with pytest.raises(CliError, match="NAME=MEANING"):
        app(args=["label", "--model", "m", "--category", category], standalone_mode=False)
