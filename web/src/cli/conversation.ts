/** A conversation in the terminal: messages, and the commands between them. */

import type { ChatMessage } from "../chat_types.js";
import type { Engine } from "../engine.js";
import { WrinkleFreeError } from "../errors.js";
import type { GenerateOptions } from "../types.js";
import { AnswerView } from "./answer.js";

const HELP = `\
/reset        forget the conversation
/system TEXT  forget the conversation and start it with a system message; without TEXT none
/regen        answer the last message again
/thinking     the thinking before the last answer
/help         this text
/quit         leave, like Ctrl-D
Ctrl-C stops an answer.`;

/** Errors after which a conversation cannot continue. */
const FATAL = new Set(["crashed", "disposed", "internal"]);

/** Messages so far, and the model that answers. */
export class Conversation {
  #messages: ChatMessage[] = [];
  #reasoning = "";

  constructor(
    readonly engine: Engine,
    readonly options: GenerateOptions,
  ) {
    if (engine.info().chat) return;
    const { name } = engine.info();
    const advice = "`wrinklefree generate --raw` continues text with it";
    throw new WrinkleFreeError("no_chat_template", `${name} has no chat template: ${advice}`);
  }

  /** Answers a line or follows its command. Returns false if the user wants to leave. */
  async take(line: string, signal: AbortSignal): Promise<boolean> {
    const [, command, rest = ""] = /^\/(\w+)\s*(.*)$/.exec(line.trim()) ?? [];
    if (!command) {
      if (line.trim()) await this.#say(line, signal);
      return true;
    }
    switch (command) {
      case "quit":
        return false;
      case "reset":
        this.#restart(this.#system);
        return true;
      case "system":
        this.#restart(rest ? [{ role: "system", content: rest }] : []);
        return true;
      case "regen":
        await this.#regenerate(signal);
        return true;
      case "thinking":
        console.error(this.#reasoning || "(no thinking)");
        return true;
      default:
        console.error(command === "help" ? HELP : `there is no /${command}: /help lists commands`);
        return true;
    }
  }

  /** The system message, if there is one. */
  get #system(): ChatMessage[] {
    return this.#messages.slice(0, 1).filter(({ role }) => role === "system");
  }

  #restart(messages: ChatMessage[]): void {
    this.#messages = messages;
    console.error(messages.length ? "(a new conversation with a system message)" : "(a new one)");
  }

  async #regenerate(signal: AbortSignal): Promise<void> {
    const before = this.#messages;
    const question = before.at(-2);
    if (question?.role !== "user") return console.error("there is no answer yet");
    this.#messages = before.slice(0, -2);
    if (!(await this.#say(String(question.content), signal))) this.#messages = before;
  }

  /** Lets the model answer. A message that fails counts as not said. */
  async #say(content: string, signal: AbortSignal): Promise<boolean> {
    const messages = [...this.#messages, { role: "user", content }];
    const view = new AnswerView("folded");
    try {
      const options = { ...this.options, signal, watch: false };
      for await (const part of this.engine.stream(messages, options)) view.show(part);
    } catch (error) {
      if (!signal.aborted) return this.#report(error, view);
    }
    view.end();
    this.#reasoning = view.reasoning;
    this.#messages = [...messages, { role: "assistant", content: view.text }];
    return true;
  }

  #report(error: unknown, view: AnswerView): false {
    if (!(error instanceof WrinkleFreeError) || FATAL.has(error.code)) throw error;
    if (view.text) process.stdout.write("\n");
    const tooLong = error.code === "context_length_exceeded";
    const advice = tooLong ? " (/reset starts a new conversation, --context N a longer one)" : "";
    console.error(`error: ${error.message}${advice}`);
    return false;
  }
}
