"""`python -m tests.two_hosts.visitor URL battle | complete MODEL IDS`: a visitor on one of the hosts. Prints JSON.

It trusts AGON_CA_FILE.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import httpx

from service_kit.trust import trust
from wire.sse import SseDecoder


def main() -> None:
    """Ask, and print what came."""
    url, what, *rest = sys.argv[1:]
    ca_file = os.environ.get("AGON_CA_FILE")
    with httpx.Client(base_url=url, verify=trust(Path(ca_file) if ca_file else None), timeout=60) as client:
        print(json.dumps(battle(client) if what == "battle" else complete(client, *rest)))


def battle(client: httpx.Client) -> Any:
    """Models and answers of one battle, voted on."""
    battle_id = client.post("/arena/battles", json={"mode": "anonymous"}).raise_for_status().json()["id"]
    decoder, texts = SseDecoder(), {"a": "", "b": ""}
    body = {"content": "one two three four"}
    with client.stream("POST", f"/arena/battles/{battle_id}/turns", json=body) as answer:
        answer.raise_for_status()
        for chunk in answer.iter_raw():
            for event in decoder.feed(chunk):
                data = json.loads(event.data)
                if event.event == "delta":
                    texts[data["side"]] += data["text"]
                elif event.event == "turn_finished":
                    assert data["state"] == "answered", data
    voted = client.post(f"/arena/battles/{battle_id}/vote", json={"outcome": "a"}).raise_for_status().json()
    return {"texts": texts, **voted}


def complete(client: httpx.Client, model: str, ids: str) -> Any:
    """Token ids of a greedy completion."""
    body = {
        "model": model,
        "prompt": json.loads(ids),
        "max_tokens": 16,
        "temperature": 0,
        "ignore_eos": True,
        "return_token_ids": True,
    }
    [choice] = client.post("/v1/completions", json=body).raise_for_status().json()["choices"]
    return choice["token_ids"]


if __name__ == "__main__":
    main()
