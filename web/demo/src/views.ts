/** Which of the views is shown: the one that the address names. */

import { at } from "./dom.js";

const VIEWS = ["chat", "race"];

export function views(): void {
  const show = () => {
    const view = VIEWS.find((name) => `#${name}` === location.hash) ?? "chat";
    for (const name of VIEWS) {
      at(name).hidden = name !== view;
      at(`to-${name}`).ariaCurrent = name === view ? "page" : null;
    }
  };
  addEventListener("hashchange", show);
  show();
}
