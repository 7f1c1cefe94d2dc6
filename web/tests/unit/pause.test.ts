import { describe, expect, test } from "vitest";
import { letsTasksRun, quickPause, sharedMemoryPause } from "../../src/platform/pause.js";
import { TimeSlice } from "../../src/worker/time_slice.js";

/** A pause that takes so many milliseconds of a clock, and lets tasks run. */
function pauses(clock: { ms: number }, milliseconds: number) {
  const kind = { calls: 0, pause: async () => {} };
  kind.pause = async () => {
    kind.calls += 1;
    clock.ms += milliseconds;
    await new Promise((resolve) => setTimeout(resolve));
  };
  return kind;
}

async function afterTwenty(port: number, other: { pause(): Promise<void> } | null) {
  const clock = { ms: 0 };
  const slow = pauses(clock, port);
  const pause = quickPause(
    slow.pause,
    () => other?.pause ?? null,
    () => clock.ms,
  );
  for (let times = 0; times < 20; times++) await pause();
  return slow.calls;
}

describe("a worker's pause", () => {
  test("goes through a port where that is quick", async () => {
    expect(await afterTwenty(0.2, pauses({ ms: 0 }, 0))).toBe(20);
  });

  test("goes another way where the port is slow three times in a row", async () => {
    const other = pauses({ ms: 0 }, 0);
    expect(await afterTwenty(5, other)).toBe(3);
    expect(other.calls).toBeGreaterThanOrEqual(17);
  });

  test("stays with the port if the other way lets no tasks run, or there is none", async () => {
    expect(await afterTwenty(5, { pause: async () => {} })).toBe(20);
    expect(await afterTwenty(5, null)).toBe(20);
  });

  test("tasks that run are noticed", async () => {
    expect(await letsTasksRun(() => new Promise((resolve) => setTimeout(resolve)))).toBe(true);
    expect(await letsTasksRun(async () => {})).toBe(false);
    await sharedMemoryPause()?.();
  });
});

test("time slices are eight times as long as pauses, between 4 and 40 ms", () => {
  const slice = new TimeSlice();
  const after = (milliseconds: number) => {
    for (let times = 0; times < 40; times++) slice.paused(milliseconds);
    return slice.length;
  };
  expect(slice.length).toBe(4);
  expect(after(0.2)).toBe(4);
  expect(after(2)).toBeCloseTo(16, 1);
  expect(after(30)).toBe(40);
  slice.paused(0);
  expect(after(0.2)).toBe(4);
});
