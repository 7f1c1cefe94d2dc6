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

/** What starts workers needs. */
export interface Spawner {
  spawn(url: string): Thread;
}

/** What the page's side needs. */
export interface PagePlatform extends Spawner {
  /** The absolute URL of what a user gave. */
  resolve(url: string | URL): string;
}

/** The side of a worker that talks to who started it. */
export interface Port {
  post(message: unknown): void;
  onMessage<T>(handler: (message: T) => void): void;
}

/** What a worker needs. */
export interface WorkerPlatform extends Spawner {
  port: Port;
  /** Logical cores. */
  cores: number;
  /** Lets waiting messages in. */
  breathe(): Promise<void>;
  compile(url: string): Promise<WebAssembly.Module>;
  /** The bytes behind a URL that `fetch` does not reach, `null` for all others. */
  file(url: string): Promise<Bytes | null>;
}
