// The `openai` npm package against `wf-run serve`.

import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.env.WF_URL, apiKey: process.env.WF_KEY });
const request = {
  model: "default",
  messages: [{ role: "user", content: "Tell me a story about a fox." }],
  temperature: 0,
  max_tokens: 30,
};

test("an answer, and the same as a stream", async () => {
  const answer = await client.chat.completions.create(request);
  assert.equal(answer.usage.completion_tokens, 30);
  let text = "";
  for await (const chunk of await client.chat.completions.create({ ...request, stream: true })) {
    text += chunk.choices[0]?.delta?.content ?? "";
  }
  assert.equal(text, answer.choices[0].message.content);
});

test("a stream can be broken off", async () => {
  const endless = { ...request, max_tokens: 1500, stream: true, ignore_eos: true };
  const stream = await client.chat.completions.create(endless);
  let chunks = 0;
  for await (const _ of stream) {
    if (++chunks === 5) stream.controller.abort();
  }
  assert.ok(chunks < 1000);
});

test("errors are typed", async () => {
  await assert.rejects(client.chat.completions.create({ ...request, top_p: 7 }), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.equal(error.param, "top_p");
    return true;
  });
});
