#!/usr/bin/env node
/** `npx wrinklefree`: the engine in Node from the command line. */

import { main } from "./cli/main.js";
import { load } from "./index.node.js";

process.exitCode = await main(load, process.argv.slice(2));
