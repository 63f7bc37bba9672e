"""The official openai client: every feature that Agon serves, each reply validated by the client's own models."""

import json

import openai
from harness import KEY, MODEL, V1, check, refusal, run
from pydantic import BaseModel

client = openai.OpenAI(base_url=V1, api_key=KEY, max_retries=0, timeout=120, _strict_response_validation=True)
#: The client's models know neither the null that ends no chunk of a completion nor that of the first token in an echo.
lenient = openai.OpenAI(base_url=V1, api_key=KEY, max_retries=0, timeout=120)
HELLO = [{"role": "user", "content": "Hello!"}]
SUM = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}, "b": {"type": "boolean"}},
            "required": ["a", "b"],
            "additionalProperties": False,
        },
    },
}
FLAT = {"type": "function", "strict": True, **SUM["function"]}


class Reply(BaseModel):
    """What the model is made to answer with."""

    yes: bool
    no: bool


def chat(**fields):
    return client.chat.completions.create(
        **{"model": MODEL, "messages": HELLO, "max_tokens": 12, "temperature": 0, **fields}
    )


def strict(reply):
    """The reply once more through the client's model, in strict mode."""
    type(reply).model_validate(reply.model_dump(), strict=True)
    return reply


@check("models: list, retrieve, 404")
def models():
    assert MODEL in [strict(model).id for model in client.models.list()]
    assert client.models.retrieve(MODEL).id == MODEL
    error = refusal(openai.NotFoundError, lambda: client.models.retrieve("nobody"))
    assert error.code == "model_not_found"


@check("chat: whole, stream, usage")
def chats():
    whole = strict(chat())
    chunks = [strict(chunk) for chunk in chat(stream=True, stream_options={"include_usage": True})]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage.total_tokens == whole.usage.total_tokens


@check("chat: second turn with its own reply, model_dump and object")
def second_turn():
    first = chat().choices[0].message
    for said in (first, first.model_dump()):
        chat(messages=[*HELLO, said, {"role": "user", "content": "What is 2 + 3?"}])


@check("chat: n, streamed and not; seed")
def several():
    whole = strict(chat(n=3, temperature=1, seed=5))
    assert [choice.index for choice in whole.choices] == [0, 1, 2]
    texts = ["", "", ""]
    for chunk in chat(n=3, temperature=1, seed=5, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == [choice.message.content for choice in whole.choices]


@check("chat: logprobs and top_logprobs")
def logprobs():
    listed = strict(chat(logprobs=True, top_logprobs=3)).choices[0].logprobs.content
    assert len(listed) >= 1
    assert all(len(token.top_logprobs) == 3 and token.logprob <= 0 for token in listed)
    streamed = [
        t
        for c in chat(logprobs=True, top_logprobs=3, stream=True)
        if c.choices and c.choices[0].logprobs
        for t in c.choices[0].logprobs.content or ()
    ]
    assert [t.token for t in streamed] == [t.token for t in listed]


@check("chat: stop, logit_bias, penalties, max_completion_tokens")
def sampling():
    whole = chat(max_tokens=30).choices[0].message.content
    word = whole.split()[1]
    assert word not in chat(max_tokens=30, stop=[word]).choices[0].message.content
    chat(
        logit_bias={"7": -100},
        presence_penalty=0.5,
        frequency_penalty=0.5,
        top_p=0.9,
        max_tokens=None,
        max_completion_tokens=3,
    )


@check("chat: fields without effect (user, metadata, store, service_tier, empty tools)")
def tolerated():
    chat(user="u", metadata={"a": "b"}, store=False, service_tier="auto", safety_identifier="s", prompt_cache_key="k")
    chat(extra_body={"tools": [], "top_logprobs": None, "audio": None, "parallel_tool_calls": None})


@check("chat: response_format json_object")
def json_object():
    # The object has no bound, and a small model may fill its context with it.
    choice = chat(response_format={"type": "json_object"}, max_tokens=400).choices[0]
    if choice.finish_reason == "length":
        assert choice.message.content.lstrip().startswith("{")
        return "cut at max_tokens"
    assert isinstance(json.loads(choice.message.content), dict)
    return None


@check("chat.parse: json_schema of a pydantic model")
def parsed():
    reply = client.chat.completions.parse(model=MODEL, messages=HELLO, response_format=Reply, max_tokens=200)
    assert isinstance(reply.choices[0].message.parsed, Reply)


@check("chat: tools, tool_choice required, result, answer")
def tools():
    first = strict(chat(tools=[SUM], tool_choice="required", max_tokens=200))
    assert first.choices[0].finish_reason == "tool_calls"
    call = first.choices[0].message.tool_calls[0]
    assert set(json.loads(call.function.arguments)) == {"a", "b"}
    result = {"role": "tool", "tool_call_id": call.id, "content": "42"}
    strict(chat(messages=[*HELLO, first.choices[0].message, result], tools=[SUM]))


@check("chat: tools named, streamed arguments")
def streamed_tools():
    named = {"type": "function", "function": {"name": "add"}}
    with client.chat.completions.stream(
        model=MODEL, messages=HELLO, tools=[SUM], tool_choice=named, max_tokens=200
    ) as stream:
        for _ in stream:
            pass
        message = stream.get_final_completion().choices[0].message
    json.loads(message.tool_calls[0].function.arguments)
    assert message.tool_calls[0].function.name == "add"


@check("chat: tools auto and none")
def tools_auto():
    chat(tools=[SUM], parallel_tool_calls=False)
    assert not chat(tools=[SUM], tool_choice="none").choices[0].message.tool_calls


@check("completions: text, list, token ids, lists of ids, n, stream")
def completions():
    def create(**fields):
        return strict(client.completions.create(**{"model": MODEL, "max_tokens": 4, "temperature": 0, **fields}))

    one = create(prompt="Once upon").choices[0].text
    assert [choice.text for choice in create(prompt=["Once upon", "Once upon"]).choices] == [one, one]
    create(prompt=[5, 6, 7])
    assert len(create(prompt=[[5, 6], [7]], n=2, temperature=1).choices) == 4
    stream = lenient.completions.create(model=MODEL, prompt="Once upon", max_tokens=4, temperature=0, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream if chunk.choices) == one


@check("completions: echo with logprobs, suffix refused")
def echo():
    reply = lenient.completions.create(
        model=MODEL, prompt="Once upon a", max_tokens=1, echo=True, logprobs=2, temperature=0
    )
    listed = reply.choices[0].logprobs
    assert listed.token_logprobs[0] is None
    assert "".join(listed.tokens) == reply.choices[0].text
    assert listed.text_offset[0] == 0
    error = refusal(openai.BadRequestError, lambda: client.completions.create(model=MODEL, prompt="x", suffix="y"))
    assert error.param == "suffix"


@check("embeddings: texts, token ids, dimensions, base64")
def embeddings():
    def vectors(server, **fields):
        reply = server.embeddings.create(**{"model": MODEL, "input": ["one", "two"], **fields})
        return [each.embedding for each in reply.data]

    exact = vectors(client, encoding_format="float")
    assert len(exact) == 2
    # Where no format is named the client asks for base64, which it decodes after a strict one has refused it.
    for one, other in zip(exact, vectors(lenient), strict=True):
        assert all(abs(a - b) < 1e-6 for a, b in zip(one, other, strict=True))
    assert len(vectors(client, encoding_format="float", input=[[5, 6], [7]])) == 2
    assert {len(vector) for vector in vectors(client, encoding_format="float", dimensions=8)} == {8}
    return f"{len(exact[0])} numbers"


@check("responses: text, conversation, stream")
def responses():
    first = strict(client.responses.create(model=MODEL, input="Hello!", max_output_tokens=12, temperature=0))
    said = [*HELLO, *first.output, {"role": "user", "content": "What is 2 + 3?"}]
    client.responses.create(model=MODEL, input=said, instructions="Be brief.", max_output_tokens=12)
    with client.responses.stream(model=MODEL, input="Hello!", max_output_tokens=12, temperature=0) as stream:
        kinds = [strict(event).type for event in stream]
        assert stream.get_final_response().output_text == first.output_text
    assert kinds[0] == "response.created"


@check("responses: tool, output, answer; streamed arguments")
def response_tools():
    asked = {"model": MODEL, "tools": [FLAT], "max_output_tokens": 200}
    first = strict(client.responses.create(input="Add.", tool_choice="required", **asked))
    call = first.output[-1]
    assert set(json.loads(call.arguments)) == {"a", "b"}
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "42"}
    client.responses.create(input=[{"role": "user", "content": "Add."}, *first.output, result], **asked)
    with client.responses.stream(input="Add.", tool_choice={"type": "function", "name": "add"}, **asked) as stream:
        kinds = {event.type for event in stream}
    assert "response.function_call_arguments.delta" in kinds


@check("responses.parse: json_schema of a pydantic model")
def response_parsed():
    reply = client.responses.parse(model=MODEL, input="Hello!", text_format=Reply, max_output_tokens=200)
    assert isinstance(reply.output_parsed, Reply)


@check("responses: logprobs")
def response_logprobs():
    reply = client.responses.create(
        model=MODEL,
        input="Hello!",
        max_output_tokens=5,
        top_logprobs=2,
        temperature=0,
        include=["message.output_text.logprobs"],
    )
    assert len(reply.output[0].content[0].logprobs[0].top_logprobs) == 2


@check("responses: previous_response_id is refused by name")
def previous():
    error = refusal(
        openai.BadRequestError, lambda: client.responses.create(model=MODEL, input="x", previous_response_id="resp_1")
    )
    assert error.param == "previous_response_id"


@check("errors: request id, status, code")
def errors():
    error = refusal(openai.BadRequestError, lambda: chat(temperature=9))
    assert error.param == "temperature"
    return f"request id {error.request_id is not None}"


run(f"openai {openai.__version__}")
