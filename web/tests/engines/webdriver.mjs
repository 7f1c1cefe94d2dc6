// A client of WebDriver (W3C), as far as the tests need it: WebKit has no other way in.

import { spawn } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { createServer } from "node:net";

const LIBRARIES = "/usr/lib/x86_64-linux-gnu";

/** Starts WebKit's MiniBrowser on a screen of its own. */
export async function launchWebKit() {
  const [port, screen] = [await freePort(), await startScreen()];
  const driver = spawn("WebKitWebDriver", [`--port=${port}`], {
    env: {
      ...process.env,
      DISPLAY: screen.display,
      // Shared memory is off by default in WebKitGTK; the sandbox does not run as root.
      JSC_useSharedArrayBuffer: "1",
      WEBKIT_DISABLE_SANDBOX_THIS_IS_DANGEROUS: "1",
    },
    stdio: "ignore",
  });
  const call = async (method, path, body) => {
    const options = { method, ...(body ? { body: JSON.stringify(body) } : {}) };
    const response = await fetch(`http://127.0.0.1:${port}${path}`, options);
    const { value } = await response.json();
    if (response.ok) return value;
    throw new Error(`${method} ${path}: ${value.error}: ${value.message}`);
  };
  await answers(() => call("GET", "/status"));
  const options = { binary: miniBrowser(), args: ["--automation"] };
  const capabilities = { alwaysMatch: { "webkitgtk:browserOptions": options } };
  const { sessionId } = await call("POST", "/session", { capabilities });
  const session = `/session/${sessionId}`;
  await call("POST", `${session}/timeouts`, { script: 300_000, pageLoad: 60_000 });
  return {
    goto: (url) => call("POST", `${session}/url`, { url }),
    async evaluate(body, args) {
      const script = `
        const [done, args] = [arguments[arguments.length - 1], arguments[0]];
        (async () => (${body})(...args))().then(
          (value) => done({ value }),
          (error) => done({ error: String(error), stack: error?.stack }),
        );`;
      const result = await call("POST", `${session}/execute/async`, { script, args: [args] });
      if (result.error !== undefined) throw new Error(`${result.error}\n${result.stack}`);
      return result.value;
    },
    async close() {
      await call("DELETE", session).catch(() => {});
      driver.kill();
      screen.close();
    },
  };
}

function miniBrowser() {
  const folders = existsSync(LIBRARIES) ? readdirSync(LIBRARIES) : [];
  const paths = folders
    .filter((name) => name.startsWith("webkit2gtk-"))
    .map((name) => `${LIBRARIES}/${name}/MiniBrowser`);
  const found = [process.env.MINIBROWSER, ...paths].find((path) => path && existsSync(path));
  if (!found) throw new Error("no MiniBrowser: install webkit2gtk-driver");
  return found;
}

/** Starts an X server, which chooses a free display. */
async function startScreen() {
  const args = ["-displayfd", "3", "-screen", "0", "1280x900x24", "-nolisten", "tcp"];
  const server = spawn("Xvfb", args, { stdio: ["ignore", "ignore", "ignore", "pipe"] });
  const number = await new Promise((resolve, reject) => {
    server.stdio[3].once("data", (data) => resolve(String(data).trim()));
    server.once("error", reject);
    server.once("exit", (code) => reject(new Error(`Xvfb exited with code ${code}`)));
  });
  return { display: `:${number}`, close: () => server.kill() };
}

async function freePort() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** Waits until a call succeeds, for at most 30 seconds. */
async function answers(call) {
  for (let tries = 0; ; tries++) {
    try {
      return await call();
    } catch (error) {
      if (tries === 300) throw error;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
}
