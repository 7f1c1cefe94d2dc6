// Runs the module in the current engine: Node or a browser.

/** Instantiates the module; its lines of text go to `say`. */
async function instance(module, say) {
  const page = {
    say: (at, length) => say(new TextDecoder().decode(memory().slice(at, at + length))),
    now: () => performance.now(),
  };
  const { exports } = await WebAssembly.instantiate(module, { page });
  const memory = () => new Uint8Array(exports.memory.buffer);
  exports.start();
  return exports;
}

/** Runs the benchmark; each line goes to `print`. */
export async function bench(bytes, print) {
  (await instance(await WebAssembly.compile(bytes), print)).bench();
}

/** Runs all cases, prints the failures and returns their number. */
export async function test(bytes, engine, print) {
  const module = await WebAssembly.compile(bytes);
  let said = [];
  const fresh = () => instance(module, (line) => said.push(line));
  let exports = await fresh();
  const ask = (question) => {
    said = [];
    question();
    return said.join("\n");
  };
  const isa = ask(() => exports.isa());
  let failed = 0;
  const count = exports.count();
  for (let i = 0; i < count; i++) {
    const name = ask(() => exports.name(i));
    try {
      ask(() => exports.run(i));
    } catch (error) {
      failed++;
      print(`${name}: ${said.join("\n") || error}`);
      // A trap may leave the instance in an undefined state.
      exports = await fresh();
    }
  }
  print(`kernels in ${engine}: ${count - failed} passed, ${failed} failed (${isa})`);
  return failed;
}
