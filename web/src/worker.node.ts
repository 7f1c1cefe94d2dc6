import { platform } from "./platform/worker.node.js";
import { serve } from "./worker/serve.js";

serve(platform());
