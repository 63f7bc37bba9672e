"""langchain-openai: chat, completions, tools, structured output, logprobs."""

from importlib.metadata import version

import openai
from harness import KEY, MODEL, V1, check, run
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings
from reply import Reply

SENT = {"model": MODEL, "base_url": V1, "api_key": KEY, "max_retries": 0, "temperature": 0}


@tool
def add(a: bool) -> int:
    """Adds."""
    return 1 + a


def chat(**fields):
    return ChatOpenAI(**{**SENT, "max_tokens": 200, **fields})


@check("chat: invoke, stream, batch of conversations")
def chats():
    whole = chat(max_tokens=12).invoke("Hello!")
    assert "".join(chunk.content for chunk in chat(max_tokens=12).stream("Hello!")) == whole.content
    chat(max_tokens=12).invoke([HumanMessage("Hello!"), whole, HumanMessage("What is 2 + 3?")])


@check("tools: bind_tools, result, answer")
def tools():
    asked = HumanMessage("Add.")
    reply = chat().bind_tools([add], tool_choice="required", strict=True).invoke([asked])
    assert reply.tool_calls[0]["name"] == "add"
    result = ToolMessage("2", tool_call_id=reply.tool_calls[0]["id"])
    chat().bind_tools([add]).invoke([asked, reply, result])


@check("structured output: json_schema, function_calling, json_mode")
def structured():
    for method in ("json_schema", "function_calling"):
        assert isinstance(chat().with_structured_output(Reply, method=method).invoke("Hello!"), Reply)
    try:
        chat().bind(response_format={"type": "json_object"}).invoke("Answer in JSON.")
    except openai.LengthFinishReasonError:
        return "json_mode: served; the small model's object was cut at max_tokens"
    return None


@check("logprobs")
def logprobs():
    reply = chat(max_tokens=3, logprobs=True, top_logprobs=2).invoke("Hello!")
    assert len(reply.response_metadata["logprobs"]["content"][0]["top_logprobs"]) == 2


@check("completions: two prompts at once")
def completions():
    found = OpenAI(**SENT, max_tokens=3).generate(["Once upon", "Once upon"]).generations
    assert len(found) == 2


@check("chat over responses, with a tool")
def responses():
    reply = chat(use_responses_api=True).bind_tools([add], tool_choice="required", strict=True).invoke("Add.")
    assert reply.tool_calls[0]["name"] == "add"
    assert chat(use_responses_api=True, max_tokens=12).invoke("Hello!").text


@check("embeddings")
def embeddings():
    # Otherwise it would cut texts into tokens of OpenAI's own models, whose vocabulary it loads from the internet.
    found = OpenAIEmbeddings(model=MODEL, base_url=V1, api_key=KEY, max_retries=0, check_embedding_ctx_length=False)
    documents = found.embed_documents(["one", "two"])
    assert len(documents) == 2
    query = found.embed_query("one")
    assert all(abs(a - b) < 1e-6 for a, b in zip(query, documents[0], strict=True))


run(f"langchain-openai {version('langchain-openai')}")
