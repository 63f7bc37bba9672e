"""Stream an answer of each model that an arena serves, with the OpenAI client.

`python examples/openai_client.py [URL of a controller or worker]`
"""

import sys

from openai import OpenAI

URL = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8100"

client = OpenAI(base_url=f"{URL}/v1", api_key="none")
for model in client.models.list():
    print(f"{model.id}: ", end="")
    question = [{"role": "user", "content": "Tell me a short story about a fox and a lantern."}]
    for chunk in client.chat.completions.create(model=model.id, messages=question, stream=True):  # type: ignore[arg-type]
        print(chunk.choices[0].delta.content or "", end="", flush=True)
    print()
