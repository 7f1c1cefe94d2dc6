import { pathToFileURL } from "node:url";
import type { PagePlatform } from "./platform.js";
import { spawn } from "./spawn.node.js";

/** The page's platform in Node. */
export const platform: PagePlatform = {
  spawn,
  resolve: (url) =>
    url instanceof URL || /^[a-z][a-z0-9+.-]+:/i.test(url)
      ? new URL(url).href
      : pathToFileURL(url).href,
};
