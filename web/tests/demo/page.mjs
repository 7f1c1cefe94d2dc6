// The page in headless Chromium, and what its tests do again and again.

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { readFile, readdir } from "node:fs/promises";
import { chromium } from "playwright-core";

const PLACES = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
export const STORY = "Tell me a story about a fox named Pip.";

export function launch() {
  const executablePath = process.env.CHROMIUM ?? PLACES.find((place) => existsSync(place));
  // Chromium's own sandbox does not run as root.
  return chromium.launch({ executablePath, args: ["--no-sandbox"] });
}

/** A new visitor's page. What goes wrong in it is in its `faults`. */
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

/** The same for a test, with its model loaded. */
export async function open(t, browser, ...args) {
  const page = await visit(browser, ...args);
  t.after(() => page.context().close());
  await page.getByText("default is ready.").waitFor();
  return page;
}

export async function openFiles(page, files) {
  await page.locator("#file").setInputFiles(files);
}

export async function full(page) {
  await page.locator("#pace").fill("7");
}

export async function choose(page, mode) {
  await page.getByRole("radio", { name: mode, exact: true }).check({ force: true });
}

export async function ask(page, text) {
  await page.getByLabel("Your message").fill(text);
  await page.getByLabel("Your message").press("Enter");
}

/** Asks; the answer and what stands below it. */
export async function answered(page, text) {
  const answers = page.getByRole("article", { name: "Model" });
  const count = await answers.count();
  await ask(page, text);
  const answer = answers.nth(count);
  await answer.locator("footer").waitFor();
  // The footer says that all is computed; the last of it is shown with the next picture.
  await answer.and(page.locator('[aria-busy="false"]')).waitFor();
  const [paragraph, figures] = [answer.locator("p"), answer.locator("footer span")];
  return { text: await paragraph.textContent(), figures: await figures.textContent() };
}

/** What the panel says, and why it is so. */
export async function fact(page, name) {
  const term = page.locator("#facts dt", { hasText: name });
  const said = term.locator("xpath=following-sibling::dd[1]");
  return said.evaluate((dd) => [...dd.childNodes].map((node) => node.textContent).join(": "));
}

/** Bytes of memory that the processes of pages have. */
export async function resident(browser) {
  const statuses = await processes(browser, (id) => readFile(`/proc/${id}/status`, "utf8"));
  const kilobytes = statuses.map((status) => Number(status.match(/VmRSS:\s+(\d+)/)?.[1] ?? 0));
  return 1024 * kilobytes.reduce((sum, one) => sum + one, 0);
}

/**
 * How many threads of workers there are. The operating system is asked: Playwright does not hear of
 * the end of a worker whose own parent ends at the same time.
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

/** What is asked of each process of a page. */
async function processes(browser, ask) {
  const session = await browser.newBrowserCDPSession();
  const { processInfo } = await session.send("SystemInfo.getProcessInfo");
  await session.detach();
  const pages = processInfo.filter(({ type }) => type === "renderer");
  return Promise.all(pages.map(({ id }) => ask(id).catch(gone)));
}

/** A process, or a thread, may be gone by now. */
const gone = () => "";

export async function until(what, holds) {
  for (let tries = 0; tries < 1200; tries++) {
    if (await holds()) return;
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
  assert.fail(`${what}: not in half a minute`);
}
