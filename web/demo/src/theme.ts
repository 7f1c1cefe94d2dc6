/** The page's theme: light, dark, or the system's. */

import { byId } from "./dom.js";

const THEMES = ["auto", "light", "dark"];
const KEY = "theme";

/** Sets up the button that switches between themes. */
export function initTheme(): void {
  const button = byId("theme");
  const show = (theme: string) => {
    document.documentElement.dataset.theme = theme;
    button.textContent = `Theme: ${theme}`;
  };
  let theme = THEMES.find((known) => known === localStorage.getItem(KEY)) ?? "auto";
  show(theme);
  button.onclick = () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length] as string;
    localStorage.setItem(KEY, theme);
    show(theme);
  };
}
