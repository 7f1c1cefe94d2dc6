// The demo page in headless Chromium, with the real modules and the model in the package.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, before, test } from "node:test";
import axe from "axe-core";
import {
  STORY,
  answered,
  ask,
  choose,
  fact,
  fullSpeed,
  launch,
  open,
  openFiles,
  until,
  visit,
  workers,
  writable,
} from "./page.mjs";
import { host } from "./server.mjs";

const MODEL = new URL("../../../models/default.wf.safetensors", import.meta.url);
let browser, isolated, plain;

before(async () => {
  browser = await launch();
  isolated = await host({ isolated: true });
  plain = await host({ isolated: false });
});

after(async () => {
  await browser?.close();
  await Promise.all([isolated?.close(), plain?.close()]);
});

test("the page loads, tells a story and answers a question about it", async (t) => {
  const page = await open(t, browser, isolated.url);
  await fullSpeed(page);
  const story = await answered(page, STORY);
  assert.match(story.text, /^[A-Z].{150,}\.$/s);
  const figures =
    /^iterative · \d+ tokens · \d+ passes · [\d.,]+ tok\/s · \d\.\d\d tokens per pass · first after/;
  assert.match(story.figures, figures);
  assert.equal(
    await page.locator("#announcement").textContent(),
    story.text,
    "announced once, at the end",
  );
  const name = (await answered(page, "Who is the story about?")).text.match(/[A-Z][a-z]+(?=\.)/);
  assert.ok(name && story.text.includes(name[0]), `${name} is in the story`);
  assert.equal(await page.locator("#chart-rate rect").count(), 2);
  assert.equal(await page.locator("#chart-rows tr").count(), 2);
  await page.getByRole("button", { name: "New chat" }).click();
  assert.equal(await page.getByRole("article").count(), 0);
  await page.getByRole("button", { name: STORY }).click();
  await page.locator("article footer").waitFor();
  assert.equal(await page.locator("article.assistant p").textContent(), story.text);
  assert.deepEqual(page.faults, []);
});

test("each decode mode has its own tokens per pass", async (t) => {
  const page = await open(t, browser, isolated.url);
  await fullSpeed(page);
  const [texts, perPass] = [{}, {}];
  for (const mode of ["AR", "Verify", "Iterative", "Adaptive", "Greedy"]) {
    await choose(page, mode);
    const { text, figures } = await answered(page, STORY);
    assert.match(figures, new RegExp(`^${mode.toLowerCase()} · `));
    texts[mode] = text;
    perPass[mode] = Number(figures.match(/([\d.]+) tokens per pass/)[1]);
    await page.getByRole("button", { name: "New chat" }).click();
  }
  assert.equal(texts.Verify, texts.AR);
  assert.ok(perPass.AR >= 0.9 && perPass.AR <= 1, perPass.AR);
  assert.ok(perPass.Iterative > 1.2 && perPass.Adaptive > perPass.Iterative, perPass);
  assert.ok(perPass.Greedy > 4, perPass.Greedy);
});

test("a lower threshold gives more tokens per pass", async (t) => {
  const page = await open(t, browser, isolated.url);
  await fullSpeed(page);
  const passes = async (threshold) => {
    await page.locator("#threshold").fill(threshold);
    const { figures } = await answered(page, STORY);
    await page.getByRole("button", { name: "New chat" }).click();
    return Number(figures.match(/([\d.]+) tokens per pass/)[1]);
  };
  assert.ok((await passes("0.5")) > (await passes("0.99")));
});

test("slow motion shows the block as it fills, with a notice", async (t) => {
  const page = await open(t, browser, isolated.url);
  assert.equal(await page.locator("#block .cells li.masked").count(), 32);
  await ask(page, STORY);
  const guess = page.locator("#block .cells li.provisional").first();
  await guess.waitFor();
  assert.match(await guess.getAttribute("title"), /, provisional, \d+ % sure$/);
  await page.getByText(/^Replay at 12 passes\/s; computed in [\d.]+ m?s\.$/).waitFor();
  const shown = await page.locator("article.assistant p").textContent();
  await page.getByRole("button", { name: "Skip" }).click();
  await page.locator("#skip").waitFor({ state: "hidden" });
  const text = await page.locator("article.assistant p").textContent();
  assert.ok(text.length > shown.length && text.startsWith(shown));
  await page.getByRole("button", { name: "Replay" }).click();
  await page.getByText("pass 3 of").waitFor();
  await page.keyboard.press("Escape");
  await page.locator("#skip").waitFor({ state: "hidden" });
  assert.equal(await page.locator("article.assistant p").textContent(), text);
});

test("Stop cancels an answer", async (t) => {
  const page = await open(t, browser, isolated.url);
  await fullSpeed(page);
  const whole = (await answered(page, STORY)).text;
  await page.getByRole("button", { name: "New chat" }).click();
  // A click from outside would come too late, so the page clicks when the first words appear.
  await page.evaluate(() => {
    const watch = new MutationObserver(() => {
      if (document.querySelector("article.assistant p")?.textContent) {
        document.getElementById("stop").click();
      }
    });
    watch.observe(document.getElementById("log"), { subtree: true, childList: true });
  });
  await ask(page, STORY);
  await page.getByText(/· stopped$/).waitFor();
  const part = await page.locator("article.assistant p").textContent();
  assert.ok(part && part.length < whole.length && whole.startsWith(part), part);
  await page.getByRole("button", { name: "Send" }).waitFor();
});

test("a race runs two requests at once, or one after the other", async (t) => {
  const page = await open(t, browser, isolated.url);
  await fullSpeed(page);
  await page.getByRole("link", { name: "Race" }).click();
  for (const how of ["At once", "One after the other"]) {
    await page.getByLabel(how).check();
    await page.getByRole("button", { name: "Start" }).click();
    await page.getByText(/^(ar|iterative) was first: [\d.]+ m?s against [\d.]+ m?s\. /).waitFor();
    for (const name of ["Left", "Right"]) {
      const lane = page.getByRole("region", { name, exact: true });
      assert.ok((await lane.locator(".text").textContent()).length > 100);
      const figures = await lane.locator("dd").allTextContents();
      assert.ok(
        figures.every((figure) => /^[\d.,]+( m?s)?$/.test(figure)),
        figures.join(),
      );
    }
    await page.getByRole("button", { name: "Start" }).waitFor();
  }
  // In slow motion the winner is named at the end only.
  await page.locator("#pace").fill("3");
  await page.getByLabel("Max tokens").fill("48");
  await page.getByRole("button", { name: "Start" }).click();
  await page.getByText("Slow motion: a replay of both on one clock.").waitFor();
  await page.getByRole("button", { name: "Skip" }).click();
  await page.getByText(/ was first: /).waitFor();
  assert.deepEqual(page.faults, []);
});

for (const kind of ["with", "without"]) {
  test(`${kind} isolation headers of the host, threads run and nothing is loaded twice`, async (t) => {
    const server = await host({ isolated: kind === "with" });
    const page = await open(t, browser, server.url);
    assert.equal(await page.evaluate("crossOriginIsolated"), true);
    assert.ok(Number.parseInt(await fact(page, "Threads")) > 1);
    assert.match(await fact(page, "Loaded from"), /^the source/);
    const heavy = () => server.log.filter((line) => /^GET .*\.(wasm|safetensors)$/.test(line));
    assert.equal(new Set(heavy()).size, heavy().length, "each once");

    server.log.length = 0;
    await page.reload();
    await page.getByText("default is ready.").waitFor();
    assert.match(await fact(page, "Loaded from"), /^this browser's cache/);
    assert.deepEqual(heavy(), []);
    assert.deepEqual(page.faults, []);

    await server.close();
    await page.reload();
    await page.getByText("default is ready.").waitFor();
    await fullSpeed(page);
    assert.ok((await answered(page, STORY)).text.length > 100, "also offline");
    assert.ok(Number.parseInt(await fact(page, "Threads")) > 1);
  });
}

test("without isolation there is one thread, with the reason", async (t) => {
  const page = await open(t, browser, plain.url, { serviceWorkers: "block" });
  assert.match(await fact(page, "Threads"), /^1: the page is not cross-origin isolated/);
  await fullSpeed(page);
  assert.ok((await answered(page, STORY)).text.length > 100);
});

test("the user can select one thread", async (t) => {
  const page = await open(t, browser, isolated.url);
  await page.locator("#threads").selectOption("1");
  await until("one thread", async () => (await fact(page, "Threads")) === "1: requested");
  await fullSpeed(page);
  assert.ok((await answered(page, STORY)).text.length > 100);
});

test("a file that is not a model is refused, and the old model stays", async (t) => {
  const page = await open(t, browser, isolated.url);
  const alert = page.getByRole("alert");
  for (const name of ["notes.txt", "notes.gguf", "notes.wf.safetensors"]) {
    const buffer = Buffer.from("milk, eggs, and honey ".repeat(50));
    await openFiles(page, [{ name, mimeType: "text/plain", buffer }]);
    await alert.getByText("This page runs packed models").waitFor();
    await page.getByText("default is still loaded.").waitFor();
  }
  await fullSpeed(page);
  assert.ok((await answered(page, STORY)).text.length > 100);
  assert.equal(await alert.isVisible(), false);
});

test("a dropped model runs", async (t) => {
  const page = await open(t, browser, isolated.url);
  const bytes = [...(await readFile(MODEL))];
  const transfer = await page.evaluateHandle((bytes) => {
    const transfer = new DataTransfer();
    transfer.items.add(new File([new Uint8Array(bytes)], "mine.wf.safetensors"));
    return transfer;
  }, bytes);
  await page.dispatchEvent("body", "dragenter", { dataTransfer: transfer });
  await page.getByText("Drop a model file to run it").waitFor();
  await page.dispatchEvent("body", "drop", { dataTransfer: transfer });
  await page.getByText("mine is ready.").waitFor();
  assert.equal(await page.getByText("Drop a model file to run it").isVisible(), false);
  await fullSpeed(page);
  assert.ok((await answered(page, STORY)).text.length > 100);
});

test("freeing the model returns its memory", async (t) => {
  const page = await open(t, browser, isolated.url);
  const engine = 1e6 * Number.parseFloat(await fact(page, "Memory"));
  const loaded = await writable(browser);
  assert.ok((await workers(browser)) > 0);
  await page.getByRole("button", { name: "Free memory" }).click();
  await page.getByText("The memory is free.").waitFor();
  await until("no worker is left", async () => (await workers(browser)) === 0);
  await until("memory", async () => loaded - (await writable(browser)) > engine / 2);
  await fullSpeed(page);
  assert.ok((await answered(page, STORY)).text.length > 100, "the next question loads it again");
});

test("no request leaves the page's origin", async (t) => {
  const urls = [];
  const page = await open(t, browser, isolated.url, {}, (context) =>
    context.on("request", (request) => urls.push(request.url())),
  );
  await fullSpeed(page);
  await answered(page, '<img src="https://example.com/x"> <script>alert(1)</script>');
  assert.equal(await page.locator("#log :is(img, script)").count(), 0);
  assert.ok(urls.length > 3);
  const own = (url) => url.startsWith(isolated.url) || url.startsWith("data:");
  assert.deepEqual(
    urls.filter((url) => !own(url)),
    [],
  );
});

test("the page is accessible", async (t) => {
  for (const colorScheme of ["light", "dark"]) {
    const viewport = { width: 360, height: 740 };
    const page = await open(t, browser, isolated.url, { colorScheme, viewport });
    await accessible(page, `${colorScheme}: an empty chat`);
    await ask(page, STORY);
    await page.locator("#block .cells li.provisional").first().waitFor();
    await page.getByText(/^Replay at/).waitFor();
    await accessible(page, `${colorScheme}: slow motion`);
    await openFiles(page, [{ name: "x.gguf", mimeType: "text/plain", buffer: Buffer.from("x") }]);
    await page.getByRole("alert").waitFor();
    await page.getByText("As a table").click();
    await accessible(page, `${colorScheme}: a chat`);
    await page.getByRole("link", { name: "Race" }).click();
    await page.getByLabel("Max tokens").fill("48");
    await page.getByRole("button", { name: "Start" }).click();
    await page.getByText("Slow motion: a replay").waitFor();
    await accessible(page, `${colorScheme}: a race`);
    const width = await page.evaluate("document.documentElement.scrollWidth");
    assert.ok(width <= 360, `the page is too wide: ${width}`);
  }
});

test("the page works with a keyboard alone", async (t) => {
  const page = await open(t, browser, isolated.url);
  const seen = [];
  for (let presses = 0; presses < 40; presses++) {
    await page.keyboard.press("Tab");
    const name = await page.evaluate(() => document.activeElement?.id || "other");
    seen.push(name);
    if (name === "built-in") break;
  }
  for (const id of ["to-race", "theme", "log", "question", "send", "pace", "threads", "choose"]) {
    assert.ok(seen.includes(id), `${id} in ${seen}`);
  }
  await page.getByRole("radio", { name: "Iterative" }).focus();
  await page.keyboard.press("ArrowRight");
  assert.equal(await page.getByRole("radio", { name: "Adaptive" }).isChecked(), true);
});

test("themes and reduced motion", async (t) => {
  const page = await open(t, browser, isolated.url, {
    colorScheme: "dark",
    reducedMotion: "reduce",
  });
  await page.getByText("full speed").waitFor();
  const paper = () => page.evaluate("getComputedStyle(document.body).backgroundColor");
  const dark = await paper();
  await page.getByRole("button", { name: "Theme: auto" }).click();
  assert.notEqual(await paper(), dark, "light");
  await page.reload();
  await page.getByRole("button", { name: "Theme: light" }).click();
  assert.equal(await paper(), dark);
});

/** Checks the page with axe: names, contrast, order. */
async function accessible(page, what) {
  await page.evaluate(axe.source);
  const { violations } = await page.evaluate("axe.run()");
  const found = violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html).join(" ")}`);
  assert.deepEqual(found, [], what);
}
