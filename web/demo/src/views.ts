/** Switching between the views by the URL's hash. */

import { byId } from "./dom.js";

const VIEWS = ["chat", "race"];

/** Shows the view that the URL names, now and on every change. */
export function initViews(): void {
  const show = () => {
    const view = VIEWS.find((name) => `#${name}` === location.hash) ?? "chat";
    for (const name of VIEWS) {
      byId(name).hidden = name !== view;
      byId(`to-${name}`).ariaCurrent = name === view ? "page" : null;
    }
  };
  addEventListener("hashchange", show);
  show();
}
