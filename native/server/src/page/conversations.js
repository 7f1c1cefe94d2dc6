// Conversations and settings, kept in this browser (localStorage) and nowhere else.

const LIST = "wf-conversations";
const SETTINGS = "wf-settings";
/** Conversations that are kept. The oldest ones go first. */
const MOST = 100;
/** Characters of a title. */
const TITLE = 60;

function read(name, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(name)) ?? otherwise;
  } catch {
    return otherwise; // no storage, or another program's text
  }
}

/** Writes a value; false if there is no room or no storage. */
function write(name, value) {
  try {
    localStorage.setItem(name, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}

const isConversation = (c) => typeof c?.id === "string" && Array.isArray(c.messages);

/** Returns the conversations, the latest first. */
export function conversations() {
  const all = read(LIST, []);
  return Array.isArray(all) ? all.filter(isConversation) : [];
}

/** Makes a conversation without messages. */
export function fresh(system) {
  return { id: crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`, system, messages: [] };
}

/** Keeps a conversation as the latest one. Old ones make room. */
export function keep(conversation) {
  const others = conversations().filter((c) => c.id !== conversation.id);
  const first = conversation.messages.find((m) => m.role === "user");
  const title = (first?.content || first?.files?.[0]?.name || "Conversation").trim();
  const named = { ...conversation, title: title.slice(0, TITLE), time: Date.now() };
  const all = [named, ...others].slice(0, MOST);
  while (!write(LIST, all) && all.length > 1) all.pop();
}

export function forget(id) {
  write(LIST, conversations().filter((c) => c.id !== id));
}

/** Removes all that this page has kept in this browser. */
export function forgetAll() {
  localStorage.removeItem(LIST);
}

export const settings = () => read(SETTINGS, {});
export const keepSettings = (values) => write(SETTINGS, values);
