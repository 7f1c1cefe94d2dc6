import { platform } from "./platform/worker.browser.js";
import { serve } from "./worker/serve.js";

serve(platform());
