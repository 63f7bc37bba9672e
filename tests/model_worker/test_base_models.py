"""A model without a chat template: known before it is loaded, for completions only, or asked in plain text."""

from pathlib import Path

import pytest

from model_worker.config import WorkerSettings
from model_worker.engines import describe_model
from tests.model_worker.served_model import served
from tests.model_worker.thinking_model import END, write_sayings
from wire.workers import ChatForm

SAYING = [":", "h", "i", "\n", "U", "s", "e", "r", ":"]  #: it speaks for the user, too, and never ends
CHAT = {"model": "m", "messages": [{"role": "user", "content": "so?"}], "max_tokens": 40, "temperature": 0}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    return write_sayings(folder, [SAYING], special=(END,), ends=(END,), template=None)


async def test_a_base_model_completes_text_and_refuses_conversations(base: Path) -> None:
    async with served(base) as client:
        [listed] = (await client.get("/v1/models")).json()["data"]
        assert listed["chat"] == "none"
        refused = await client.post("/v1/chat/completions", json=CHAT)
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_request")
        asked = {"model": "m", "prompt": "x:", "max_tokens": 5, "temperature": 0}
        answer = await client.post("/v1/completions", json=asked)
        assert answer.json()["choices"][0]["text"] == "hi\nUs"


async def test_a_base_model_asked_in_plain_text_ends_before_it_speaks_for_the_user(base: Path) -> None:
    async with served(base, plain_chat=True) as client:
        [listed] = (await client.get("/v1/models")).json()["data"]
        assert listed["chat"] == "plain"
        answer = await client.post("/v1/chat/completions", json=CHAT)
        [choice] = answer.json()["choices"]
        assert (choice["message"]["content"], choice["finish_reason"]) == ("hi", "stop")
        messages = [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "so?"},
            {"role": "assistant", "content": " hi"},
            {"role": "user", "content": "and?\n"},
        ]
        prompt = (await client.post("/tokenize", json={"model": "m", "messages": messages})).json()
        text = (await client.post("/detokenize", json={"model": "m", "tokens": prompt["tokens"]})).json()["prompt"]
        assert text == "Be kind.\n\nUser: so?\nAssistant: hi\nUser: and?\nAssistant:"
        # A text to complete is nobody's turn, and has no such end.
        asked = {"model": "m", "prompt": "x:", "max_tokens": 9, "temperature": 0}
        answer = await client.post("/v1/completions", json=asked)
        assert answer.json()["choices"][0]["text"] == "hi\nUser:h"


@pytest.mark.parametrize(("plain_chat", "chat"), [(False, "none"), (True, "plain")])
async def test_it_is_known_from_the_files_alone(base: Path, plain_chat: bool, chat: ChatForm) -> None:
    description = await describe_model(WorkerSettings(model=f"m={base}", threads=1, plain_chat=plain_chat))
    assert description.card.chat == chat
