// The `ollama` package of npm against `wf-run serve`.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Ollama } from "ollama";

const client = new Ollama({
  host: process.env.WF_URL.replace(/\/v1$/, ""),
  headers: { Authorization: `Bearer ${process.env.WF_KEY}` },
});
const request = {
  model: "default",
  messages: [{ role: "user", content: "Tell me a story about a fox." }],
  options: { temperature: 0, num_predict: 40 },
};

test("Ollama's chat and stream", async () => {
  const answer = await client.chat(request);
  assert.match(answer.message.content, /fox/);
  assert.equal(answer.eval_count, 40);
  let text = "";
  for await (const part of await client.chat({ ...request, stream: true })) {
    text += part.message.content;
  }
  assert.equal(text, answer.message.content);
  const { response } = await client.generate({
    model: "default",
    prompt: request.messages[0].content,
    options: request.options,
  });
  assert.equal(response, text);
});

test("Ollama's models, embeddings and errors", async () => {
  const { models } = await client.list();
  assert.equal(models[0].name, "default");
  assert.ok((await client.show({ model: "default" })).capabilities.includes("completion"));
  const { embeddings } = await client.embed({ model: "default", input: ["a fox", "an owl"] });
  assert.equal(embeddings.length, 2);
  await assert.rejects(client.chat({ ...request, model: "llama3" }), /llama3/);
  assert.ok((await client.version()).version);
});
