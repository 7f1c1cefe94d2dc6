// `node chromium.mjs test|bench MODULE` runs the module in headless Chromium.
import { readFile } from "node:fs/promises";
import { chromium } from "playwright-core";

const [what, file] = process.argv.slice(2);
const pageSide = new URL("page.mjs", import.meta.url);
const files = {
  "/": ["text/html", "<!doctype html><title>kernels</title>"],
  "/page.mjs": ["text/javascript", await readFile(pageSide)],
  "/module.wasm": ["application/wasm", await readFile(file)],
};

// Chromium's own sandbox does not run as root.
const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
const page = await browser.newPage();
// No server is needed: the files are served from here.
await page.route("http://localhost/**", (route) => {
  const [contentType, body] = files[new URL(route.request().url()).pathname] ?? [];
  return contentType ? route.fulfill({ contentType, body }) : route.abort();
});
await page.exposeFunction("print", (line) => console.log(line));
await page.goto("http://localhost/");
const failed = await page.evaluate(
  async ([what, engine]) => {
    const pageSide = await import("/page.mjs");
    const bytes = await (await fetch("/module.wasm")).arrayBuffer();
    return what === "bench" ? pageSide.bench(bytes, print) : pageSide.test(bytes, engine, print);
  },
  [what, `Chromium ${browser.version()}`],
);
await browser.close();
if (failed) process.exitCode = 1;
