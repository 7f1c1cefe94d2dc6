// Shows /openapi.json: fields, an example of each request, and a button that sends it.

import { copied } from "./markdown.js";

const make = (tag, text = "", kind = "") => {
  const element = document.createElement(tag);
  element.textContent = text;
  if (kind) element.className = kind;
  return element;
};

const key = document.getElementById("key");
key.value = sessionStorage.getItem("key") ?? "";
key.onchange = () => sessionStorage.setItem("key", key.value.trim());

/** Characters of a response that are shown. */
const LONGEST = 200_000;

class Reference {
  constructor(api) {
    this.api = api;
  }

  found(schema) {
    return schema.$ref ? this.api.components.schemas[schema.$ref.split("/").pop()] : schema;
  }

  /** Describes the values that a field accepts, in one line. */
  type(given, depth = 0) {
    const schema = this.found(given);
    const one = schema.oneOf ?? schema.anyOf ?? schema.allOf;
    if (one) return one.map((each) => this.type(each, depth)).filter((t) => t !== "null").join(" or ");
    if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
    if (schema.items) return `array of ${this.type(schema.items, depth)}`;
    if (schema.properties && depth < 2) {
      const inside = Object.entries(schema.properties);
      return `{${inside.map(([name, of]) => `${name}: ${this.type(of, depth + 1)}`).join(", ")}}`;
    }
    return [schema.type ?? "any"].flat().filter((t) => t !== "null").join(" or ");
  }

  fields(schema) {
    const parts = (schema.allOf ?? [schema]).map((part) => this.found(part));
    const table = make("table");
    const required = new Set(parts.flatMap((part) => part.required ?? []));
    for (const [name, field] of parts.flatMap((part) => Object.entries(part.properties ?? {}))) {
      const row = table.insertRow();
      row.insertCell().append(make("code", name), make("span", required.has(name) ? " *" : ""));
      row.insertCell().append(make("code", this.type(field)), make("span", range(field), "note"));
      row.insertCell().textContent = field.description ?? "";
    }
    return wide(table);
  }

  endpoint(path, method, operation) {
    const details = make("details");
    const summary = make("summary");
    const says = make("span", ` ${operation.summary}`, "says");
    summary.append(make("span", method.toUpperCase(), "method"), make("code", path), says);
    details.append(summary);
    const content = operation.requestBody?.content["application/json"];
    // Long tables are made when they are opened.
    details.ontoggle = () => {
      details.ontoggle = null;
      details.append(...trial(path, method, content?.example));
      if (content) {
        details.append(make("h2", "Fields"), this.fields(content.schema));
        details.append(make("p", "* must be there", "note"));
      }
      details.append(make("h2", "Responses"), responses(operation));
    };
    return details;
  }
}

const range = ({ minimum, maximum }) =>
  [minimum !== undefined && ` from ${minimum}`, maximum !== undefined && ` to ${maximum}`].filter(Boolean).join("");

function wide(table) {
  const scrolls = make("div", "", "wide");
  scrolls.append(table);
  scrolls.tabIndex = 0;
  return scrolls;
}

function responses(operation) {
  const table = make("table");
  for (const [status, { description, content }] of Object.entries(operation.responses)) {
    const row = table.insertRow();
    row.insertCell().append(make("code", status));
    row.insertCell().textContent = description;
    row.insertCell().append(make("code", Object.keys(content ?? {}).join(", ")));
  }
  return wide(table);
}

/** Returns the example of a request, which can be changed and sent. */
function trial(path, method, example) {
  const parts = [make("h2", "Example")];
  const names = [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name);
  const values = names.map((name) => {
    const [label, field] = [make("label", `${name} `), make("input")];
    label.append(field);
    parts.push(label);
    return [name, field];
  });
  let area;
  if (example !== undefined) {
    area = make("textarea");
    area.value = JSON.stringify(example, null, 2);
    area.rows = Math.min(16, area.value.split("\n").length);
    area.ariaLabel = `Body of ${method.toUpperCase()} ${path}`;
    area.spellcheck = false;
    parts.push(area);
  }
  const target = () =>
    values.reduce((at, [name, field]) => at.replace(`{${name}}`, encodeURIComponent(field.value)), path);
  const [send, stop, copy] = ["Try it", "Stop", "Copy as curl"].map((text) => make("button", text));
  stop.hidden = true;
  stop.className = copy.className = "plain";
  const output = make("pre");
  output.hidden = true;
  output.tabIndex = 0;
  output.ariaLabel = "Response";
  copy.onclick = () => copied(copy, curl(target(), method, area?.value));
  send.onclick = () => run(target(), method, area?.value, { send, stop, output });
  return [...parts, make("br"), send, stop, copy, output];
}

/** Returns a shell command for a request. */
function curl(path, method, body) {
  const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const url = new URL(path.slice(1), document.baseURI).href;
  const parts = ["curl", method === "get" ? "" : `-X ${method.toUpperCase()}`, quoted(url)];
  if (key.value) parts.push('-H "authorization: Bearer $WF_API_KEY"');
  if (body !== undefined) parts.push("-H 'content-type: application/json'", "-d", quoted(body));
  return parts.filter(Boolean).join(" ");
}

/** Sends a request and shows the response as it arrives. */
async function run(path, method, body, { send, stop, output }) {
  const controller = new AbortController();
  stop.onclick = () => controller.abort();
  [send.disabled, stop.hidden, output.hidden] = [true, false, false];
  output.textContent = "…";
  try {
    const headers = { "content-type": "application/json" };
    if (key.value) headers.authorization = `Bearer ${key.value}`;
    const { signal } = controller;
    const response = await fetch(path.slice(1), { method: method.toUpperCase(), headers, body, signal });
    output.textContent = `${response.status} ${response.statusText}\n`;
    const kind = response.headers.get("content-type") ?? "";
    if (kind.startsWith("application/json")) {
      const text = await response.text();
      output.append(pretty(text).slice(0, LONGEST));
    } else {
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let shown = 0; shown < LONGEST; ) {
        const { done, value } = await reader.read();
        if (done) break;
        shown += value.length;
        output.append(value);
      }
      reader.cancel();
    }
  } catch (error) {
    output.append(error.name === "AbortError" ? "\nstopped" : `\n${error}`);
  }
  [send.disabled, stop.hidden] = [false, true];
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

const main = document.querySelector("main");
try {
  const api = await (await fetch("openapi.json")).json();
  document.getElementById("about").textContent = `${api.info.description} Version ${api.info.version}.`;
  const reference = new Reference(api);
  for (const [path, item] of Object.entries(api.paths)) {
    for (const [method, operation] of Object.entries(item)) {
      main.append(reference.endpoint(path, method, operation));
    }
  }
} catch (error) {
  const notice = document.getElementById("notice");
  notice.textContent = `The description of the API cannot be read: ${error}`;
  notice.hidden = false;
}
