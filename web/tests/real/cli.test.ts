/** `npx wrinklefree` in Node. Needs `web/build`. */

import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { request } from "node:http";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import manifest from "../../package.json" with { type: "json" };

const program = fileURLToPath(new URL(`../../${manifest.bin.wrinklefree}`, import.meta.url));
const PROMPT = "Tell me a story about a fox named Pip.";
const STORY = "Have you heard of Pip? He was a small fox. Pip was strong and a little proud.";

async function run(...args: string[]) {
  try {
    return { code: 0, ...(await promisify(execFile)(process.execPath, [program, ...args])) };
  } catch (error) {
    return error as { code: number; stdout: string; stderr: string };
  }
}

/** Runs the program with lines on its standard input. */
async function fed(lines: string, ...args: string[]) {
  const child = spawn(process.execPath, [program, ...args]);
  child.stdin.end(lines);
  let output = "";
  child.stdout.on("data", (data) => (output += data));
  const [code] = await once(child, "close");
  return { code, output };
}

test("generate answers as wf-run does: from an argument, standard input, a model file", async () => {
  const options = ["--temperature", "0", "--max-tokens", "20"];
  expect(await run("generate", ...options, PROMPT)).toMatchObject({
    code: 0,
    stdout: `${STORY}\n`,
  });
  expect(await fed(PROMPT, "generate", ...options)).toEqual({ code: 0, output: `${STORY}\n` });
  const file = fileURLToPath(new URL("../../dist/default.wf.safetensors", import.meta.url));
  const named = ["generate", "--model", file, "--threads", "1", ...options, PROMPT];
  expect(await run(...named)).toMatchObject({ code: 0, stdout: `${STORY}\n` });
});

test("chat remembers the conversation", async () => {
  const options = ["--temperature", "0", "--max-tokens", "20"];
  const { code, output } = await fed(`${PROMPT}\nHi\n`, "chat", ...options);
  const [story, answer] = output.split("\n");
  expect([code, story]).toEqual([0, STORY]);
  const alone = await fed("Hi\n", "chat", ...options);
  expect(answer).not.toBe(alone.output.trim());
});

test("wrong command lines are refused by name, with exit code 2", async () => {
  for (const [args, message] of [
    [[], "a command is missing"],
    [["sing"], "there is no command sing"],
    [["generate", "--max-tokens", "many", "Hi"], "--max-tokens: many is not a number"],
    [["generate", "Tell", "me"], "me is one argument too many"],
    [["serve", "--raw"], "serve has no option --raw"],
    [["serve", "--port", "70000"], "70000 is not a port"],
    [["chat", "--colour"], "--colour"],
  ] as const) {
    const { code, stderr } = await run(...args);
    expect([code, stderr], args.join(" ")).toEqual([2, expect.stringContaining(message)]);
  }
  expect(await run("generate", "--model", "missing.gguf", "Hi")).toMatchObject({
    code: 1,
    stderr: expect.stringContaining("missing.gguf"),
  });
  expect((await run("--version")).stdout).toBe(`${manifest.version}\n`);
  expect((await run("--help")).stdout).toContain("--max-tokens");
});

test("Ctrl-C ends an answer with exit code 130", async () => {
  const child = spawn(process.execPath, [
    program,
    "generate",
    "--raw",
    // With this seed the answer is long.
    ...["--temperature", "3", "--seed", "5", "--threads", "1"],
    "Once",
  ]);
  await once(child.stdout, "data");
  child.kill("SIGINT");
  expect(await once(child, "close")).toEqual([130, null]);
});

describe("serve", () => {
  let server: ChildProcess;
  let url: string;

  beforeAll(async () => {
    server = spawn(process.execPath, [program, "serve", "--port", "0"]);
    const [line] = await once(createInterface({ input: server.stdout! }), "line");
    url = line.replace("listening on ", "");
  });
  afterAll(async () => {
    server.kill("SIGTERM");
    expect(await once(server, "close")).toEqual([0, null]);
  });

  const post = (body: string, headers = {}) =>
    fetch(`${url}/v1/chat/completions`, { method: "POST", body, headers });
  const asked = { temperature: 0, max_tokens: 20, messages: [{ role: "user", content: PROMPT }] };

  test("the page and its files", async () => {
    const page = await fetch(url);
    expect(page.headers.get("content-security-policy")).toContain("default-src 'none'");
    const files = [...(await page.text()).matchAll(/(?:href|src)="(page\/[^"]+)"/g)];
    expect(files.length).toBe(3);
    const queue = files.map(([, file]) => file as string);
    for (const file of queue) {
      const response = await fetch(`${url}/${file}`);
      expect(response.status, file).toBe(200);
      // Modules that this one imports.
      for (const [, name] of (await response.text()).matchAll(/from "\.\/(\w+\.js)"/g)) {
        if (!queue.includes(`page/${name}`)) queue.push(`page/${name}`);
      }
    }
    expect(queue).toContain("page/markdown.js");
    expect((await fetch(`${url}/health`)).status).toBe(200);
    const [model] = (await (await fetch(`${url}/v1/models`)).json()).data;
    expect(model.id).toBe("default");
    expect(model.meta.n_params).toBeGreaterThan(1e6);
  });

  test("an answer, whole and streamed", async () => {
    const whole = await (await post(JSON.stringify(asked))).json();
    expect(whole.choices[0].message.content).toBe(STORY);
    const options = { stream: true, stream_options: { include_usage: true } };
    const events = (await (await post(JSON.stringify({ ...asked, ...options }))).text()).trim();
    const data = events.split("\n\n").map((event) => event.replace("data: ", ""));
    expect(data.pop()).toBe("[DONE]");
    const chunks = data.map((text) => JSON.parse(text));
    const text = chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join("");
    expect(text).toBe(STORY);
    expect(chunks.at(-1)).toMatchObject({ usage: { completion_tokens: 20 } });
    expect(chunks.at(-1).timings.decode_tokens_per_second).toBeGreaterThan(0);
  });

  test("refusals have a status", async () => {
    const long = {
      ...asked,
      stream: true,
      messages: [{ role: "user", content: "a ".repeat(9999) }],
    };
    for (const [body, headers, status] of [
      ["{", {}, 400],
      ["[1]", {}, 400],
      [JSON.stringify({ messages: [] }), {}, 400],
      [JSON.stringify({ ...asked, n: 2 }), {}, 400],
      [JSON.stringify(long), {}, 400],
      [" ".repeat(5 << 20), {}, 413],
      [JSON.stringify(asked), { origin: "http://other.example" }, 403],
    ] as const) {
      const response = await post(body, headers);
      expect([response.status, (await response.json()).error.message]).toEqual([
        status,
        expect.any(String),
      ]);
    }
    expect((await fetch(`${url}/v1/other`)).status).toBe(404);
  });

  test("a name that another site has bound to this machine is refused", async () => {
    const asking = request(url, { headers: { host: "other.example" } }).end();
    const [response] = await once(asking, "response");
    expect(response.statusCode).toBe(403);
  });
});
