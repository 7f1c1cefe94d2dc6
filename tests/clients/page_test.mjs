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
  const args = ["serve", "--port", "0", "--threads", "1", "--api-key", KEY];
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

/** Asks; the answer and what stands below it. */
async function answered(text) {
  const answers = page.getByRole("article", { name: "Model" });
  const count = await answers.locator("footer").count();
  await ask(text);
  await answers.nth(count).locator("footer").waitFor();
  const [paragraph, footer] = ["p", "footer"].map((part) => answers.nth(count).locator(part));
  return { text: await paragraph.textContent(), figures: await footer.textContent() };
}

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
  assert.equal(await page.evaluate("localStorage.length"), 0);
  await page.reload();
  await page.getByText("default", { exact: true }).waitFor();
  assert.equal(await key.isVisible(), false);
  // As if the key had changed on the server: the page asks for it, and then the answer arrives.
  await page.evaluate("sessionStorage.setItem('key', 'an old key')");
  await ask(STORY);
  await key.fill(KEY);
  await key.press("Enter");
  await page.locator("article footer").waitFor();
});

test("an answer streams, and says what it cost", async () => {
  await open();
  await ask(STORY);
  const paragraph = page.getByRole("article", { name: "Model" }).locator("p");
  const lengths = new Set();
  await until("an answer", async () => {
    lengths.add((await paragraph.textContent()).length);
    return page.locator("article footer").count();
  });
  assert.ok(lengths.size > 3, `text grows: ${[...lengths]}`);
  const figures = await page.locator("article footer").textContent();
  const [tokens, rate, perPass, first] = figures.split(" · ");
  assert.match(tokens, /^\d+ tokens$/);
  assert.match(rate, /^[\d.,]+ tok\/s$/);
  assert.match(perPass, /^\d\.\d\d tokens per pass$/);
  assert.match(first, /^first after [\d,]+ ms$/);

  const messages = [{ role: "user", content: STORY }];
  const want = await api("/v1/chat/completions", { messages, temperature: 0 });
  assert.equal(await paragraph.textContent(), want.choices[0].message.content);

  await page.setViewportSize({ width: 800, height: 420 });
  const second = await answered("What did the fox do?");
  const below = await page
    .locator("#log")
    .evaluate((log) => log.scrollHeight - log.scrollTop - log.clientHeight);
  assert.ok(below < 2, `the end stays in sight: ${below} pixels are below`);
  messages.push(want.choices[0].message, { role: "user", content: "What did the fox do?" });
  const next = await api("/v1/chat/completions", { messages, temperature: 0 });
  assert.equal(second.text, next.choices[0].message.content, "it knows what was said before");
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
    const words = page.getByRole("article", { name: "Model" }).last().locator("p");
    await until("its first words", async () => (await words.textContent()).trim() !== "");
    assert.equal(await running(), 1, "the answer goes on");
    await stop();
    await until("nothing runs", async () => (await running()) === 0);
    if (await page.locator("article").count()) {
      await page.getByText(/^stopped/).last().waitFor();
    }
    await page.getByRole("button", { name: "Send" }).waitFor();
  }
});

test("what goes wrong is said in words", async () => {
  await open();
  const long = "word ".repeat(3000).trim();
  await ask(long);
  const words = /maximum context length is 512 tokens/;
  await page.getByRole("alert").getByText(words).waitFor();
  assert.equal(await page.getByLabel("Your message").inputValue(), long, "nothing typed is lost");
  await page.getByLabel("Temperature").fill("-1");
  await page.getByLabel("Your message").fill("Hi");
  await page.getByRole("button", { name: "Send" }).click();
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
    const width = await page.evaluate("document.documentElement.scrollWidth");
    assert.ok(width <= 360, `nothing sticks out: ${width}`);
  }
});

/** What axe finds wrong: names, contrast, order. */
async function accessible(what) {
  await page.evaluate(axe.source);
  const { violations } = await page.evaluate("axe.run()");
  const found = violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html).join(" ")}`);
  assert.deepEqual(found, [], what);
}
