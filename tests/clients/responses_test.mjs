// Tools and `/v1/responses` by the `openai` npm package.

import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.env.WF_URL, apiKey: process.env.WF_KEY });
const parameters = {
  type: "object",
  properties: { city: { enum: ["Oslo", "Rome"] } },
  required: ["city"],
  additionalProperties: false,
};
const input = "How is the weather?";
const once = { model: "default", temperature: 0, tool_choice: "required", parallel_tool_calls: false };
const city = (text) => assert.match(JSON.parse(text).city, /^(Oslo|Rome)$/);

test("tools in a chat, and the same as a stream", async () => {
  const tools = [{ type: "function", function: { name: "weather", parameters } }];
  const request = { ...once, tools, max_tokens: 100, messages: [{ role: "user", content: input }] };
  const answer = await client.chat.completions.create(request);
  const call = answer.choices[0].message.tool_calls[0].function;
  assert.equal(call.name, "weather");
  city(call.arguments);
  const final = await client.chat.completions.stream(request).finalChatCompletion();
  const streamed = final.choices[0].message.tool_calls[0].function;
  assert.equal(streamed.arguments, call.arguments);
});

test("a response, and the same as a stream", async () => {
  const request = { model: "default", temperature: 0, max_output_tokens: 30, input };
  const answer = await client.responses.create(request);
  assert.equal(answer.status, "completed");
  let text = "";
  for await (const event of await client.responses.create({ ...request, stream: true })) {
    if (event.type === "response.output_text.delta") text += event.delta;
  }
  assert.equal(text, answer.output_text);
});

test("tools in a response", async () => {
  const tools = [{ type: "function", name: "weather", parameters, strict: true }];
  const request = { ...once, tools, max_output_tokens: 100, input };
  const { output } = await client.responses.create(request);
  assert.equal(output[0].type, "function_call");
  city(output[0].arguments);
  const { output: streamed } = await client.responses.stream(request).finalResponse();
  assert.equal(streamed[0].arguments, output[0].arguments);
});
