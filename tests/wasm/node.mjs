// `node node.mjs test|bench MODULE` runs the module in Node.
import { readFile } from "node:fs/promises";
import { bench, test } from "./page.mjs";

const [what, file] = process.argv.slice(2);
const bytes = await readFile(file);
if (!WebAssembly.validate(bytes)) {
  console.log(`${file}: Node ${process.version} lacks its instructions, NOT TESTED`);
} else if (what === "bench") {
  await bench(bytes, console.log);
} else if (await test(bytes, `Node ${process.version}`, console.log)) {
  process.exitCode = 1;
}
