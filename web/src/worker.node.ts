import { platform } from "./platform/worker.node.js";
import { serveEngine } from "./worker/engine_worker.js";

serveEngine(platform());
