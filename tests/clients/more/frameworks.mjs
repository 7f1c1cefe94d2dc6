// JavaScript frameworks against `wf-run serve`. Writes what works to a JSON file for `table.py`.

import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, jsonSchema, streamText, tool } from "ai";
import { createOllama } from "ai-sdk-ollama";

const { dependencies } = JSON.parse(readFileSync(new URL("package.json", import.meta.url)));
const [url, key] = [process.env.WF_URL, process.env.WF_KEY];
const prompt = "Tell me a story about a fox.";
const results = [];

async function client(name, packageName, api, checks) {
  const features = {};
  for (const [feature, check] of Object.entries(checks)) {
    try {
      await check();
      features[feature] = true;
    } catch (error) {
      console.error(`${name}: ${feature}:`, error);
      features[feature] = false;
    }
  }
  const version = `${packageName} ${dependencies[packageName]}`;
  results.push({ client: name, package: version, api, features });
}

function checks(model) {
  const request = { model, prompt, temperature: 0, maxOutputTokens: 40 };
  return {
    answer: async () => assert.ok((await generateText(request)).text.trim()),
    stream: async () => {
      let text = "";
      for await (const part of streamText(request).textStream) text += part;
      assert.equal(text, (await generateText(request)).text);
    },
    "tool call": async () => {
      const inputSchema = jsonSchema({
        type: "object",
        properties: { city: { enum: ["Oslo"] } },
        required: ["city"],
      });
      const weather = tool({ description: "Tells the weather.", inputSchema });
      const called = { tools: { weather }, toolChoice: "required", maxOutputTokens: 200 };
      const { toolCalls } = await generateText({ ...request, ...called });
      assert.deepEqual(toolCalls[0].input, { city: "Oslo" });
    },
  };
}

const openai = createOpenAICompatible({ name: "wf", baseURL: url, apiKey: key });
await client("Vercel AI SDK (OpenAI)", "@ai-sdk/openai-compatible", "OpenAI", checks(openai("default")));
const headers = { Authorization: `Bearer ${key}` };
const ollama = createOllama({ baseURL: url.replace(/\/v1$/, ""), headers });
const { answer, stream } = checks(ollama("default"));
await client("Vercel AI SDK (Ollama)", "ai-sdk-ollama", "Ollama", { answer, stream });
writeFileSync(process.argv[2], JSON.stringify(results, null, 1));
