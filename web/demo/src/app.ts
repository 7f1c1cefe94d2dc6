/** Puts the page together. */

import { Chart } from "./chart.js";
import { Chat } from "./chat.js";
import { acceptFiles } from "./drop.js";
import { Model } from "./model.js";
import { prepare } from "./offline.js";
import { Pace } from "./pace.js";
import { Panel } from "./panel.js";
import { Race } from "./race.js";
import { Settings } from "./settings.js";
import { themes } from "./theme.js";
import { views } from "./views.js";

themes();
views();
const model = new Model(prepare());
const settings = new Settings();
const parts = { model, settings, pace: new Pace(), chart: new Chart() };
const [chat, race] = [new Chat(parts), new Race(parts)];
new Panel(model);
model.watch((state) => {
  if (state.is === "ready") settings.fit(state.info);
});
acceptFiles(model);
document.onkeydown = ({ key }) => {
  if (key === "Escape") for (const view of [chat, race]) view.stop();
};
void model.open();
