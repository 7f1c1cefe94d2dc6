// A chat over /v1/chat/completions.

import { Problem, events, explain, request } from "./api.js";
import { conversations, forget, forgetAll, fresh, keep, keepSettings, settings } from "./conversations.js";
import { Attachments } from "./files.js";
import { Shown, forApi } from "./messages.js";

const at = (id) => document.getElementById(id);
const [log, notice, form, question] = ["log", "notice", "ask", "question"].map(at);
const [send, stop, models] = ["send", "stop", "models"].map(at);
// For screen readers: a region that is announced, and one that changes too often for that.
const [status, speed] = ["status", "rate"].map(at);

/** Suggestions for a model that knows a small world of stories, as the one inside the program. */
const FOR_STORIES = [
  "Tell me a story about a fox named Pip.",
  "Tell me a bedtime story about an elephant and a mouse.",
  "Anna has 7 apples. She finds 5 more. How many apples does Anna have now?",
  "What does a shepherd do?",
];
/** Suggestions for all other models. */
const FOR_ALL = [
  "Tell me a story about a fox named Pip.",
  "Explain in three sentences how a rainbow forms.",
  "Write a short poem about rain.",
  "List five ideas for a rainy afternoon.",
];
/** Decode modes whose answers come about slot by slot. */
const DENOISING = ["iterative", "adaptive", "greedy"];
/** Stands for a token that is not decided yet. */
const MASK = "\u2591";
/** A model with fewer parameters gets the suggestions for stories. */
const ENOUGH_PARAMETERS = 5e7;

/** The models that answer by block diffusion unless a mode is chosen. */
let denoising = [];
/** Name of the model that answers; of several, first one that is in memory. */
let model;
/** The conversation on the page. */
let conversation = fresh(settings().system ?? "");
/** Its messages on the page. */
let shown = [];
/** Aborts the answer that is being streamed; null if there is none. */
let running = null;

const attachments = new Attachments(at("files"), complain);

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

/** True if answers are shown as a whole after each pass. */
function denoises() {
  const mode = at("mode").value;
  return DENOISING.includes(mode) || (mode === "auto" && denoising.includes(model));
}

/** Returns the body of a request. Empty fields are left out, so the server's defaults apply. */
function body(messages) {
  const value = (id) => (at(id).value === "" ? undefined : at(id).valueAsNumber);
  const { system } = conversation;
  const thinking = at("thinking").value;
  return JSON.stringify({
    model,
    messages: [...(system ? [{ role: "system", content: system }] : []), ...messages.map(forApi)],
    stream: true,
    stream_options: { include_usage: true },
    diffusing: denoises() || undefined,
    decode_mode: at("mode").value,
    temperature: value("temperature"),
    max_tokens: value("max-tokens"),
    top_p: value("top-p"),
    top_k: value("top-k"),
    seed: value("seed"),
    enable_thinking: thinking === "" ? undefined : thinking === "on",
  });
}

/** Streams an answer into the page. Returns the words about it. */
async function answer(answered, messages) {
  const [{ signal }, whole] = [running, denoises()];
  const options = { method: "POST", body: body(messages), signal };
  const response = await request("v1/chat/completions", options);
  let [reason, pieces, begin, words] = [null, 0, 0, []];
  for await (const chunks of events(response)) {
    let [content, newest] = ["", null];
    for (const chunk of chunks) {
      if (chunk.error) throw explain(chunk.error) ?? new Problem("The answer broke off.");
      const [choice] = chunk.choices;
      const { content: part, reasoning_content: thought } = choice?.delta ?? {};
      if (whole && part != null) newest = { content: part, reasoning: thought };
      else if (thought) answered.think(thought);
      if (!whole) content += part ?? "";
      if (!whole && (thought || part)) {
        begin ||= performance.now();
        pieces++;
      }
      reason = choice?.finish_reason ?? reason;
      if (chunk.timings) words = [...figures(chunk), reason === "length" && "cut at max tokens"];
    }
    if (newest) answered.replace(newest);
    if (content) answered.append(content);
    const rate = (1000 * pieces) / (performance.now() - begin);
    if (pieces > 20) speed.textContent = `about ${number(rate, 0)} tok/s`;
  }
  return words;
}

/** Answers the last message of the conversation. */
async function reply() {
  running = new AbortController();
  working(true);
  const [own, asked] = [conversation, shown.at(-1)];
  const message = { role: "assistant", content: "" };
  const answered = new Shown(message);
  answered.article.ariaBusy = "true";
  let words = [];
  try {
    words = await answer(answered, own.messages);
  } catch (error) {
    if (error.name === "AbortError") words = ["stopped", speed.textContent];
    else complain(error);
    // What has come before the first undecided token stays.
    answered.replace({ content: message.content.split(MASK)[0], reasoning: message.reasoning });
  }
  answered.article.ariaBusy = "false";
  if (message.content || message.reasoning) {
    message.figures = words.filter(Boolean);
    own.messages.push(message);
    if (own === conversation) add(answered);
    else answered.remove();
    save(own);
  } else {
    answered.remove();
    if (own === conversation) takeBack(asked);
  }
  running = null;
  working(false);
}

/** Puts a question that got no answer back, so that it can be sent again. */
function takeBack(asked) {
  conversation.messages.pop();
  shown.pop();
  asked.remove();
  if (!question.value) question.value = asked.message.content;
  if (asked.message.files?.length && !attachments.files.length) attachments.put(asked.message.files);
  at("welcome").hidden = shown.length > 0;
}

/** Takes a message that is on the page into the list, with what can be done with it. */
function add(one) {
  shown.push(one);
  at("welcome").hidden = true;
  const idle = (act) => () => {
    if (!running) act();
  };
  const again = idle(() => {
    // The question of this answer is before it.
    cut(shown.indexOf(one));
    reply();
  });
  const edit = idle(() => one.edit((content) => {
    const { files } = one.message;
    cut(shown.indexOf(one));
    say(content, files);
  }));
  const copy = (button) => one.copy(button);
  const actions = one.message.role === "user" ? { Edit: edit } : { Copy: copy, Regenerate: again };
  one.finish(one.message.figures ?? [], actions);
}

/** Drops the messages from this one on. */
function cut(index) {
  for (const one of shown.splice(index)) one.remove();
  conversation.messages.length = index;
  notice.hidden = true;
}

/** Says something, and shows the answer. */
function say(content, files = []) {
  const message = { role: "user", content, ...(files.length && { files }) };
  conversation.messages.push(message);
  add(new Shown(message));
  return reply();
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

/** Keeps a conversation in this browser, if the user wants that. */
function save(one) {
  if (at("keep").checked) keep(one);
  list();
}

/** Shows a conversation; without one, an empty one. */
function open(one = fresh(at("system").value)) {
  running?.abort();
  conversation = one;
  for (const message of shown) message.remove();
  for (const article of log.querySelectorAll("article")) article.remove();
  shown = [];
  at("system").value = one.system ?? "";
  at("welcome").hidden = false;
  notice.hidden = true;
  for (const message of one.messages) add(new Shown(message));
  question.focus();
}

/** Lists the conversations that are kept. */
function list() {
  const items = conversations().map((one) => {
    const [item, pick, remove] = ["li", "button", "button"].map((tag) => document.createElement(tag));
    pick.type = remove.type = "button";
    pick.textContent = one.title;
    pick.onclick = () => {
      at("history").close();
      open(one);
    };
    remove.textContent = "Delete";
    remove.ariaLabel = `Delete ${one.title}`;
    remove.onclick = () => {
      forget(one.id);
      if (one.id === conversation.id) open();
      list();
    };
    item.append(pick, remove);
    return item;
  });
  at("kept").replaceChildren(...items);
  at("none-kept").hidden = items.length > 0;
  at("forget").hidden = items.length === 0;
}

form.onsubmit = (event) => {
  event.preventDefault();
  const content = question.value.trim();
  if (running || (!content && !attachments.files.length)) return;
  notice.hidden = true;
  question.value = "";
  say(content, attachments.take());
};

question.onkeydown = (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  form.requestSubmit();
};

stop.onclick = () => running?.abort();
document.onkeydown = (event) => {
  if (event.key === "Escape" && !document.querySelector("dialog[open]")) running?.abort();
};

at("new").onclick = () => open();

/** Shows what one might ask a model, from its description. */
function suggest({ meta } = {}) {
  const texts = meta?.n_params < ENOUGH_PARAMETERS ? FOR_STORIES : FOR_ALL;
  const buttons = texts.map((text) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = text;
    button.onclick = () => {
      question.value = text;
      form.requestSubmit();
    };
    return button;
  });
  at("suggestions").replaceChildren(...buttons);
}

at("attach").onclick = () => at("file").click();
at("file").onchange = async () => {
  await attachments.add(at("file").files);
  at("file").value = "";
};
form.ondragover = (event) => event.preventDefault();
form.ondrop = (event) => {
  event.preventDefault();
  attachments.add(event.dataTransfer.files);
};

at("show-history").onclick = () => {
  list();
  at("history").showModal();
};
at("show-settings").onclick = () => at("settings").showModal();
for (const close of document.querySelectorAll("dialog .close")) {
  close.onclick = () => close.closest("dialog").close();
}
at("forget").onclick = () => {
  forgetAll();
  list();
};

/** Settings that are kept, by the id of their field. */
const KEPT = ["system", "mode", "temperature", "max-tokens", "top-p", "top-k", "seed", "thinking"];

function restoreSettings() {
  const values = settings();
  for (const id of KEPT) if (typeof values[id] === "string") at(id).value = values[id];
  at("keep").checked = values.keep ?? true;
}

document.onchange = ({ target: { id } }) => {
  if (id !== "keep" && !KEPT.includes(id)) return;
  conversation.system = at("system").value;
  keepSettings({
    ...Object.fromEntries(KEPT.map((id) => [id, at(id).value])),
    keep: at("keep").checked,
  });
};

/** Shows the models; waits while the only one is being loaded. */
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
  denoising = data.filter(({ meta }) => meta?.denoises).map(({ id }) => id);
  suggest(loaded ?? data[0]);
  if (data.length < 2) return;
  models.replaceChildren(...data.map(({ id }) => new Option(id)));
  models.value = model;
  models.onchange = () => {
    model = models.value;
    suggest(data.find(({ id }) => id === model));
  };
  at("model").hidden = true;
  models.parentElement.hidden = false;
}

restoreSettings();
greet().catch(complain);
