import type { PagePlatform } from "./platform.js";
import { spawn } from "./spawn.browser.js";

/** The page's platform in a browser. */
export const platform: PagePlatform = {
  spawn,
  resolve: (url) => new URL(url, globalThis.document?.baseURI ?? location.href).href,
};
