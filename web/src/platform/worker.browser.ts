import { quickPause } from "./pause.js";
import type { WorkerPlatform } from "./platform.js";

/** Returns a worker's platform in a browser. */
export function platform(): WorkerPlatform {
  return {
    endpoint: {
      post: (message, transfer = []) => self.postMessage(message, { transfer }),
      onMessage: (handler) => {
        self.onmessage = ({ data }) => handler(data);
      },
    },
    cores: navigator.hardwareConcurrency || 1,
    yieldToMessages: quickPause(),
    compile,
    openFile: async () => null,
  };
}

async function compile(url: string): Promise<WebAssembly.Module> {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url}: ${response.status} ${response.statusText}`);
  // Streaming compilation requires this content type, which some servers do not send.
  return response.headers.get("content-type") === "application/wasm"
    ? WebAssembly.compileStreaming(response)
    : WebAssembly.compile(await response.arrayBuffer());
}
