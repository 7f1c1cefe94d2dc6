/** Light, dark, or as the system has it. */

import { at } from "./dom.js";

const THEMES = ["auto", "light", "dark"];
const KEY = "theme";

/** The button that goes from one to the next. */
export function themes(): void {
  const button = at("theme");
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
