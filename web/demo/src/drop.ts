/** Loading of model files that the user drops or chooses. */

import { WrinkleFreeError } from "wrinklefree";
import { byId } from "./dom.js";
import type { ModelManager } from "./model_manager.js";
import { showError, hideError } from "./notice.js";

/** Accepts files from the file dialog and by drag and drop. */
export function acceptFiles(model: ModelManager): void {
  const input = byId<HTMLInputElement>("file");
  input.onchange = () => {
    open(model, [...(input.files ?? [])]);
    input.value = "";
  };
  byId("choose").onclick = () => input.click();
  byId("built-in").onclick = () => void model.open("default");
  acceptDrops(model);
}

function acceptDrops(model: ModelManager): void {
  // `dragenter` of the next element comes before `dragleave` of the last one.
  let depth = 0;
  const over = (change: number) => {
    depth = Math.max(depth + change, 0);
    byId("drop").hidden = depth === 0;
  };
  addEventListener("dragenter", (event) => hasFiles(event) && over(1));
  addEventListener("dragleave", (event) => hasFiles(event) && over(-1));
  addEventListener("dragover", (event) => hasFiles(event) && event.preventDefault());
  addEventListener("drop", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    over(-depth);
    const { items, files } = event.dataTransfer as DataTransfer;
    if ([...items].some((item) => item.webkitGetAsEntry()?.isDirectory)) {
      showError(
        new WrinkleFreeError("bad_source", "a folder cannot be loaded: drop the files in it"),
      );
    } else {
      open(model, [...files]);
    }
  });
}

function hasFiles({ dataTransfer }: DragEvent): boolean {
  return dataTransfer?.types.includes("Files") ?? false;
}

function open(model: ModelManager, files: readonly File[]): void {
  if (files.length === 0) return;
  hideError();
  void model.open(files);
}
