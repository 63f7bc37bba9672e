"""litellm, with its provider for OpenAI-compatible servers."""

from importlib.metadata import version

import litellm
from harness import KEY, MODEL, URL, V1, check, run

SENT = {
    "model": f"openai/{MODEL}",
    "api_base": V1,
    "api_key": KEY,
    "max_tokens": 12,
    "temperature": 0,
    "num_retries": 0,
}
HELLO = [{"role": "user", "content": "Hello!"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "boolean"}},
            "required": ["a"],
            "additionalProperties": False,
        },
    },
}


@check("second turn with its own reply included")
def second_turn():
    reply = litellm.completion(messages=HELLO, **SENT).choices[0].message
    asked = {"role": "user", "content": "What is 2 + 3?"}
    for said in (reply, reply.model_dump()):
        assert litellm.completion(messages=[*HELLO, said, asked], **SENT).choices[0].message.content is not None


@check("stream")
def stream():
    whole = litellm.completion(messages=HELLO, **SENT).choices[0].message.content
    assert (
        "".join(c.choices[0].delta.content or "" for c in litellm.completion(messages=HELLO, stream=True, **SENT))
        == whole
    )


@check("tools, with the result in the third turn")
def tools():
    sent = {**SENT, "max_tokens": 200}
    reply = litellm.completion(messages=HELLO, tools=[TOOL], tool_choice="required", **sent).choices[0].message
    result = {"role": "tool", "tool_call_id": reply.tool_calls[0].id, "content": "42"}
    litellm.completion(messages=[*HELLO, reply, result], tools=[TOOL], **sent)


@check("embeddings")
def embeddings():
    sent = {key: SENT[key] for key in ("model", "api_base", "api_key")}
    vectors = [each["embedding"] for each in litellm.embedding(input=["one", "two"], **sent).data]
    assert len(vectors) == 2
    assert vectors[0] != vectors[1]


@check("its provider for Anthropic's shape")
def messages():
    sent = {**SENT, "model": f"anthropic/{MODEL}", "api_base": URL}
    assert litellm.completion(messages=HELLO, **sent).choices[0].message.content


@check("responses")
def responses():
    sent = {"model": SENT["model"], "api_base": V1, "api_key": KEY}
    assert litellm.responses(input="Hello!", max_output_tokens=12, **sent).output


run(f"litellm {version('litellm')}")
