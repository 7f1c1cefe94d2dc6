// The page at `/` in headless Chromium, against `wf-run serve` on scalar kernels, whose answers take a while.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { after, before, beforeEach, test } from "node:test";
import axe from "axe-core";
import { chromium } from "playwright-core";

const KEY = "the key";
const STORY = "Tell me a story about a fox.";
let server, base, browser, page;

before(async () => {
  const args = ["serve", "--port", "0", "--context", "2048", "--threads", "1", "--api-key", KEY];
  const env = { ...process.env, WF_ISA: "scalar", WF_LOG: "warn" };
  server = spawn(process.env.WF_RUN, args, { env, stdio: ["ignore", "pipe", "inherit"] });
  const [line] = await once(server.stdout, "data");
  base = String(line).match(/http:\S+/)[0];
  // Chromium's own sandbox does not run as root.
  const options = { executablePath: process.env.CHROMIUM, args: ["--no-sandbox"] };
  browser = await chromium.launch(options);
});

after(async () => {
  await browser?.close();
  server?.kill();
});

beforeEach(async () => {
  await page?.context().close();
  page = await (await browser.newContext()).newPage();
  page.setDefaultTimeout(60_000);
});

/** The page, with a key. */
async function open() {
  await page.goto(base);
  await page.getByLabel("Key, kept").fill(KEY);
  await page.getByLabel("Key, kept").press("Enter");
  await page.getByText("default", { exact: true }).waitFor();
  await page.getByLabel("Temperature").fill("0");
}

async function ask(text) {
  await page.getByLabel("Your message").fill(text);
  await page.getByLabel("Your message").press("Enter");
}

const models = () => page.getByRole("article", { name: "Model" });

/** Asks; the answer and what stands below it. */
async function answered(text) {
  const count = await models().locator(".figures").count();
  await ask(text);
  return answer(count);
}

/** Waits for this answer. */
async function answer(index) {
  const figures = models().nth(index).locator(".figures");
  await figures.waitFor();
  const text = await models().nth(index).locator(".text").evaluate((body) => body.innerText);
  return { text: words(text), figures: await figures.textContent() };
}

/** The words of a text: Markdown shows other spaces. */
const words = (text) => text.trim().split(/\s+/).join(" ");

async function api(path, body) {
  const headers = { authorization: `Bearer ${KEY}` };
  const method = body ? "POST" : "GET";
  body &&= JSON.stringify(body);
  return (await fetch(base + path, { method, headers, body })).json();
}

/** Lets answers go on to their last token. */
async function endless() {
  await page.route("**/v1/chat/completions", (route) => {
    const body = { ...route.request().postDataJSON(), ignore_eos: true };
    return route.continue({ postData: JSON.stringify(body) });
  });
  await page.getByLabel("Max tokens").fill("1900");
}

async function until(what, holds) {
  for (let tries = 0; tries < 2400; tries++) {
    if (await holds()) return;
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
  assert.fail(`${what}: not in a minute`);
}

test("a key is asked for, until it fits, and kept for this tab", async () => {
  await page.goto(base);
  const key = page.getByLabel("Key, kept");
  await key.fill("another key");
  await key.press("Enter");
  await page.getByText("That key does not fit.").waitFor();
  await key.fill(KEY);
  await key.press("Enter");
  await page.getByText("default", { exact: true }).waitFor();
  assert.equal(await page.evaluate("sessionStorage.getItem('key')"), KEY);
  assert.equal(await page.evaluate("JSON.stringify(localStorage)"), "{}", "nowhere else");
  await page.reload();
  await page.getByText("default", { exact: true }).waitFor();
  assert.equal(await key.isVisible(), false);
  // As if the key had changed on the server: the page asks for it, and then the answer arrives.
  await page.evaluate("sessionStorage.setItem('key', 'an old key')");
  await ask(STORY);
  await key.fill(KEY);
  await key.press("Enter");
  await models().locator(".figures").waitFor();
  assert.ok(!(await page.evaluate("JSON.stringify(localStorage)")).includes(KEY));
});

test("an answer streams, and says what it cost", async () => {
  await open();
  await ask(STORY);
  const body = models().locator(".text");
  const lengths = new Set();
  await until("an answer", async () => {
    lengths.add((await body.textContent()).length);
    return models().locator(".figures").count();
  });
  assert.ok(lengths.size > 3, `text grows: ${[...lengths]}`);
  const { text, figures } = await answer(0);
  const [tokens, rate, perPass, first] = figures.split(" · ");
  assert.match(tokens, /^\d+ tokens$/);
  assert.match(rate, /^[\d.,]+ tok\/s$/);
  assert.match(perPass, /^\d\.\d\d tokens per pass$/);
  assert.match(first, /^first after [\d,]+ ms$/);

  const messages = [{ role: "user", content: STORY }];
  const want = await api("/v1/chat/completions", { messages, temperature: 0 });
  assert.equal(text, words(want.choices[0].message.content));

  await page.setViewportSize({ width: 800, height: 420 });
  const second = await answered("What did the fox do?");
  const below = await page
    .locator("#log")
    .evaluate((log) => log.scrollHeight - log.scrollTop - log.clientHeight);
  assert.ok(below < 2, `the end stays in sight: ${below} pixels are below`);
  messages.push(want.choices[0].message, { role: "user", content: "What did the fox do?" });
  const next = await api("/v1/chat/completions", { messages, temperature: 0 });
  const known = words(next.choices[0].message.content);
  assert.equal(second.text, known, "it knows what was said before");
});

test("modes and bounds are those of the request", async () => {
  await open();
  await page.getByLabel("Max tokens").fill("24");
  for (const [mode, least] of [["ar", 0.9], ["verify", 0.9], ["iterative", 0.9], ["greedy", 2]]) {
    await page.getByRole("combobox", { name: "Mode" }).selectOption(mode);
    await page.getByRole("button", { name: "New chat" }).click();
    const { figures } = await answered(STORY);
    assert.match(figures, /^24 tokens/);
    assert.match(figures, /cut at max tokens$/);
    assert.ok(Number(figures.match(/([\d.]+) tokens per pass/)[1]) >= least, `${mode}: ${figures}`);
  }
});

test("an answer of block diffusion is denoised in place", async () => {
  await open();
  await page.getByLabel("Max tokens").fill("12");
  await page.getByRole("combobox", { name: "Mode" }).selectOption("iterative");
  await page.evaluate(() => {
    globalThis.seen = [];
    const look = () => seen.push([...document.querySelectorAll("article.assistant .text")].at(-1)?.textContent);
    const all = { childList: true, subtree: true, characterData: true };
    new MutationObserver(look).observe(document.getElementById("log"), all);
  });
  const { text } = await answered(STORY);
  const seen = await page.evaluate(() => globalThis.seen.filter(Boolean));
  assert.ok(seen.some((shown) => shown.includes("\u2591")), "undecided tokens are shown");
  assert.ok(!text.includes("\u2591"), text);
  const messages = [{ role: "user", content: STORY }];
  const more = { temperature: 0, max_tokens: 12, decode_mode: "iterative" };
  const plain = await api("/v1/chat/completions", { messages, ...more });
  assert.equal(text, words(plain.choices[0].message.content));
});

test("Stop ends the answer, here and in the server", async () => {
  await open();
  await endless();
  const running = async () => (await api("/v1/loads")).num_running_reqs;
  for (const stop of [
    () => page.getByRole("button", { name: "Stop" }).click(),
    () => page.keyboard.press("Escape"),
    () => page.getByRole("button", { name: "New chat" }).click(),
    () => page.reload(),
  ]) {
    await ask(STORY);
    await until("an answer", async () => (await running()) === 1);
    // Its text depends on the stopped answers before it.
    const begun = models().last().locator(".text");
    await until("its first words", async () => (await begun.textContent()).trim() !== "");
    assert.equal(await running(), 1, "the answer goes on");
    await stop();
    await until("nothing runs", async () => (await running()) === 0);
    if (await page.locator("article").count()) {
      await page.getByText(/^stopped/).last().waitFor();
    }
    await page.getByRole("button", { name: "Send", exact: true }).waitFor();
  }
});

test("what goes wrong is said in words", async () => {
  await open();
  const long = "word ".repeat(3000).trim();
  await ask(long);
  const words = /maximum context length is 2048 tokens/;
  await page.getByRole("alert").getByText(words).waitFor();
  assert.equal(await page.getByLabel("Your message").inputValue(), long, "nothing typed is lost");
  await page.getByLabel("Temperature").fill("-1");
  await page.getByLabel("Your message").fill("Hi");
  await page.getByRole("button", { name: "Send", exact: true }).click();
  assert.equal(await page.locator("article").count(), 0, "the browser says what is wrong");
  await page.getByLabel("Temperature").fill("");
  await page.route("**/v1/chat/completions", (route) => route.abort());
  await ask("Hi");
  await page.getByRole("alert").getByText("The server does not answer.").waitFor();
});

test("text is text, and nothing comes from elsewhere", async () => {
  const [urls, violations] = [[], []];
  page.on("request", (request) => urls.push(request.url()));
  page.on("console", (message) => {
    if (/Content Security Policy/.test(message.text())) violations.push(message.text());
  });
  await open();
  await answered('<img src="/x" onerror="document.title = 1"> <script>alert(1)</script>');
  assert.equal(await page.locator("#log :is(img, script)").count(), 0);
  assert.deepEqual(violations, []);
  assert.ok(urls.every((url) => url.startsWith(base) || url.startsWith("data:")), urls.join());
  await page.evaluate(() => {
    const script = document.createElement("script");
    script.textContent = "document.title = 1";
    document.body.append(script);
  });
  await until("the policy stops a script", () => violations.length === 1);
});

test("everybody can use it", async () => {
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    await page.setViewportSize({ width: 360, height: 640 });
    await page.goto(base);
    if (colorScheme === "light") {
      await page.getByLabel("Key, kept").waitFor();
      await accessible("the question for a key");
      await open();
    }
    await accessible("an empty chat");
    await answered(STORY);
    await ask("word ".repeat(3000));
    await page.getByRole("alert").waitFor();
    await accessible("a chat");
    for (const name of ["Settings", "Chats"]) {
      await page.getByRole("button", { name, exact: true }).click();
      await accessible(name);
      await page.keyboard.press("Escape");
    }
    const width = await page.evaluate("document.documentElement.scrollWidth");
    assert.ok(width <= 360, `nothing sticks out: ${width}`);
  }
});

/** Answers requests in the server's place, with this text. */
async function says(...texts) {
  await page.route("**/v1/chat/completions", (route) => {
    const event = (value) => `data: ${JSON.stringify(value)}\n\n`;
    const [delta, rest] = [texts.shift(), {}];
    rest.usage = { completion_tokens: 3 };
    rest.timings = { decode_tokens_per_second: 5, tokens_per_pass: 1, first_token_seconds: 0.1 };
    const chunks = [
      { choices: [{ delta }] },
      { choices: [{ delta: {}, finish_reason: "stop" }] },
      { choices: [], ...rest },
    ];
    const body = `${chunks.map(event).join("")}data: [DONE]\n\n`;
    return route.fulfill({ contentType: "text/event-stream", body });
  });
}

test("Markdown is shown, and code can be copied", async () => {
  await open();
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  const content = [
    "# Title", "Some **bold**, *slanted* and `coded` words, 2*3*4 and snake_case_name.", "",
    "- one", "- two", "  - inner", "", "1. first", "2. second", "", "> quoted", "",
    "| a | b |", "|---|:-:|", "| 1 | <b>2</b> |", "",
    "[good](https://example.org/x) [bad](javascript:alert(1)) <i>raw</i>", "",
    "```rust", "fn main() {", "    // <script>", "}", "```", "The end",
  ].join("\n");
  await says({ content, reasoning_content: "Let me think." });
  await ask("Hi");
  await answer(0);
  const body = models().locator(".text");
  const texts = async (selector) => body.locator(selector).allTextContents();
  assert.deepEqual(await texts("h2"), ["Title"]);
  assert.deepEqual(await texts("strong"), ["bold"]);
  assert.deepEqual(await texts("em"), ["slanted"]);
  assert.deepEqual(await texts("p code"), ["coded"]);
  assert.deepEqual(await texts("ul ul li"), ["inner"]);
  assert.deepEqual(await texts("ol li"), ["first", "second"]);
  assert.deepEqual(await texts("blockquote"), ["quoted"]);
  assert.deepEqual(await texts("td"), ["1", "<b>2</b>"]);
  assert.deepEqual(await texts("a"), ["good"]);
  assert.equal(await body.locator("a").getAttribute("href"), "https://example.org/x");
  assert.deepEqual(await texts("figcaption span"), ["rust"]);
  assert.equal(await body.locator(":is(i, b, script)").count(), 0, "no markup of the model");
  await page.getByRole("button", { name: "Copy code" }).click();
  await page.getByRole("button", { name: "Copied" }).waitFor();
  const copied = await page.evaluate("navigator.clipboard.readText()");
  assert.equal(copied, "fn main() {\n    // <script>\n}");
  const thought = models().locator("details p");
  assert.equal(await thought.isVisible(), false, "thinking is folded");
  await page.getByText("Thinking", { exact: true }).click();
  assert.equal(await thought.textContent(), "Let me think.");
  await accessible("Markdown");
});

test("a long answer of marks takes no time", async () => {
  await open();
  const content = ["*".repeat(9000), "`".repeat(9000), "[".repeat(9000), "> ".repeat(3000), "- ".repeat(2000),
    `${" ".repeat(20)}- x\n`.repeat(500), "|".repeat(5000), "_a".repeat(4000)].join("\n\n");
  await says({ content });
  const begin = Date.now();
  await answered("Hi");
  assert.ok(Date.now() - begin < 20_000, `${Date.now() - begin} ms`);
});

test("chats are kept in this browser, and can be deleted", async () => {
  await open();
  const first = await answered(STORY);
  await page.getByRole("button", { name: "New chat" }).click();
  await page.getByLabel("Max tokens").fill("8");
  await answered("Who is there?");
  await page.reload();
  await page.getByText("default", { exact: true }).waitFor();
  assert.equal(await page.getByLabel("Max tokens").inputValue(), "8", "settings are kept too");
  assert.equal(await page.locator("article").count(), 0, "a new chat");
  const chats = page.getByRole("button", { name: "Chats" });
  await chats.click();
  const kept = page.locator("#kept li button:first-child");
  assert.deepEqual(await kept.allTextContents(), ["Who is there?", STORY], "the latest first");
  await page.getByRole("button", { name: STORY, exact: true }).click();
  const again = await answer(0);
  assert.equal(again.text, first.text);
  // The chat goes on where it was.
  let sent;
  page.on("request", (request) => (sent = request.postDataJSON?.() ?? sent));
  await answered("And then?");
  assert.deepEqual(sent.messages.map(({ role }) => role), ["user", "assistant", "user"]);
  await chats.click();
  await page.getByRole("button", { name: "Delete Who is there?" }).click();
  assert.deepEqual(await kept.allTextContents(), [STORY]);
  await page.getByRole("button", { name: "Delete all" }).click();
  await page.getByText("There are none yet.").waitFor();
  await page.getByRole("button", { name: "Close" }).click();
  assert.equal(await page.evaluate("localStorage.getItem('wf-conversations')"), null);
  // Not everybody wants them kept.
  await page.getByRole("button", { name: "Settings" }).click();
  await page.getByLabel("Keep chats in this browser").uncheck();
  await page.getByRole("button", { name: "Close" }).click();
  await page.getByRole("button", { name: "New chat" }).click();
  await answered("Who is there?");
  assert.equal(await page.evaluate("localStorage.getItem('wf-conversations')"), null);
});

test("a question is edited, and an answer made again", async () => {
  await open();
  const sent = [];
  page.on("request", (request) => request.url().endsWith("completions") && sent.push(request.postDataJSON()));
  await says({ content: "One." }, { content: "Two." }, { content: "Three." }, { content: "Four." });
  await answered("First?");
  await answered("Second?");
  await page.getByRole("button", { name: "Regenerate" }).last().click();
  await models().getByText("Three.").waitFor();
  const texts = () => page.locator("article .text").allInnerTexts();
  assert.deepEqual(await texts(), ["First?", "One.", "Second?", "Three."]);
  await page.getByRole("button", { name: "Edit" }).first().click();
  await page.getByLabel("Edit your message").fill("Another?");
  await page.getByRole("button", { name: "Send again" }).click();
  await models().getByText("Four.").waitFor();
  assert.deepEqual(await texts(), ["Another?", "Four."]);
  assert.deepEqual(sent.at(-1).messages, [{ role: "user", content: "Another?" }]);
  await page.getByRole("button", { name: "Edit" }).click();
  await page.getByRole("button", { name: "Cancel" }).click();
  assert.deepEqual(await texts(), ["Another?", "Four."], "nothing changed");
});

test("suggestions, a system prompt, settings and files are sent", async () => {
  await open();
  const sent = [];
  page.on("request", (request) => request.url().endsWith("completions") && sent.push(request.postDataJSON()));
  await says({ content: "A." }, { content: "B." });
  await page.getByRole("button", { name: "Settings" }).click();
  await page.getByLabel("System prompt").fill("Be short.");
  await page.getByLabel("Top p").fill("0.9");
  await page.getByLabel("Seed").fill("7");
  await page.getByLabel("Thinking").selectOption("off");
  await page.getByRole("button", { name: "Close" }).click();
  await page.getByRole("button", { name: "What does a shepherd do?" }).click();
  await answer(0);
  assert.deepEqual(sent[0].messages, [
    { role: "system", content: "Be short." },
    { role: "user", content: "What does a shepherd do?" },
  ]);
  const { top_p, seed, enable_thinking } = sent[0];
  assert.deepEqual({ top_p, seed, enable_thinking }, { top_p: 0.9, seed: 7, enable_thinking: false });

  const file = (name, buffer) => ({ name, mimeType: "text/plain", buffer: Buffer.from(buffer) });
  const files = page.getByLabel("Text files", { exact: true });
  await files.setInputFiles([file("a.md", "x ``` y\n"), file("b.txt", "b")]);
  await page.getByRole("button", { name: "Remove b.txt" }).click();
  await answered("What is it?");
  assert.equal(sent[1].messages.at(-1).content, "File a.md:\n````\nx ``` y\n````\n\nWhat is it?");
  await page.getByText("a.md (2 lines)").waitFor();
  for (const [name, bytes, part] of [
    ["large.txt", "x".repeat(300_000), "is larger than 256 KiB"],
    ["image.png", [0x89, 0x50, 0xff, 0x00], "is no text"],
  ]) {
    await files.setInputFiles([file(name, bytes)]);
    await page.getByRole("alert").getByText(`${name} ${part}`).waitFor();
  }
  assert.equal(await page.locator("#files li").count(), 0);
});

test("suggestions fit the model that is served", async () => {
  await open();
  const suggestions = () => page.locator("#suggestions button").allTextContents();
  const own = await suggestions();
  assert.equal(own.length, 4);
  assert.ok(!own.join().includes("rainbow"), "the model inside the program cannot explain it");
  const card = (id, n_params) => ({ id, status: { value: "loaded" }, meta: n_params && { n_params } });
  const data = [card("large", 2e9), card("small", 6e6), card("not loaded")];
  await page.route("**/v1/models", (route) => route.fulfill({ json: { object: "list", data } }));
  await page.reload();
  const models = page.locator("#models");
  await models.waitFor();
  const general = await suggestions();
  assert.ok(general.join().includes("rainbow"));
  for (const [name, expected] of [["small", own], ["not loaded", general], ["large", general]]) {
    await models.selectOption(name);
    assert.deepEqual(await suggestions(), expected, name);
  }
  await says({ content: "Light bends." });
  await page.getByRole("button", { name: general[1] }).click();
  assert.equal((await answer(0)).text, "Light bends.");
});

test("the reference of the API has examples that can be tried", async () => {
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    await page.setViewportSize({ width: 360, height: 640 });
    await page.goto(`${base}/docs`);
    await page.getByText("/v1/chat/completions").waitFor();
    await page.getByText("/v1/chat/completions").click();
    await accessible("the reference");
    const width = await page.evaluate("document.documentElement.scrollWidth");
    assert.ok(width <= 360, `nothing sticks out: ${width}`);
  }
  const chat = page.locator("details", { hasText: "/v1/chat/completions" });
  await chat.getByRole("button", { name: "Try it" }).click();
  const response = chat.getByLabel("Response", { exact: true });
  await response.getByText("401").waitFor();
  await page.getByLabel("API key").fill(KEY);
  await chat.getByRole("button", { name: "Try it" }).click();
  await response.getByText("[DONE]").waitFor();
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await chat.getByRole("button", { name: "Copy as curl" }).click();
  await chat.getByRole("button", { name: "Copied" }).waitFor();
  const command = await page.evaluate("navigator.clipboard.readText()");
  assert.match(command, /^curl -X POST 'http:.*\/v1\/chat\/completions' -H .* -d '\{/s);
  assert.ok(!command.includes(KEY), "the key is not in it");
  const bodies = Object.entries((await api("/openapi.json")).paths).flatMap(([path, item]) =>
    Object.values(item).map((operation) => [path, operation.requestBody?.content["application/json"]]));
  for (const [path, body] of bodies) if (body) assert.ok(body.example, path);
});

/** What axe finds wrong: names, contrast, order. */
async function accessible(what) {
  await page.evaluate(axe.source);
  const { violations } = await page.evaluate("axe.run()");
  const found = violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html).join(" ")}`);
  assert.deepEqual(found, [], what);
}
