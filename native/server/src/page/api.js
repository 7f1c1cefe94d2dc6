// Requests to this server, with the key of this tab.

const at = (id) => document.getElementById(id);

/** An error with a message for the user. */
export class Problem extends Error {}

/** Sends a request with the key of this tab; asks for another key until the server accepts it. */
export async function request(path, options = {}) {
  for (;;) {
    const key = sessionStorage.getItem("key");
    const headers = { "content-type": "application/json" };
    if (key) headers.authorization = `Bearer ${key}`;
    const response = await fetch(path, { ...options, headers }).catch((error) => {
      if (error.name === "AbortError") throw error;
      throw new Problem("The server does not answer. Is it still running?");
    });
    if (response.ok) return response;
    if (response.status !== 401) throw await problem(response);
    await askForKey(key !== null);
  }
}

/** Returns the error message of a response. */
async function problem(response) {
  const body = await response.json().catch(() => null);
  return explain(body?.error) ?? new Problem(`The server answered with status ${response.status}.`);
}

/** Returns the problem that an error of the API means; null if it has no message. */
export function explain(error) {
  if (!error?.message) return null;
  const text = error.message[0].toUpperCase() + error.message.slice(1);
  const help = {
    context_length_exceeded: "A new chat begins with an empty one.",
    unavailable: "It may be there in a moment.",
  };
  return new Problem([`${text}.`, help[error.code]].filter(Boolean).join(" "));
}

/** Asks the user for a key; resolves when one was entered. */
function askForKey(wrong) {
  const [dialog, field] = [at("key-dialog"), at("key")];
  at("key-wrong").hidden = !wrong;
  field.value = "";
  if (!dialog.open) dialog.showModal();
  return new Promise((resolve, reject) => {
    at("key-form").onsubmit = (event) => {
      event.preventDefault();
      sessionStorage.setItem("key", field.value.trim());
      dialog.oncancel = null;
      dialog.close();
      resolve();
    };
    dialog.oncancel = () => reject(new Problem("Without an API key this server does not answer."));
  });
}

/** Yields the JSON of a response's server-sent events, in arrays of those that have arrived. */
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw new Problem("The connection broke off before the answer was complete.");
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    const data = lines.filter((line) => line.startsWith("data: ")).map((line) => line.slice(6));
    const end = data.indexOf("[DONE]");
    yield (end < 0 ? data : data.slice(0, end)).map((text) => JSON.parse(text));
    if (end >= 0) return;
  }
}
