// The official clients of OpenAI and Anthropic for Node.

import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";
import { KEY, MODEL, URL, V1, check, refusal, run, versioned } from "./harness.mjs";

const openai = new OpenAI({ baseURL: V1, apiKey: KEY, maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: URL, apiKey: KEY, maxRetries: 0 });
const HELLO = [{ role: "user", content: "Hello!" }];
const Reply = z.object({ answer: z.number() });
const SCHEMA = {
  type: "object",
  properties: { a: { type: "integer", minimum: 0, maximum: 99 } },
  required: ["a"],
  additionalProperties: false,
};
const ADD = { type: "function", function: { name: "add", description: "Adds.", parameters: SCHEMA } };
const FLAT = { type: "function", strict: true, ...ADD.function };
const ADD_OF_ANTHROPIC = { name: "add", description: "Adds.", input_schema: SCHEMA };

const chat = { model: MODEL, messages: HELLO, max_completion_tokens: 200, temperature: 0 };
const response = { model: MODEL, input: "Hello!", max_output_tokens: 200, temperature: 0 };
const message = { model: MODEL, messages: HELLO, max_tokens: 200 };

async function gathered(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}

const ofOpenAI = versioned("openai");

check(`${ofOpenAI}: models: list, retrieve, 404`, async () => {
  assert((await gathered(openai.models.list())).some((model) => model.id === MODEL));
  assert.equal((await openai.models.retrieve(MODEL)).id, MODEL);
  const error = await refusal(() => openai.models.retrieve("nobody"));
  assert(error instanceof OpenAI.NotFoundError);
  assert.equal(error.code, "model_not_found");
});

check(`${ofOpenAI}: chat: whole, stream with usage, second turn`, async () => {
  const whole = await openai.chat.completions.create(chat);
  const options = { stream: true, stream_options: { include_usage: true } };
  const chunks = await gathered(await openai.chat.completions.create({ ...chat, ...options }));
  const text = chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join("");
  assert.equal(text, whole.choices[0].message.content);
  assert.equal(chunks.at(-1).usage.completion_tokens, whole.usage.completion_tokens);
  await openai.chat.completions.create({ ...chat, messages: [...HELLO, whole.choices[0].message, ...HELLO] });
});

check(`${ofOpenAI}: chat: tools, result, answer; streamed and gathered`, async () => {
  const forced = { ...chat, tools: [ADD], tool_choice: "required" };
  const stream = openai.chat.completions.stream({ ...forced });
  const whole = await openai.chat.completions.create(forced);
  for (const choice of [whole.choices[0], (await stream.finalChatCompletion()).choices[0]]) {
    assert.equal(choice.finish_reason, "tool_calls");
    const results = choice.message.tool_calls.map((call) => {
      assert.deepEqual(Object.keys(JSON.parse(call.function.arguments)), ["a"]);
      return { role: "tool", tool_call_id: call.id, content: "42" };
    });
    await openai.chat.completions.create({ ...chat, messages: [...HELLO, choice.message, ...results], tools: [ADD] });
  }
});

check(`${ofOpenAI}: chat.parse and the message sent back; responses.parse`, async () => {
  const asked = { ...chat, response_format: zodResponseFormat(Reply, "reply") };
  const { message: said } = (await openai.chat.completions.parse(asked)).choices[0];
  assert.equal(typeof said.parsed.answer, "number");
  await openai.chat.completions.create({ ...chat, messages: [...HELLO, said, ...HELLO] });
  const parsed = await openai.responses.parse({ ...response, text: { format: zodTextFormat(Reply, "reply") } });
  assert.equal(typeof parsed.output_parsed.answer, "number");
});

check(`${ofOpenAI}: responses: text, stream, tool, output, answer`, async () => {
  const whole = await openai.responses.create(response);
  const events = await gathered(await openai.responses.create({ ...response, stream: true }));
  assert.equal(events.at(-1).response.output_text ?? whole.output_text, whole.output_text);
  assert.deepEqual([events[0].type, events.at(-1).type.split(".")[0]], ["response.created", "response"]);
  const called = await openai.responses.create({ ...response, tools: [FLAT], tool_choice: "required" });
  const outputs = called.output
    .filter((item) => item.type === "function_call")
    .map((call) => ({ type: "function_call_output", call_id: call.call_id, output: "42" }));
  assert(outputs.length > 0);
  await openai.responses.create({ ...response, input: [...HELLO, ...called.output, ...outputs], tools: [FLAT] });
});

check(`${ofOpenAI}: completions; embeddings in base64 and as numbers`, async () => {
  assert((await openai.completions.create({ model: MODEL, prompt: "Once upon", max_tokens: 4 })).choices[0].text);
  const vectors = [];
  for (const format of [undefined, "float"]) {
    const reply = await openai.embeddings.create({ model: MODEL, input: ["one", "two"], encoding_format: format });
    vectors.push(reply.data.map((entry) => entry.embedding));
  }
  const [packed, exact] = vectors;
  assert(exact.every((vector, row) => vector.every((number, at) => Math.abs(number - packed[row][at]) < 1e-6)));
});

check(`${ofOpenAI}: refusals name the field`, async () => {
  const error = await refusal(() => openai.chat.completions.create({ ...chat, temperature: 9 }));
  assert(error instanceof OpenAI.BadRequestError);
  assert.equal(error.param, "temperature");
  const other = await refusal(() => openai.responses.create({ ...response, previous_response_id: "resp_1" }));
  assert.equal(other.param, "previous_response_id");
});

const ofAnthropic = versioned("@anthropic-ai/sdk");

check(`${ofAnthropic}: models: list in Anthropic's shape`, async () => {
  const listed = await gathered(anthropic.models.list());
  assert.equal(listed.find((model) => model.id === MODEL).type, "model");
});

check(`${ofAnthropic}: messages: whole, stream, second turn, tokens are counted`, async () => {
  const whole = await anthropic.messages.create(message);
  const streamed = await anthropic.messages.stream(message).finalMessage();
  assert.equal(streamed.content[0].type, whole.content[0].type);
  const { usage } = streamed;
  const { input_tokens: counted } = await anthropic.messages.countTokens({ model: MODEL, messages: HELLO });
  assert.equal(usage.input_tokens + usage.cache_read_input_tokens, counted);
  const said = { role: "assistant", content: whole.content };
  await anthropic.messages.create({ ...message, messages: [...HELLO, said, ...HELLO] });
});

check(`${ofAnthropic}: messages: tools, result, answer; the tool runner`, async () => {
  const asked = { ...message, tools: [ADD_OF_ANTHROPIC], tool_choice: { type: "any" } };
  const called = await anthropic.messages.create(asked);
  assert.equal(called.stop_reason, "tool_use");
  const results = called.content.map((use) => ({ type: "tool_result", tool_use_id: use.id, content: "42" }));
  const said = [...HELLO, { role: "assistant", content: called.content }, { role: "user", content: results }];
  await anthropic.messages.create({ ...message, messages: said, tools: [ADD_OF_ANTHROPIC] });
  const ran = [];
  const tool = { ...ADD_OF_ANTHROPIC, type: "custom", run: (input) => String(ran.push(input)), parse: (input) => input };
  await anthropic.beta.messages.toolRunner({ ...asked, tools: [tool], max_iterations: 2 });
  assert.deepEqual(Object.keys(ran[0]), ["a"]);
});

check(`${ofAnthropic}: messages: output_config json_schema; refusals`, async () => {
  const format = { type: "json_schema", schema: SCHEMA };
  const reply = await anthropic.messages.create({ ...message, output_config: { format } });
  assert.equal(typeof JSON.parse(reply.content.at(-1).text).a, "number");
  assert((await refusal(() => anthropic.messages.create({ ...message, model: "nobody" }))) instanceof Anthropic.NotFoundError);
  assert((await refusal(() => anthropic.messages.create({ ...message, max_tokens: 0 }))) instanceof Anthropic.BadRequestError);
});

await run();
