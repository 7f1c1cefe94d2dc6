import { platform } from "./platform/worker.browser.js";
import { serveEngine } from "./worker/engine_worker.js";

serveEngine(platform());
