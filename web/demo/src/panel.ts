/** What runs here, and why. */

import type { EngineInfo } from "wrinklefree";
import { at, make } from "./dom.js";
import type { Model, State } from "./model.js";
import { complain, quiet } from "./notice.js";
import { number, size } from "./numbers.js";

/** The panel beside the conversation. */
export class Panel {
  constructor(readonly model: Model) {
    model.watch((state) => this.#show(state));
    at("free").onclick = () => void model.free();
    at("load").onclick = () => void model.open();
    const threads = at<HTMLSelectElement>("threads");
    threads.onchange = () => {
      model.threads = threads.value === "auto" ? "auto" : Number(threads.value);
      void model.open();
    };
  }

  #show(state: State): void {
    at("loading").hidden = state.is !== "loading";
    at("load").hidden = state.is === "ready" || state.is === "loading";
    at("free").hidden = state.is !== "ready";
    switch (state.is) {
      case "loading":
        return this.#progress(state);
      case "ready":
        return this.#ready(state.info);
      case "failed":
        return this.#failed(state);
      case "freed":
        at("status").textContent = "The memory is free. A question loads the model again.";
        return at("facts").replaceChildren();
    }
  }

  #progress({ progress }: Extract<State, { is: "loading" }>): void {
    const bar = at<HTMLProgressElement>("loading");
    const { loaded, total, cached, file } = progress ?? { loaded: 0, total: null };
    if (total) [bar.max, bar.value] = [total, loaded];
    else bar.removeAttribute("value");
    const from = cached ? "from this browser's cache" : "";
    const words = file ? [file, size(loaded), total ? `of ${size(total)}` : "", from] : ["a model"];
    at("status").textContent = `Loading ${words.filter(Boolean).join(" ")} …`;
  }

  #ready(info: EngineInfo): void {
    quiet();
    at("status").textContent = `${info.name} is ready.`;
    at("facts").replaceChildren(
      ...facts(info).flatMap(([name, value, why]) => fact(name, value, why)),
    );
  }

  #failed({ error, kept }: Extract<State, { is: "failed" }>): void {
    complain(error);
    const there = kept ? `${kept.name} is still here.` : "No model is loaded.";
    at("status").textContent = there;
    at("free").hidden = kept === null;
  }
}

/** Name, value, and why it is so. */
type Fact = [name: string, value: string, why: string];

function facts(info: EngineInfo): Fact[] {
  const parameters = `${number(info.parameters / 1e6, 1)} M parameters`;
  const shape = `${info.architecture}, ${info.layers} layers, hidden size ${info.hiddenSize}`;
  const cached = info.files.every((file) => file.cached);
  return [
    ["Model", `${info.name}, ${parameters}`, shape],
    ["Threads", String(info.threads), info.why.threads],
    ["SIMD", info.simd, info.why.simd],
    ["Memory", size(info.memoryBytes), `${size(info.weightsBytes)} of it weights`],
    ["Context", `${number(info.context)} tokens`, `of ${number(info.contextLength)}`],
    ["Loaded from", cached ? "this browser's cache" : "the source", `cache: ${info.why.cache}`],
    ...info.notes.map((note): Fact => ["Note", note, ""]),
  ];
}

function fact(name: string, value: string, why: string): HTMLElement[] {
  const details = make("small", { textContent: why });
  return [make("dt", { textContent: name }), make("dd", {}, value, details)];
}
