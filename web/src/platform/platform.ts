/** What differs between browsers and Node. */

import type { Bytes } from "../worker/bytes.js";

/** A worker, seen from outside. */
export interface Thread {
  post(message: unknown, transfer?: Transferable[]): void;
  /** Called when it breaks or ends by itself. */
  onBroken(handler: (message: string) => void): void;
  onMessage<T>(handler: (message: T) => void): void;
  /** Whether it keeps the process alive (Node only). */
  hold(busy: boolean): void;
  terminate(): void;
}

/** What the page's side needs. */
export interface PagePlatform {
  /**
   * Starts a worker. Only the page does: Chromium may keep a worker and one that it started, and
   * all their memory, for ever when both end at once.
   */
  spawn(url: string): Thread;
  /** The absolute URL of what a user gave. */
  resolve(url: string | URL): string;
}

/** The end of a line to the page, or to another worker. */
export interface Port {
  post(message: unknown, transfer?: Transferable[]): void;
  onMessage<T>(handler: (message: T) => void): void;
}

/** A line's end as it came, or goes, with a message. */
export function portOf(port: MessagePort): Port {
  return {
    post: (message, transfer = []) => port.postMessage(message, transfer),
    onMessage: (handler) => {
      port.onmessage = ({ data }) => handler(data);
    },
  };
}

/** What a worker needs. */
export interface WorkerPlatform {
  port: Port;
  /** Logical cores. */
  cores: number;
  /** Lets waiting messages in. */
  breathe(): Promise<void>;
  compile(url: string): Promise<WebAssembly.Module>;
  /** The bytes behind a URL that `fetch` does not reach, `null` for all others. */
  file(url: string): Promise<Bytes | null>;
}
