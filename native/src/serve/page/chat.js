// A chat over /v1/chat/completions. Model output is only inserted as text, never as HTML.

const at = (id) => document.getElementById(id);
const [log, notice, form, question] = ["log", "notice", "ask", "question"].map(at);
const [send, stop] = ["send", "stop"].map(at);
// For screen readers: a region that is announced, and one that changes too often for that.
const [status, speed] = ["status", "rate"].map(at);

/** Name of the model that answers; of several, one that is in memory. */
let model;
/** The conversation so far, in the API's format. */
let messages = [];
/** Aborts the answer that is being streamed; null if there is none. */
let running = null;

/** An error with a message for the user. */
class Problem extends Error {}

/** Sends a request with the key of this tab; asks for another key until the server accepts it. */
async function request(path, options = {}) {
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

function explain(error) {
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
async function* events(response) {
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

/** Shows a message and returns the nodes that can still change. */
function show(role, content) {
  at("welcome").hidden = true;
  const article = document.createElement("article");
  article.className = role;
  article.ariaLabel = role === "user" ? "You" : "Model";
  const [text, paragraph] = [document.createTextNode(content), document.createElement("p")];
  paragraph.append(text);
  article.append(paragraph);
  log.append(article);
  log.scrollTop = log.scrollHeight;
  return { article, text };
}

/** Returns the text node of an answer's folded thinking, made when its first text arrives. */
function thinking(answered) {
  if (!answered.thinking) {
    const elements = ["details", "summary", "p"].map((tag) => document.createElement(tag));
    const [fold, summary, paragraph] = elements;
    summary.textContent = "Thinking";
    answered.thinking = document.createTextNode("");
    paragraph.append(answered.thinking);
    fold.append(summary, paragraph);
    answered.article.prepend(fold);
  }
  return answered.thinking;
}

function note(article, words) {
  const footer = document.createElement("footer");
  footer.textContent = words.filter(Boolean).join(" · ");
  grow(() => article.append(footer));
}

/** Makes a change that adds lines, and scrolls to the end if it was in sight, within some lines. */
function grow(change) {
  const follows = log.scrollHeight - log.scrollTop - log.clientHeight < 100;
  change();
  if (follows) log.scrollTop = log.scrollHeight;
}

const number = (value, digits) =>
  value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });

/** Describes tokens and times of an answer, from the last chunk. */
function figures({ usage, timings }) {
  const rate = timings.decode_tokens_per_second;
  return [
    `${number(usage.completion_tokens, 0)} tokens`,
    `${number(rate, rate < 100 ? 1 : 0)} tok/s`,
    `${number(timings.tokens_per_pass, 2)} tokens per pass`,
    `first after ${number(1000 * timings.first_token_seconds, 0)} ms`,
  ];
}

/** Returns the body of a request. Empty fields are left out, so the server's defaults apply. */
function body() {
  const value = (id) => (at(id).value === "" ? undefined : at(id).valueAsNumber);
  return JSON.stringify({
    model,
    messages,
    stream: true,
    stream_options: { include_usage: true },
    decode_mode: at("mode").value,
    temperature: value("temperature"),
    max_tokens: value("max-tokens"),
  });
}

/** Streams an answer into the page. */
async function answer(answered) {
  const { article, text } = answered;
  const { signal } = running;
  const response = await request("v1/chat/completions", { method: "POST", body: body(), signal });
  let [reason, pieces, begin] = [null, 0, 0];
  for await (const chunks of events(response)) {
    for (const chunk of chunks) {
      if (chunk.error) throw explain(chunk.error) ?? new Problem("The answer broke off.");
      const [choice] = chunk.choices;
      const { content, reasoning_content: thought } = choice?.delta ?? {};
      if (thought) grow(() => thinking(answered).appendData(thought));
      if (content) grow(() => text.appendData(content));
      if (thought || content) {
        begin ||= performance.now();
        pieces++;
      }
      reason = choice?.finish_reason ?? reason;
      if (chunk.timings) {
        note(article, [...figures(chunk), reason === "length" && "cut at max tokens"]);
      }
    }
    const rate = (1000 * pieces) / (performance.now() - begin);
    if (pieces > 20) speed.textContent = `about ${number(rate, 0)} tok/s`;
  }
}

async function converse(content) {
  running = new AbortController();
  working(true);
  messages.push({ role: "user", content });
  const [asked, answered] = [show("user", content), show("assistant", "")];
  answered.article.ariaBusy = "true";
  const own = messages;
  try {
    await answer(answered);
  } catch (error) {
    if (error.name === "AbortError") note(answered.article, ["stopped", speed.textContent]);
    else complain(error);
  }
  answered.article.ariaBusy = "false";
  if (answered.text.data || answered.thinking) {
    own.push({ role: "assistant", content: answered.text.data });
  } else {
    // Nothing arrived, so the question can be sent again.
    own.pop();
    asked.article.remove();
    answered.article.remove();
    if (own === messages && !question.value) question.value = content;
  }
  running = null;
  working(false);
}

function working(now) {
  send.hidden = now;
  stop.hidden = !now;
  status.textContent = now ? "answering" : "";
  speed.textContent = "";
  question.focus();
}

function complain(error) {
  notice.textContent = error instanceof Problem ? error.message : `A bug in this page: ${error}`;
  notice.hidden = false;
  if (!(error instanceof Problem)) console.error(error);
}

form.onsubmit = (event) => {
  event.preventDefault();
  const content = question.value.trim();
  if (running || !content) return;
  notice.hidden = true;
  question.value = "";
  converse(content);
};

question.onkeydown = (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  form.requestSubmit();
};

stop.onclick = () => running?.abort();
document.onkeydown = (event) => {
  if (event.key === "Escape" && !at("key-dialog").open) running?.abort();
};

at("new").onclick = () => {
  running?.abort();
  messages = [];
  for (const article of log.querySelectorAll("article")) article.remove();
  at("welcome").hidden = false;
  notice.hidden = true;
  question.focus();
};

/** Shows the name of the model; waits while it is being loaded. */
async function greet() {
  for (;;) {
    const response = await fetch("health");
    if (response.status !== 503) break;
    at("model").textContent = "is loading its model";
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
  const { data } = await (await request("v1/models")).json();
  const loaded = data.find(({ status }) => status.value === "loaded");
  model = (loaded ?? data[0])?.id;
  at("model").textContent = model ?? "has no models yet";
}

greet().catch(complain);
