/** Entry point of the page. */

import { Chart } from "./chart.js";
import { Chat } from "./chat.js";
import { acceptFiles } from "./drop.js";
import { linkedQuestion } from "./link.js";
import { ModelManager } from "./model_manager.js";
import { installServiceWorker } from "./service_worker.js";
import { PlaybackSpeed } from "./playback_speed.js";
import { Panel } from "./panel.js";
import { Race } from "./race.js";
import { Settings } from "./settings.js";
import { initTheme } from "./theme.js";
import { initViews } from "./views.js";

initTheme();
initViews();
const model = new ModelManager(installServiceWorker());
const settings = new Settings();
const context = { model, settings, speed: new PlaybackSpeed(), chart: new Chart() };
const [chat, race] = [new Chat(context), new Race(context)];
new Panel(model);
model.watch((state) => {
  if (state.status === "ready") settings.applyModel(state.info);
});
acceptFiles(model);
document.onkeydown = ({ key }) => {
  if (key === "Escape") for (const view of [chat, race]) view.stop();
};
void openPage();

/** Loads the model, then answers the question of the page's address, if it has one. */
async function openPage(): Promise<void> {
  const question = linkedQuestion(location.href);
  await model.open();
  if (question) chat.askLinked(question);
}
