/** Signals that follow others. (`AbortSignal.any` is younger than Node 20.) */

/** Returns a controller that aborts with `signal`, and that may abort before. */
export function following(signal: AbortSignal): AbortController {
  const controller = new AbortController();
  if (signal.aborted) controller.abort(signal.reason);
  const follow = () => controller.abort(signal.reason);
  // The listener goes with the controller's own end.
  signal.addEventListener("abort", follow, { once: true, signal: controller.signal });
  return controller;
}
