/** Installation of the service worker, which serves the page offline and enables threads. */

/** Maximum milliseconds that the first visit waits for the service worker. */
const TIMEOUT_MS = 8000;
/** Storage key that is set while the page reloads for its headers, so that it reloads only once. */
const RELOADED_KEY = "loaded again";

/** Installs the service worker. Files that are loaded afterwards are available offline. */
export async function installServiceWorker(): Promise<void> {
  if (!navigator.serviceWorker) return;
  try {
    const known = await navigator.serviceWorker.getRegistration();
    await navigator.serviceWorker.register("sw.js");
    // If a worker was active and the page bypassed it (forced reload), it will never control it.
    if (!known?.active) await Promise.race([controlled(), sleep(TIMEOUT_MS)]);
  } catch (error) {
    // Private windows and plain HTTP have no service workers. The page works without.
    console.info("This page works without its service worker:", error);
    return;
  }
  const again = sessionStorage.getItem(RELOADED_KEY) !== null;
  sessionStorage.removeItem(RELOADED_KEY);
  if (crossOriginIsolated || again || !navigator.serviceWorker.controller) return;
  sessionStorage.setItem(RELOADED_KEY, "");
  location.reload();
  // Nothing else starts before the reload.
  await new Promise(() => {});
}

/** Resolves when the service worker controls the page. */
async function controlled(): Promise<void> {
  if (navigator.serviceWorker.controller) return;
  await new Promise((resolve) => {
    navigator.serviceWorker.addEventListener("controllerchange", resolve, { once: true });
  });
}

function sleep(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}
