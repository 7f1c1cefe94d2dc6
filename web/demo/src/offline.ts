/** The service worker: works offline, and isolates the page so that it may have threads. */

/** Milliseconds that the first visit waits for it. */
const PATIENCE = 8000;
/** Set while the page loads again for its headers, which it does only once. */
const AGAIN = "loaded again";

/** Installs it. What is loaded after this is kept for later visits. */
export async function prepare(): Promise<void> {
  if (!navigator.serviceWorker) return;
  try {
    const known = await navigator.serviceWorker.getRegistration();
    await navigator.serviceWorker.register("sw.js");
    // A page that was loaded past a worker that is there will never be its own.
    if (!known?.active) await Promise.race([controlled(), pause(PATIENCE)]);
  } catch (error) {
    // Private windows and plain HTTP have none: everything else still works.
    console.info("This page works without its service worker:", error);
    return;
  }
  const again = sessionStorage.getItem(AGAIN) !== null;
  sessionStorage.removeItem(AGAIN);
  if (crossOriginIsolated || again || !navigator.serviceWorker.controller) return;
  sessionStorage.setItem(AGAIN, "");
  location.reload();
  // Nothing is begun that is about to be lost.
  await new Promise(() => {});
}

/** Resolves when requests go through it. */
async function controlled(): Promise<void> {
  if (navigator.serviceWorker.controller) return;
  await new Promise((resolve) => {
    navigator.serviceWorker.addEventListener("controllerchange", resolve, { once: true });
  });
}

function pause(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}
