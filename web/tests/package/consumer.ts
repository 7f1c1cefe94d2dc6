// A user's program. It is compiled against the package's types and never runs.

import {
  type ChatMessage,
  type ChatTool,
  type Engine,
  type Part,
  WrinkleFreeError,
  load,
} from "wrinklefree";

export async function everything(file: File, signal: AbortSignal): Promise<string> {
  const engine: Engine = await load([file, "https://models.example/config.json"], {
    threads: 2,
    signal,
    onProgress: ({ loaded, total }) => console.log(loaded, total),
    cache: false,
  });
  const parts: Part[] = [];
  const options = { maxTokens: 9, decodeMode: "iterative", threshold: 0.9, signal } as const;
  for await (const part of engine.stream("x", options)) parts.push(part);
  const messages = [{ role: "user", content: "x" }];
  const answer = await engine.chat.completions.create({ messages });
  for await (const chunk of await engine.chat.completions.create({ messages, stream: true })) {
    console.log(chunk.choices[0]?.delta.content);
  }
  const tools: ChatTool[] = [{ type: "function", function: { name: "sun" } }];
  const { message } = answer.choices[0];
  const results = (message.tool_calls ?? []).map(({ id, function: called }): ChatMessage => {
    return { role: "tool", tool_call_id: id, content: `${called.name}: rain` };
  });
  const history: ChatMessage[] = [...messages, message, ...results];
  await engine.chat.completions.create({ messages: history, tools, tool_choice: "none" });
  const ids: number[] = await engine.tokenize("x");
  console.log(engine.info().why.threads, ids, new WrinkleFreeError("crashed", "").code);
  await engine.dispose();
  return answer.choices[0].message.content + (await engine.generate("x", options));
}
