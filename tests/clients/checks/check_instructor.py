"""instructor in its modes TOOLS, JSON, JSON_SCHEMA, and over /v1/responses."""

from importlib.metadata import version

import instructor
import openai
from harness import KEY, MODEL, V1, check, run
from pydantic import BaseModel


class Reply(BaseModel):
    """The answer."""

    yes: bool
    no: bool


def extract(mode, **fields):
    client = instructor.from_openai(openai.OpenAI(base_url=V1, api_key=KEY, max_retries=0), mode=mode)
    said = [{"role": "user", "content": "Hello!"}]
    reply = client.create(model=MODEL, messages=said, response_model=Reply, max_retries=0, **fields)
    assert isinstance(reply, Reply)


@check("TOOLS")
def tools():
    extract(instructor.Mode.TOOLS, max_tokens=200)


@check("JSON_SCHEMA")
def json_schema():
    extract(instructor.Mode.JSON_SCHEMA, max_tokens=200)


@check("JSON (the request is served; a small model need not follow the schema that the prompt names)")
def json_mode():
    try:
        extract(instructor.Mode.JSON, max_tokens=200, temperature=0)
    except instructor.core.InstructorRetryException as error:
        if "validation error" not in str(error):
            raise
        return "served; the model's object is not the one asked for"
    return None


@check("RESPONSES_TOOLS")
def responses():
    extract(instructor.Mode.RESPONSES_TOOLS, max_output_tokens=200)


run(f"instructor {version('instructor')}")
