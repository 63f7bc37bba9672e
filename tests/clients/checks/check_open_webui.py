"""Open WebUI, started with this server as its only connection: sign-up, models, chat, tools, titles, a file."""

import json
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import requests
from harness import HELLO, KEY, MODEL, TOOL, V1, check, run, started


def checks(url):
    session = requests.Session()

    def sent(path, **fields):
        answer = session.post(f"{url}{path}", timeout=120, **fields)
        assert answer.ok, f"{path}: {answer.status_code} {answer.text[:300]}"
        return answer

    def chat(**fields):
        asked = {"model": MODEL, "messages": HELLO, "max_tokens": 100, "temperature": 0, **fields}
        return sent("/api/chat/completions", json=asked)

    @check("sign-up, its check of the connection, its list of models")
    def models():
        person = {"name": "Somebody", "email": "somebody@example.org", "password": "a long password"}
        session.headers["Authorization"] = f"Bearer {sent('/api/v1/auths/signup', json=person).json()['token']}"
        verified = sent("/openai/verify", json={"url": V1, "key": KEY}).json()
        assert MODEL in [model["id"] for model in verified["data"]]
        shown = session.get(f"{url}/api/models", timeout=120).json()["data"]
        assert MODEL in [model["id"] for model in shown]

    @check("chat: whole, stream, second turn")
    def chats():
        whole = chat().json()["choices"][0]["message"]
        events = [line[6:] for line in chat(stream=True).text.splitlines() if line.startswith("data: ")]
        assert events[-1] == "[DONE]"
        choices = [choice for event in events[:-1] for choice in json.loads(event)["choices"]]
        assert "".join(choice["delta"].get("content") or "" for choice in choices) == whole["content"]
        assert chat(messages=[*HELLO, whole, {"role": "user", "content": "What is 2 + 3?"}]).json()["choices"]

    @check("chat: a tool and its result")
    def tools():
        reply = chat(tools=[TOOL], tool_choice="required").json()["choices"][0]["message"]
        results = [{"role": "tool", "tool_call_id": call["id"], "content": "2"} for call in reply["tool_calls"]]
        assert chat(messages=[*HELLO, reply, *results], tools=[TOOL]).json()["choices"]

    @check("its own requests for a title and for tags of a chat")
    def tasks():
        for task in ("title", "tags"):
            asked = {"model": MODEL, "messages": [*HELLO, {"role": "assistant", "content": "Hi!"}]}
            assert sent(f"/api/v1/tasks/{task}/completions", json=asked).json()["choices"]

    @check("a file is cut, embedded and found")
    def files():
        words = {"file": ("sums.txt", b"Two and three are five.\n", "text/plain")}
        file = sent("/api/v1/files/?process_in_background=false", files=words).json()
        asked = {"collection_names": [f"file-{file['id']}"], "query": "What are two and three?", "k": 1}
        found = sent("/api/v1/retrieval/query/collection", json=asked).json()
        assert "five" in found["documents"][0][0], found


with tempfile.TemporaryDirectory() as folder:
    connection = {"OPENAI_API_BASE_URL": V1, "OPENAI_API_KEY": KEY, "ENABLE_OLLAMA_API": "false"}
    embedding = {"RAG_EMBEDDING_ENGINE": "openai", "RAG_EMBEDDING_MODEL": MODEL}
    embedding |= {"RAG_OPENAI_API_BASE_URL": V1, "RAG_OPENAI_API_KEY": KEY}
    quiet = {"OFFLINE_MODE": "true", "ANONYMIZED_TELEMETRY": "false", "DO_NOT_TRACK": "true"}
    own = {
        "DATA_DIR": folder,
        "WEBUI_SECRET_KEY": "of this check alone, 32 bytes long",
        "CORS_ALLOW_ORIGIN": "http://localhost",
    }
    command = [str(Path(sys.executable).with_name("open-webui")), "serve", "--host", "127.0.0.1", "--port", "{port}"]
    with started(command, "/health", {**connection, **embedding, **quiet, **own}) as page:
        checks(page)
        run(f"Open WebUI {version('open-webui')}")
