// The three browser engines under one small interface: open a page, run a function in it.

import { existsSync } from "node:fs";
import { chromium } from "playwright-core";
import puppeteer from "puppeteer-core";
import { launchWebKit } from "./webdriver.mjs";

const CHROMIUM = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
const FIREFOX = ["/usr/bin/firefox-esr", "/usr/bin/firefox"];

/** Names of the engines, which `ENGINES` may limit: `ENGINES=webkit,firefox`. */
export const ENGINES = (process.env.ENGINES ?? "chromium,firefox,webkit").split(",");

const found = (variable, paths) =>
  process.env[variable] ?? paths.find((path) => existsSync(path)) ?? paths[0];

/**
 * Starts an engine. Its `goto(url)` opens a page, `evaluate(function, ...args)` runs a function there
 * and returns what it resolves to, both as JSON.
 */
export async function launchEngine(name) {
  const engine = await LAUNCHERS[name]();
  const evaluate = (body, ...args) => engine.evaluate(String(body), args);
  return { name, goto: engine.goto, evaluate, close: engine.close };
}

const LAUNCHERS = {
  async chromium() {
    const executablePath = found("CHROMIUM", CHROMIUM);
    // Chromium's own sandbox does not run as root.
    const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
    const page = await browser.newPage();
    return {
      goto: (url) => page.goto(url),
      evaluate: (body, args) => page.evaluate(`(${body})(...${JSON.stringify(args)})`),
      close: () => browser.close(),
    };
  },

  async firefox() {
    const executablePath = found("FIREFOX", FIREFOX);
    const options = { browser: "firefox", protocol: "webDriverBiDi", headless: true };
    const browser = await puppeteer.launch({
      ...options,
      executablePath,
      protocolTimeout: 300_000,
      timeout: 120_000,
      // Without TLS, Firefox has no service workers and no cache in tests.
      extraPrefsFirefox: { "dom.serviceWorkers.testing.enabled": true },
    });
    const page = await browser.newPage();
    return {
      goto: (url) => page.goto(url),
      evaluate: (body, args) => page.evaluate(`(${body})(...${JSON.stringify(args)})`),
      close: () => browser.close(),
    };
  },

  webkit: launchWebKit,
};
