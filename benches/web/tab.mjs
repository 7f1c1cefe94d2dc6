// A page in headless Chromium that runs page.mjs.

import { readFileSync } from "node:fs";
import { chromium } from "playwright-core";
import { serve } from "./serve.mjs";

const FLAGS = [
  ...["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"],
  ...["--disable-background-networking", "--disable-component-update"],
];

/** Opens the page. `call(name, …)` calls a function that page.mjs exports. */
export async function openTab() {
  const { BENCH_DIST, BENCH_HOME, CHROMIUM } = process.env;
  const { url, close } = await serve({
    dist: BENCH_DIST,
    models: `${BENCH_HOME}/models`,
    wllama: `${BENCH_HOME}/node_modules/@wllama/wllama/esm`,
    bench: BENCH_HOME,
  });
  const browser = await chromium.launch({ executablePath: CHROMIUM, args: FLAGS });
  const page = await browser.newPage();
  page.on("console", (message) => {
    if (message.type() === "error") console.error(`the page: ${message.text()}`);
  });
  await page.goto(url);
  const call = (name, ...args) =>
    page.evaluate(
      async ([name, args]) => (await import("/bench/page.mjs"))[name](...args),
      [name, args],
    );
  return {
    call,
    version: browser.version(),
    isolated: await page.evaluate("crossOriginIsolated"),
    /** Returns the peak memory of the tab's process in bytes, including the browser's own code. */
    async peak() {
      const session = await browser.newBrowserCDPSession();
      const { processInfo } = await session.send("SystemInfo.getProcessInfo");
      const peaks = processInfo.filter(({ type }) => type === "renderer").map(({ id }) => {
        const status = readFileSync(`/proc/${id}/status`, "utf8");
        return Number(status.match(/VmHWM:\s+(\d+) kB/)[1]) * 1024;
      });
      return Math.max(...peaks);
    },
    async close() {
      await browser.close();
      close();
    },
  };
}
