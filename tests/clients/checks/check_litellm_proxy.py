"""litellm's proxy in front of the server, with a route for OpenAI's shape and one for Anthropic's; the official clients
speak to the proxy."""

import json
import secrets
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import anthropic
import openai
from harness import HELLO, KEY, MODEL, SCHEMA, TOOL, URL, V1, check, run, started

PROXY_KEY = f"sk-{secrets.token_hex(32)}"
ROUTES = {
    "openai": {"model": f"openai/{MODEL}", "api_base": V1, "api_key": KEY},
    "anthropic": {"model": f"anthropic/{MODEL}", "api_base": URL, "api_key": KEY},
}


def checks(url):
    client = openai.OpenAI(base_url=f"{url}/v1", api_key=PROXY_KEY, max_retries=0, timeout=120)
    messages = anthropic.Anthropic(base_url=url, api_key=PROXY_KEY, max_retries=0, timeout=120)

    @check("its list of models")
    def models():
        assert {model.id for model in client.models.list()} == set(ROUTES)

    for route in ROUTES:

        def chat(route=route, **fields):
            asked = {"model": route, "messages": HELLO, "max_tokens": 200, "temperature": 0, **fields}
            return client.chat.completions.create(**asked)

        @check(f"chat over {route}: whole, stream with usage, second turn")
        def chats(chat=chat):
            whole = chat().choices[0].message
            chunks = list(chat(stream=True, stream_options={"include_usage": True}))
            text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
            assert text == whole.content
            assert chunks[-1].usage.completion_tokens
            assert chat(messages=[*HELLO, whole, {"role": "user", "content": "What is 2 + 3?"}]).choices[0].message

        @check(f"tools over {route}: whole, streamed, the result, the answer")
        def tools(chat=chat):
            asked = {"tools": [TOOL], "tool_choice": "required"}
            reply = chat(**asked).choices[0].message
            streamed = [chunk.choices[0].delta for chunk in chat(stream=True, **asked) if chunk.choices]
            pieces = [call for delta in streamed for call in delta.tool_calls or []]
            arguments = "".join(call.function.arguments or "" for call in pieces if call.index == 0)
            assert json.loads(arguments) == json.loads(reply.tool_calls[0].function.arguments)
            results = [{"role": "tool", "tool_call_id": call.id, "content": "2"} for call in reply.tool_calls]
            chat(messages=[*HELLO, reply, *results], tools=[TOOL])

        @check(f"structured output over {route}")
        def structured(chat=chat):
            form = {"type": "json_schema", "json_schema": {"name": "reply", "schema": SCHEMA, "strict": True}}
            assert set(json.loads(chat(response_format=form).choices[0].message.content)) == {"a"}

        @check(f"responses over {route}")
        def responses(route=route):
            assert client.responses.create(model=route, input="Hello!", max_output_tokens=12).output_text

        @check(f"messages over {route}: whole, stream, a tool and its result")
        def anthropics(route=route):
            asked = {"model": route, "max_tokens": 200, "messages": HELLO, "extra_body": {"temperature": 0}}
            whole = messages.messages.create(**asked)
            with messages.messages.stream(**asked) as stream:
                assert "".join(stream.text_stream) == whole.content[0].text
            forced = {"tools": [{"name": "add", "input_schema": SCHEMA}], "tool_choice": {"type": "any"}}
            reply = messages.messages.create(**asked, **forced)
            uses = [block for block in reply.content if block.type == "tool_use"]
            results = [{"type": "tool_result", "tool_use_id": use.id, "content": "2"} for use in uses]
            said = [*HELLO, {"role": "assistant", "content": reply.content}, {"role": "user", "content": results}]
            messages.messages.create(**{**asked, "messages": said}, tools=forced["tools"])

    @check("embeddings")
    def embeddings():
        found = client.embeddings.create(model="openai", input=["one", "two"]).data
        assert found[0].embedding != found[1].embedding


with tempfile.TemporaryDirectory() as folder:
    config = Path(folder, "config.yaml")
    routes = [{"model_name": name, "litellm_params": sent} for name, sent in ROUTES.items()]
    config.write_text(json.dumps({"model_list": routes}))  # JSON is YAML
    command = [str(Path(sys.executable).with_name("litellm")), "--config", str(config), "--host", "127.0.0.1"]
    environment = {
        "LITELLM_MASTER_KEY": PROXY_KEY,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_TELEMETRY": "False",
    }
    with started([*command, "--port", "{port}"], "/health/liveliness", environment) as proxy:
        checks(proxy)
        run(f"litellm's proxy {version('litellm')}")
