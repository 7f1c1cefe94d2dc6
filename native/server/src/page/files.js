// Text files that go with the next message.

import { Problem } from "./api.js";

/** Bytes of a file. Models on CPUs read some hundred tokens in a second. */
const LARGEST = 256 * 1024;
/** Files of a message. */
const MOST = 8;

/** Reads a text file. */
async function read(file) {
  if (file.size > LARGEST) {
    throw new Problem(`${file.name} is larger than ${LARGEST / 1024} KiB: attach a part of it.`);
  }
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    if (!text.includes("\0")) return { name: file.name, text };
  } catch {
    // Said below.
  }
  throw new Problem(`${file.name} is no text in UTF-8.`);
}

/** The files that wait, and the element that lists them. */
export class Attachments {
  constructor(list, complain) {
    this.list = list;
    this.complain = complain;
    this.files = [];
  }

  /** Reads files and adds them. */
  async add(files) {
    for (const file of files) {
      try {
        if (this.files.length >= MOST) throw new Problem(`A message takes at most ${MOST} files.`);
        this.files.push(await read(file));
      } catch (error) {
        this.complain(error);
      }
    }
    this.show();
  }

  /** Takes the files that wait. */
  take() {
    const taken = this.files;
    this.put([]);
    return taken;
  }

  /** Lets these files wait. */
  put(files) {
    this.files = files;
    this.show();
  }

  show() {
    const chips = this.files.map((file) => {
      const [chip, remove] = [document.createElement("li"), document.createElement("button")];
      chip.textContent = file.name;
      remove.type = "button";
      remove.textContent = "×";
      remove.ariaLabel = `Remove ${file.name}`;
      remove.onclick = () => this.put(this.files.filter((other) => other !== file));
      chip.append(remove);
      return chip;
    });
    this.list.replaceChildren(...chips);
    this.list.hidden = !chips.length;
  }
}
