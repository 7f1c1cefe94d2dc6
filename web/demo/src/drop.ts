/** Runs a model file that is dropped onto the page, or chosen. */

import { WrinkleFreeError } from "wrinklefree";
import { at } from "./dom.js";
import type { Model } from "./model.js";
import { complain, quiet } from "./notice.js";

/** Lets files come in. */
export function acceptFiles(model: Model): void {
  const input = at<HTMLInputElement>("file");
  input.onchange = () => {
    open(model, [...(input.files ?? [])]);
    input.value = "";
  };
  at("choose").onclick = () => input.click();
  at("built-in").onclick = () => void model.open("default");
  acceptDrops(model);
}

function acceptDrops(model: Model): void {
  // Each element that the pointer comes to enters before the one it leaves is left.
  let depth = 0;
  const over = (change: number) => {
    depth = Math.max(depth + change, 0);
    at("drop").hidden = depth === 0;
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
      complain(new WrinkleFreeError("bad_source", "that is a folder: drop the files in it"));
    } else {
      open(model, [...files]);
    }
  });
}

function hasFiles({ dataTransfer }: DragEvent): boolean {
  return dataTransfer?.types.includes("Files") ?? false;
}

function open(model: Model, files: readonly File[]): void {
  if (files.length === 0) return;
  quiet();
  void model.open(files);
}
