/** Ids of files on the Hugging Face hub: `hf:organization/name/file`, or `…/name@revision/file`. */

import { WrinkleFreeError } from "./errors.js";

const HUB = "https://huggingface.co";
const PART = "[\\w.-]+";
const ID = new RegExp(`^hf:(${PART}/${PART})(?:@([\\w./-]+?))?/((?:${PART}/)*${PART})$`);

/**
 * Returns the URL of a file on the hub; a source that is not an id is returned as it is.
 *
 * @throws {@link WrinkleFreeError} `"bad_source"` for an id that names no file
 */
export function hubUrl(source: string | URL): string | URL {
  const id = String(source);
  if (!id.startsWith("hf:")) return source;
  const [, repository, revision = "main", file = ""] = ID.exec(id) ?? [];
  if (repository && !`${repository}/${file}`.split("/").some((part) => /^\.+$/.test(part))) {
    return `${HUB}/${repository}/resolve/${encodeURIComponent(revision)}/${file}`;
  }
  const wanted = "hf:organization/name/file.gguf, with @revision after the name if need be";
  throw new WrinkleFreeError("bad_source", `${id} is not a file on the hub: expected ${wanted}`);
}
