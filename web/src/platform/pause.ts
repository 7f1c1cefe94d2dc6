/**
 * Pauses of a worker between two time slices, in which it handles its messages.
 *
 * A message to its own port is served at once by Chromium and Firefox (0.2 ms). WebKit sends it through the
 * page's main thread: 5 ms, and 26 ms next to a page that paints. There a wait on shared memory takes
 * 0.2 ms and lets messages in. Firefox lets none in during such a wait, so it is tried before it is used.
 */

/** A pause. Messages that wait are handled before it resolves. */
export type Pause = () => Promise<void>;

/** Milliseconds above which a pause is slow. */
const SLOW_MS = 1;
/** Number of slow pauses in a row after which another kind is tried. */
const PATIENCE = 3;

/** Returns the pause by port, which a faster kind replaces where ports are slow. */
export function quickPause(
  port: Pause = portPause(),
  other: () => Pause | null = sharedMemoryPause,
  now: () => number = () => performance.now(),
): Pause {
  let pause = port;
  let slow = 0;
  return async () => {
    const began = now();
    await pause();
    if (slow >= PATIENCE) return;
    slow = now() - began > SLOW_MS ? slow + 1 : 0;
    if (slow < PATIENCE) return;
    const candidate = other();
    if (candidate && (await letsTasksRun(candidate))) pause = candidate;
  };
}

/** Posts a message to itself: it arrives after those that are waiting, and sooner than a timer. */
function portPause(): Pause {
  const { port1, port2 } = new MessageChannel();
  const resolvers: (() => void)[] = [];
  port1.onmessage = () => resolvers.shift()?.();
  return () =>
    new Promise((resolve) => {
      resolvers.push(resolve);
      port2.postMessage(null);
    });
}

/** Younger than the standard library's types. */
type WaitAsync = (
  words: Int32Array,
  index: number,
  value: number,
) => { async: boolean; value: Promise<unknown> | string };

/** Waits for a word of shared memory and wakes itself. `null` where that is not possible. */
export function sharedMemoryPause(): Pause | null {
  const { waitAsync } = Atomics as unknown as { waitAsync?: WaitAsync };
  if (!waitAsync || typeof SharedArrayBuffer === "undefined") return null;
  const words = new Int32Array(new SharedArrayBuffer(4));
  return async () => {
    const { value } = waitAsync.call(Atomics, words, 0, 0);
    Atomics.notify(words, 0);
    await value;
  };
}

/** Returns true if timers, and so messages, are handled during pauses of this kind. */
export async function letsTasksRun(pause: Pause): Promise<boolean> {
  let ran = false;
  setTimeout(() => (ran = true));
  const end = performance.now() + 20;
  while (!ran && performance.now() < end) await pause();
  return ran;
}
