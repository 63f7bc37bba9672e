"""openai-agents: an agent with a function, over /v1/responses and over chat completions."""

import agents
from harness import KEY, MODEL, V1, check, run
from openai import AsyncOpenAI

agents.set_tracing_disabled(True)
client = AsyncOpenAI(base_url=V1, api_key=KEY, max_retries=0, timeout=120)
RESPONSES = agents.OpenAIResponsesModel(model=MODEL, openai_client=client)
CHAT = agents.OpenAIChatCompletionsModel(model=MODEL, openai_client=client)


@agents.function_tool
def add(a: int) -> int:
    """Adds one."""
    return a + 1


def ran(model, **fields):
    settings = agents.ModelSettings(max_tokens=200, temperature=0, tool_choice="required" if fields else None)
    agent = agents.Agent(name="a", instructions="Be brief.", model=model, model_settings=settings, **fields)
    return agents.Runner.run_sync(agent, "Add one to 2.", max_turns=3)


@check("an answer over responses and over chat completions")
def answers():
    assert ran(RESPONSES).final_output == ran(CHAT).final_output


@check("a function is called and its result is read, over responses")
def function():
    kinds = [item.type for item in ran(RESPONSES, tools=[add]).new_items]
    assert kinds[:2] == ["tool_call_item", "tool_call_output_item"], kinds


@check("a function is called and its result is read, over chat completions")
def chat_function():
    kinds = [item.type for item in ran(CHAT, tools=[add]).new_items]
    assert kinds[:2] == ["tool_call_item", "tool_call_output_item"], kinds


run(f"openai-agents {agents.version.__version__}")
