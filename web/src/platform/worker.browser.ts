import type { WorkerPlatform } from "./platform.js";

/** A worker's side in a browser. */
export function platform(): WorkerPlatform {
  return {
    port: {
      post: (message, transfer = []) => self.postMessage(message, { transfer }),
      onMessage: (handler) => {
        self.onmessage = ({ data }) => handler(data);
      },
    },
    cores: navigator.hardwareConcurrency || 1,
    breathe: breather(),
    compile,
    file: async () => null,
  };
}

/** A message to oneself comes after those that wait already, and sooner than any timer. */
function breather(): () => Promise<void> {
  const { port1, port2 } = new MessageChannel();
  const waiting: (() => void)[] = [];
  port1.onmessage = () => waiting.shift()?.();
  return () =>
    new Promise((resolve) => {
      waiting.push(resolve);
      port2.postMessage(null);
    });
}

async function compile(url: string): Promise<WebAssembly.Module> {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url}: ${response.status} ${response.statusText}`);
  // Servers that do not know wasm send another type, and streaming insists on this one.
  return response.headers.get("content-type") === "application/wasm"
    ? WebAssembly.compileStreaming(response)
    : WebAssembly.compile(await response.arrayBuffer());
}
