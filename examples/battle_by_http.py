"""A battle without a browser: two hidden models answer, a vote reveals them.

`python examples/battle_by_http.py [URL of a controller]`
"""

import sys

import httpx

URL = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8100"

with httpx.Client(base_url=URL, timeout=60) as arena:
    battle = arena.post("/arena/battles", json={"mode": "anonymous"}).raise_for_status().json()
    turn = {"content": "What is the capital of France?"}
    with arena.stream("POST", f"/arena/battles/{battle['id']}/turns", json=turn) as events:
        for _ in events.iter_lines():
            pass  # delta, finished and turn_finished events; this example only reads the result
    for side in ("a", "b"):
        answers = arena.get(f"/arena/battles/{battle['id']}").json()["turns"][-1]
        print(f"{side}: {answers[side]['text']}")
    vote = arena.post(f"/arena/battles/{battle['id']}/vote", json={"outcome": "tie"}).raise_for_status().json()
    print(f"a was {vote['models']['a']}, b was {vote['models']['b']}")
