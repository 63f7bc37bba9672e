"""openai-agents with a task: the agent reads a note with its tool and says what stands in it. The model behind the API
is scripted (scripted.py), or one that can do this."""

import asyncio
import secrets

import agents
from harness import KEY, MODEL, V1, check, run
from openai import AsyncOpenAI

agents.set_tracing_disabled(True)
SECRET = f"SECRET-{secrets.token_hex(4)}"
ORDER = ["tool_call_item", "tool_call_output_item", "message_output_item"]


@agents.function_tool
def bash(command: str) -> str:
    """Runs a command."""
    return f"It is {SECRET}." if command == "cat note.txt" else f"no such command: {command}"


async def done(kind):
    """What the agent says, gathered and streamed."""
    async with AsyncOpenAI(base_url=V1, api_key=KEY, max_retries=0, timeout=120) as client:
        model = kind(model=MODEL, openai_client=client)
        agent = agents.Agent(name="a", instructions="Be brief.", model=model, tools=[bash])
        streamed = agents.Runner.run_streamed(agent, "What does note.txt say?", max_turns=3)
        async for _ in streamed.stream_events():
            pass
        for result in (streamed, await agents.Runner.run(agent, "What does note.txt say?", max_turns=3)):
            kinds = [item.type for item in result.new_items]
            assert kinds == ORDER, kinds
            assert SECRET in result.final_output, result.final_output


@check("it reads a note with its tool and says what stands in it, over responses")
def over_responses():
    asyncio.run(done(agents.OpenAIResponsesModel))


@check("it reads a note with its tool and says what stands in it, over chat completions")
def over_chat():
    asyncio.run(done(agents.OpenAIChatCompletionsModel))


run(f"openai-agents {agents.version.__version__}, a task")
