import { load } from "wrinklefree";

const engine = await load();
const out = document.getElementById("out");
out.textContent = await engine.generate("Tell me a story about a fox.");
