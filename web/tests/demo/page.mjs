// The page in headless Chromium, and helper functions for its tests.

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { readFile, readdir } from "node:fs/promises";
import { chromium } from "playwright-core";

const EXECUTABLES = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
export const STORY = "Tell me a story about a fox named Pip.";

export function launch() {
  const executablePath = process.env.CHROMIUM ?? EXECUTABLES.find((path) => existsSync(path));
  // Chromium's own sandbox does not run as root.
  return chromium.launch({ executablePath, args: ["--no-sandbox"] });
}

/** Opens the page in a new browser context. Its errors are collected in `faults`. */
export async function visit(browser, url, options = {}, prepare = () => {}) {
  const context = await browser.newContext(options);
  prepare(context);
  const page = await context.newPage();
  page.setDefaultTimeout(30_000);
  page.faults = [];
  page.on("pageerror", (error) => page.faults.push(String(error)));
  page.on("console", (message) => {
    if (message.type() === "error") page.faults.push(message.text());
  });
  await page.goto(url);
  return page;
}

/** Opens the page for a test and waits for its model. */
export async function open(t, browser, ...args) {
  const page = await visit(browser, ...args);
  t.after(() => page.context().close());
  await page.getByText("default is ready.").waitFor();
  return page;
}

/** Selects model files. */
export async function openFiles(page, files) {
  await page.locator("#file").setInputFiles(files);
}

/** Sets the playback to full speed. */
export async function fullSpeed(page) {
  await page.locator("#pace").fill("7");
}

/** Selects a decode mode. */
export async function choose(page, mode) {
  await page.getByRole("radio", { name: mode, exact: true }).check({ force: true });
}

/** Sends a message. */
export async function ask(page, text) {
  await page.getByLabel("Your message").fill(text);
  await page.getByLabel("Your message").press("Enter");
}

/** Sends a message. Returns the answer's text and the figures below it. */
export async function answered(page, text) {
  const answers = page.getByRole("article", { name: "Model" });
  const count = await answers.count();
  await ask(page, text);
  const answer = answers.nth(count);
  await answer.locator("footer").waitFor();
  // The footer appears when the answer is computed; its last part is shown one picture later.
  await answer.and(page.locator('[aria-busy="false"]')).waitFor();
  const [paragraph, figures] = [answer.locator("p"), answer.locator("footer span")];
  return { text: await paragraph.textContent(), figures: await figures.textContent() };
}

/** Returns an entry of the panel with its explanation. */
export async function fact(page, name) {
  const term = page.locator("#facts dt", { hasText: name });
  const said = term.locator("xpath=following-sibling::dd[1]");
  return said.evaluate((dd) => [...dd.childNodes].map((node) => node.textContent).join(": "));
}

/**
 * Returns the writable memory of all renderer processes in bytes. Much of a model's cache is never touched,
 * and so never resident.
 */
export async function writable(browser) {
  const statuses = await processes(browser, (id) => readFile(`/proc/${id}/status`, "utf8"));
  const kilobytes = statuses.map((status) => Number(status.match(/VmData:\s+(\d+)/)?.[1] ?? 0));
  return 1024 * kilobytes.reduce((sum, one) => sum + one, 0);
}

/**
 * Returns the number of worker threads, from the operating system. Playwright misses the end of a worker
 * whose parent ends at the same time.
 */
export async function workers(browser) {
  const threads = await processes(browser, async (id) => {
    const tasks = await readdir(`/proc/${id}/task`);
    const names = tasks.map((task) =>
      readFile(`/proc/${id}/task/${task}/comm`, "utf8").catch(gone),
    );
    return Promise.all(names);
  });
  return threads.flat().filter((name) => name.trim() === "DedicatedWorker").length;
}

/** Calls a function with the id of each renderer process. */
async function processes(browser, ask) {
  const session = await browser.newBrowserCDPSession();
  const { processInfo } = await session.send("SystemInfo.getProcessInfo");
  await session.detach();
  const pages = processInfo.filter(({ type }) => type === "renderer");
  return Promise.all(pages.map(({ id }) => ask(id).catch(gone)));
}

/** Ignores a process or thread that has ended in the meantime. */
const gone = () => "";

/** Waits until a condition holds, for at most 30 seconds. */
export async function until(what, holds) {
  for (let tries = 0; tries < 1200; tries++) {
    if (await holds()) return;
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
  assert.fail(`timed out after 30 s: ${what}`);
}
