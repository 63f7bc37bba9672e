"""Adapters as models of a worker: names of their own in the API, one engine; they sleep and wake with their base."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine.adapters.random_adapter import write_random_adapter
from model_worker.app import create_app
from model_worker.config import WorkerSettings
from model_worker.model_spec import AdapterSource, ModelSpec
from tests.engine.checkpoints import save
from tests.model_worker.conftest import client_of
from wire.errors import ApiError

Make = Callable[..., WorkerSettings]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A checkpoint and two adapters."""
    root = tmp_path_factory.mktemp("adapters")
    model = save("llama", root / "model").folder
    for seed in (1, 2):
        write_random_adapter(str(model), root / f"adapter-{seed}", rank=4, seed=seed)
    return model, root / "adapter-1", root / "adapter-2"


@pytest.fixture
def serving(make_settings: Make) -> Callable[..., Any]:
    @asynccontextmanager
    async def serve(**given: Any) -> AsyncIterator[tuple[httpx.AsyncClient, Any]]:
        settings = make_settings(engine="paged", threads=1, kv_cache_bytes=2 << 20, **given)
        app = create_app(settings)
        models = app.state.models
        await models.start()
        try:
            yield client_of("http://127.0.0.1", transport=httpx.ASGITransport(app)), models
        finally:
            await models.shutdown()

    return serve


async def text_of(client: httpx.AsyncClient, model: str) -> str:
    body = {"model": model, "prompt": "Once upon", "max_tokens": 12, "temperature": 0}
    answer = await client.post("/v1/completions", json=body)
    assert answer.status_code == 200, answer.text
    text: str = answer.json()["choices"][0]["text"]
    return text


async def test_adapters_are_models_of_their_own(serving: Callable[..., Any], folders: tuple[Path, Path, Path]) -> None:
    model, first, second = folders
    async with serving(model=(f"raven={model}",), adapter=(f"pirate={first}", f"poet={second}")) as (client, models):
        listed = (await client.get("/v1/models")).json()["data"]
        assert {entry["id"] for entry in listed} == {"raven", "pirate", "poet"}
        texts = [await text_of(client, name) for name in ("raven", "pirate", "poet")]
        assert len(set(texts)) == 3
        cards = {worker.name: worker.card for worker in models.served}
        assert len({card.revision for card in cards.values()}) == 3
        with pytest.raises(ApiError, match="Its adapters pirate, poet need it"):
            await models.remove("raven")
        await models.sleep("raven")
        rows = {row.name: row.residence for row in models.view().models}
        assert rows == {"raven": "asleep", "pirate": "asleep", "poet": "asleep"}
        assert await text_of(client, "poet") == texts[2]  # which wakes its base
        rows = {row.name: row.residence for row in models.view().models}
        assert rows == {"raven": "resident", "pirate": "asleep", "poet": "resident"}


async def test_an_adapter_is_added_and_removed_while_its_base_answers(
    serving: Callable[..., Any], folders: tuple[Path, Path, Path]
) -> None:
    model, first, _ = folders
    async with serving(model=(f"raven={model}",), max_adapters=1) as (client, models):
        await models.add(ModelSpec("pirate", f"raven+{first}"))
        while any(row.residence == "loading" for row in models.view().models):
            await models.wait_until_idle()

            await asyncio.sleep(0.02)
        assert await text_of(client, "pirate") != await text_of(client, "raven")
        with pytest.raises(ApiError, match="serves no model 'finch'"):
            await models.add(ModelSpec("poet", f"finch+{first}"))
        with pytest.raises(ApiError, match="no folder of an adapter"):
            await models.add(ModelSpec("poet", f"raven+{model}"))


def test_a_source_with_a_plus_sign_is_an_adapter_unless_it_is_a_path(tmp_path: Path) -> None:
    assert ModelSpec("a", "raven+/some/folder").adapter == AdapterSource("raven", "/some/folder")
    assert ModelSpec("a", "organisation/model").adapter is None
    (tmp_path / "c++").mkdir()
    assert ModelSpec("a", str(tmp_path / "c++")).adapter is None


@pytest.mark.parametrize(
    "given",
    [
        {"model": ("a=x", "b=y"), "adapter": ("c=z",)},
        {"model": ("a=x",), "adapter": ("folder",)},
        {"model": ("a=x",), "adapter": ("c=z",), "engine": "echo"},
    ],
)
def test_adapters_that_make_no_sense_are_refused(make_settings: Make, given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="adapter"):
        make_settings(**{"engine": "paged", **given})
