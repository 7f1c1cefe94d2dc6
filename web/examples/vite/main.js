import { load } from "wrinklefree";

const out = document.getElementById("out");
const engine = await load();
for await (const part of engine.stream("Tell me a story about a fox.")) out.append(part.text);
