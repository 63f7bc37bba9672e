// Libraries for Node that are told the address: the AI SDK, LangChain and OpenAI's agents. Those with several providers
// pass the same checks with each.

import assert from "node:assert/strict";
import * as agents from "@openai/agents";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { ChatAnthropic } from "@langchain/anthropic";
import { HumanMessage, ToolMessage } from "@langchain/core/messages";
import { tool as langchainTool } from "@langchain/core/tools";
import { ChatOpenAI, OpenAIEmbeddings } from "@langchain/openai";
import { Output, embedMany, generateText, stepCountIs, streamText, tool } from "ai";
import OpenAI from "openai";
import { z } from "zod";
import { KEY, MODEL, V1, URL, check, refusal, run, versioned } from "./harness.mjs";

const Reply = z.object({ answer: z.number() });
const Sum = z.object({ a: z.boolean() });

const compatible = createOpenAICompatible({
  name: "agon",
  baseURL: V1,
  apiKey: KEY,
  includeUsage: true,
  supportsStructuredOutputs: true,
});
const ofOpenAI = createOpenAI({ baseURL: V1, apiKey: KEY });
const ofAnthropic = createAnthropic({ baseURL: V1, apiKey: KEY });
const PROVIDERS = [
  [versioned("@ai-sdk/openai-compatible"), compatible, compatible.embeddingModel(MODEL)],
  [`${versioned("@ai-sdk/openai")} chat`, ofOpenAI.chat, ofOpenAI.embedding(MODEL)],
  [`${versioned("@ai-sdk/openai")} responses`, ofOpenAI.responses],
  [versioned("@ai-sdk/anthropic"), ofAnthropic],
];

for (const [provider, named, embedder] of PROVIDERS) {
  const name = `${versioned("ai")}, ${provider}`;
  const asked = { model: named(MODEL), prompt: "Hello!", maxOutputTokens: 200, temperature: 0, maxRetries: 0 };

  check(`${name}: text, stream with usage`, async () => {
    const whole = await generateText(asked);
    const stream = streamText(asked);
    let text = "";
    for await (const piece of stream.textStream) text += piece;
    assert.equal(text, whole.text);
    const usage = await stream.usage;
    assert(usage.inputTokens > 0 && usage.outputTokens === whole.usage.outputTokens);
  });

  check(`${name}: tools in steps, whole and streamed`, async () => {
    let calls = 0;
    const add = tool({ description: "Adds.", inputSchema: Sum, execute: async () => ++calls });
    const steps = {
      tools: { add },
      stopWhen: stepCountIs(2),
      prepareStep: ({ stepNumber }) => ({ toolChoice: stepNumber === 0 ? "required" : "none" }),
    };
    const whole = await generateText({ ...asked, ...steps });
    assert.equal(whole.steps.length, 2);
    assert(calls > 0);
    const stream = streamText({ ...asked, ...steps });
    await stream.consumeStream();
    const [first, second] = await stream.steps;
    assert.equal(first.toolResults[0].toolName, "add");
    assert.equal(second.toolCalls.length, 0);
  });

  check(`${name}: an object of a schema`, async () => {
    const { output } = await generateText({ ...asked, output: Output.object({ schema: Reply }) });
    assert.equal(typeof output.answer, "number");
  });

  check(`${name}: a refusal has status and text`, async () => {
    const error = await refusal(() => generateText({ ...asked, model: named("nobody") }));
    assert.equal(error.statusCode, 404);
    assert.match(error.message, /model/);
  });

  if (embedder)
    check(`${name}: embeddings`, async () => {
      const { embeddings } = await embedMany({ model: embedder, values: ["one", "two"], maxRetries: 0 });
      assert.deepEqual(embeddings.map((vector) => vector.length > 1), [true, true]);
    });
}

const configuration = { baseURL: V1 };
const limits = { model: MODEL, apiKey: KEY, maxTokens: 200, temperature: 0, maxRetries: 0 };
const MODELS = [
  [`${versioned("@langchain/openai")} chat`, new ChatOpenAI({ ...limits, configuration })],
  [`${versioned("@langchain/openai")} responses`, new ChatOpenAI({ ...limits, configuration, useResponsesApi: true })],
  [versioned("@langchain/anthropic"), new ChatAnthropic({ ...limits, anthropicApiUrl: URL })],
];

for (const [name, model] of MODELS) {
  check(`${name}: text, stream with usage`, async () => {
    const whole = await model.invoke("Hello!");
    let gathered;
    for await (const chunk of await model.stream("Hello!")) gathered = gathered ? gathered.concat(chunk) : chunk;
    assert.equal(gathered.text, whole.text);
    assert(gathered.usage_metadata.input_tokens > 0);
    assert.equal(gathered.usage_metadata.output_tokens, whole.usage_metadata.output_tokens);
  });

  check(`${name}: tool, result, answer`, async () => {
    const add = langchainTool(() => "42", { name: "add", description: "Adds.", schema: Sum });
    const said = [new HumanMessage("Add.")];
    // By name, because over responses this client leaves out that some tool must be called.
    const called = await model.bindTools([add], { tool_choice: "add" }).invoke(said);
    assert.equal(called.tool_calls[0].name, "add");
    const results = called.tool_calls.map((call) => new ToolMessage({ content: "42", tool_call_id: call.id }));
    await model.bindTools([add]).invoke([...said, called, ...results]);
  });

  check(`${name}: structured output`, async () => {
    assert.equal(typeof (await model.withStructuredOutput(Reply).invoke("Hello!")).answer, "number");
  });
}

check(`${versioned("@langchain/openai")}: embeddings`, async () => {
  const embedder = new OpenAIEmbeddings({ model: MODEL, apiKey: KEY, configuration, maxRetries: 0 });
  assert.equal((await embedder.embedDocuments(["one", "two"])).length, 2);
});

agents.setTracingDisabled(true);
const client = new OpenAI({ baseURL: V1, apiKey: KEY, maxRetries: 0 });

for (const [api, Model] of [
  ["responses", agents.OpenAIResponsesModel],
  ["chat completions", agents.OpenAIChatCompletionsModel],
]) {
  const model = new Model(client, MODEL);
  const modelSettings = { maxTokens: 200, temperature: 0 };

  check(`${versioned("@openai/agents")}: an answer, whole and streamed, over ${api}`, async () => {
    const agent = new agents.Agent({ name: "a", instructions: "Be brief.", model, modelSettings });
    const whole = await agents.run(agent, "Hello!");
    const stream = await agents.run(agent, "Hello!", { stream: true });
    await stream.completed;
    assert.equal(stream.finalOutput, whole.finalOutput);
  });

  check(`${versioned("@openai/agents")}: a function is called, and an object of a schema, over ${api}`, async () => {
    const add = agents.tool({ name: "add", description: "Adds.", parameters: Sum, execute: async () => "42" });
    const settings = { ...modelSettings, toolChoice: "required" };
    const agent = new agents.Agent({ name: "a", model, modelSettings: settings, tools: [add] });
    const kinds = (await agents.run(agent, "Add.")).newItems.map((item) => item.type);
    assert.deepEqual(kinds.filter((kind) => kind.startsWith("tool_call")).slice(0, 1), ["tool_call_item"]);
    const typed = new agents.Agent({ name: "a", model, modelSettings, outputType: Reply });
    assert.equal(typeof (await agents.run(typed, "Hello!")).finalOutput.answer, "number");
  });
}

await run();
