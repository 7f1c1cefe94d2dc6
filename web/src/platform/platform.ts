/** Interfaces that hide the differences between browsers and Node. */

import type { ByteSource } from "../worker/byte_source.js";

/** A worker, as the page that started it sees it. */
export interface WorkerHandle {
  post(message: unknown, transfer?: Transferable[]): void;
  /** Sets the function to call when the worker fails or exits by itself. */
  onFailure(handler: (message: string) => void): void;
  onMessage<T>(handler: (message: T) => void): void;
  /** Says if the worker keeps the process alive. It has no effect in browsers. */
  keepAlive(busy: boolean): void;
  terminate(): void;
}

/** Functions that the page needs. */
export interface PagePlatform {
  /**
   * Starts a worker. Workers must not start other workers: when both end at the same time, Chromium
   * sometimes never frees them.
   */
  spawn(url: string): WorkerHandle;
  /** Makes a URL of the user absolute. */
  resolve(url: string | URL): string;
}

/** An end of a message channel to the page or to another worker. */
export interface Endpoint {
  post(message: unknown, transfer?: Transferable[]): void;
  onMessage<T>(handler: (message: T) => void): void;
}

/** Wraps a message port. */
export function endpointOf(port: MessagePort): Endpoint {
  return {
    post: (message, transfer = []) => port.postMessage(message, transfer),
    onMessage: (handler) => {
      port.onmessage = ({ data }) => handler(data);
    },
  };
}

/** Functions that a worker needs. */
export interface WorkerPlatform {
  /** Channel to the page. */
  endpoint: Endpoint;
  /** Number of logical cores. */
  cores: number;
  /** Resolves after the messages that are waiting have been handled. */
  yieldToMessages(): Promise<void>;
  compile(url: string): Promise<WebAssembly.Module>;
  /** Opens a URL that `fetch` cannot read; returns `null` for all others. */
  openFile(url: string): Promise<ByteSource | null>;
}
