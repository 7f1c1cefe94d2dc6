/** The panel with the engine's state. */

import type { EngineInfo } from "wrinklefree";
import { byId, createElement } from "./dom.js";
import type { ModelManager, ModelState } from "./model_manager.js";
import { showError, hideError } from "./notice.js";
import { formatNumber, formatBytes } from "./format.js";

/** The panel next to the conversation. */
export class Panel {
  constructor(readonly model: ModelManager) {
    model.watch((state) => this.#show(state));
    byId("free").onclick = () => void model.free();
    byId("load").onclick = () => void model.open();
    const threads = byId<HTMLSelectElement>("threads");
    threads.onchange = () => {
      model.threads = threads.value === "auto" ? "auto" : Number(threads.value);
      void model.open();
    };
  }

  #show(state: ModelState): void {
    byId("loading").hidden = state.status !== "loading";
    byId("load").hidden = state.status === "ready" || state.status === "loading";
    byId("free").hidden = state.status !== "ready";
    switch (state.status) {
      case "loading":
        return this.#progress(state);
      case "ready":
        return this.#ready(state.info);
      case "failed":
        return this.#failed(state);
      case "freed":
        byId("status").textContent = "The memory is free. The next question loads the model again.";
        return byId("facts").replaceChildren();
    }
  }

  #progress({ progress }: Extract<ModelState, { status: "loading" }>): void {
    const bar = byId<HTMLProgressElement>("loading");
    const { loaded, total, cached, file } = progress ?? { loaded: 0, total: null };
    if (total) [bar.max, bar.value] = [total, loaded];
    else bar.removeAttribute("value");
    const from = cached ? "from this browser's cache" : "";
    const words = file
      ? [file, formatBytes(loaded), total ? `of ${formatBytes(total)}` : "", from]
      : ["a model"];
    byId("status").textContent = `Loading ${words.filter(Boolean).join(" ")} …`;
  }

  #ready(info: EngineInfo): void {
    hideError();
    byId("status").textContent = `${info.name} is ready.`;
    byId("facts").replaceChildren(
      ...entries(info).flatMap(([name, value, why]) => entryElements(name, value, why)),
    );
  }

  #failed({ error, previous }: Extract<ModelState, { status: "failed" }>): void {
    showError(error);
    const text = previous ? `${previous.name} is still loaded.` : "No model is loaded.";
    byId("status").textContent = text;
    byId("free").hidden = previous === null;
  }
}

/** Name, value and explanation of an entry. */
type PanelEntry = [name: string, value: string, why: string];

function entries(info: EngineInfo): PanelEntry[] {
  const parameters = `${formatNumber(info.parameters / 1e6, 1)} M parameters`;
  const shape = `${info.architecture}, ${info.layers} layers, hidden size ${info.hiddenSize}`;
  const cached = info.files.every((file) => file.cached);
  return [
    ["Model", `${info.name}, ${parameters}`, shape],
    ["Threads", String(info.threads), info.why.threads],
    ["SIMD", info.simd, info.why.simd],
    ["Memory", formatBytes(info.memoryBytes), `${formatBytes(info.weightsBytes)} of it weights`],
    ["Context", `${formatNumber(info.context)} tokens`, `of ${formatNumber(info.contextLength)}`],
    ["Loaded from", cached ? "this browser's cache" : "the source", `cache: ${info.why.cache}`],
    ...info.notes.map((note): PanelEntry => ["Note", note, ""]),
  ];
}

function entryElements(name: string, value: string, why: string): HTMLElement[] {
  const details = createElement("small", { textContent: why });
  return [createElement("dt", { textContent: name }), createElement("dd", {}, value, details)];
}
