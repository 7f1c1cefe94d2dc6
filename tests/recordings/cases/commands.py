"""`wf-run generate`, `chat` with piped input, and the commands that describe models."""

import formats
import puppets
from cases import STORY
from programs import Recorder

DRAWN = ["--temperature", "2", "--seed", "14"]
GENERATE = {
    "prompt": [STORY],
    "raw": ["--raw", "Once upon a time"],
    "system": ["--system", "Be brief.", "Hi"],
    "stop": ["--stop", "Pip", STORY],
    "json": ["-o", "json", STORY],
    "logprobs": ["-o", "json", "--logprobs", "1", "-n", "2", "Hi"],
    "drawn": [*DRAWN, STORY],
    "top_k": [*DRAWN, "--top-k", "3", STORY],
    "top_p": [*DRAWN, "--top-p", "0.5", STORY],
    "min_p": [*DRAWN, "--min-p", "0.2", STORY],
    "mirostat": [*DRAWN, "--mirostat", "2", "--mirostat-tau", "2", STORY],
    "repetition_penalty": ["--repetition-penalty", "3", "-n", "24", "Tell me a story."],
    "dry": ["--dry-multiplier", "10", "--dry-base", "2", "--dry-allowed-length", "1", "-n", "24", "Tell me a story."],
    "logit_bias": ["--logit-bias", "69=100", STORY],
    "verify": ["--decode-mode", "verify", STORY],
    "adaptive": ["--decode-mode", "adaptive", STORY],
    "show-steps": ["--show-steps", "--decode-mode", "verify", "-n", "4", STORY],
    "context-shift": ["--context", "40", "--context-shift", "-n", "60", STORY],
    "kv-dtype": ["--kv-dtype", "int8", STORY],
    "a name of a template": ["--chat-template", "chatml", "Hi"],
    "a stop token": ["--stop-token", "1692", STORY],
    "control tokens": ["--allow-control-tokens", "<|eos|>Hi"],
}
THINKING = {
    "thinking": [],
    "enable-thinking=false": ["--enable-thinking=false"],
    "reasoning-effort": ["--reasoning-effort", "none"],
    "thinking-budget": ["--thinking-budget", "4"],
    "json": ["-o", "json"],
}
WRONG = {
    "an unknown flag": ["generate", "--tempreature", "1", "Hi"],
    "an unknown command": ["genrate"],
    "a temperature below zero": ["generate", "--temperature", "-1", "Hi"],
    "a number that is none": ["generate", "-n", "x", "Hi"],
    "zero tokens": ["generate", "-n", "0", "Hi"],
    "an empty stop": ["generate", "--stop", "", "Hi"],
    "logprobs without json": ["generate", "--logprobs", "1", "Hi"],
    "a missing model": ["generate", "-m", "no-such-folder/model.gguf", "Hi"],
    "a file that is no model": ["generate", "-m", "bad.safetensors", "Hi"],
    "an empty prompt": ["generate", "--raw", ""],
    "a long prompt": ["generate", "fox " * 600],
    "a negative seed": ["generate", "--seed", "-1", "Hi"],
    "a template that fails": ["generate", "--chat-template", "{{ raise_exception('no') }}", "Hi"],
    "rope-scaling": ["generate", "--rope-scaling", "yarn", "Hi"],
    "health without a server": ["health", "http://127.0.0.1:9"],
    "health without a scheme": ["health", "127.0.0.1:9"],
    "an unknown shell": ["completions", "tcsh"],
}
TALKS = {
    "turns": "Hi\nWho are you?\n",
    "settings": "/set temperature 1\n/set seed 5\n/set top_k 3\n/set\nHi\n/regen\n",
    "a value that is none": "/set temperature hot\n/set zebra 1\n/set temperature -1\n",
    "system": "/system Be brief.\nHi\n/system\n/reset\nHi\n",
    "save and load": "Hi\n/save a.json\n/save a.json\n/reset\n/load a.json\n/load none.json\n/raw\n",
    "help": "/help\n",
    "wrong": "/zebra\n/save\n/regen now\n",
    "a block of lines": '"""\nTell me\nof Pip.\n"""\n',
    "nothing": "",
}


def record(wf_run, home):
    """Records the part."""
    puppets.write(home / "thinks", "Hm, so.\n</think>\n\nIt is **blue**.", formats.template("qwen-xml"), hybrid=True)
    (home / "bad.safetensors").write_text("no model")
    run = Recorder(wf_run, home)
    short = ["-n", "12", "--temperature", "0"]
    for name, arguments in GENERATE.items():
        own = [] if "--temperature" in arguments else short[2:]
        run(f"generate, {name}", "generate", *(own if "-n" in arguments else short[:2] + own), *arguments)
    run("generate, standard input", "generate", *short, stdin="Tell me of Pip.\n")
    run("generate, a dash", "generate", *short, "-", stdin="Tell me of Pip.\n")
    run("generate, no prompt", "generate", *short)
    for name, arguments in THINKING.items():
        run(f"generate of a model that thinks, {name}", "generate", "-m", "thinks", "-n", "60", *arguments, "Hi")
    run("generate, a configuration", "generate", "--config", "wf.yaml", "-n", "3", "Hi", files={"wf.yaml": "sampling:\n  temperature: 0\nport: 7\n"})
    run("generate, a wrong configuration", "generate", "--config", "wrong.yaml", "Hi", files={"wrong.yaml": "temperature: 0\n"})
    run("generate, a variable", "generate", "-n", "3", "Hi", variables={"WF_TEMPERATURE": "0", "WF_ZEBRA": "1"})
    for name, text in TALKS.items():
        run(f"chat, {name}", "chat", *short, stdin=text)
    run("chat of a model that thinks", "chat", "-m", "thinks", "-n", "60", stdin="Hi\n/thinking\nHi\n")
    run("chat, context-shift", "chat", *short, "--context", "48", "--context-shift", stdin="Hi\nWho?\nWhy?\n")
    for name, arguments in WRONG.items():
        run(name, *arguments)
    describe(run)
    return run.found


def describe(run):
    """Runs the commands that describe and convert models."""
    run("version", "--version")
    run("inspect", "inspect")
    run("inspect, json", "inspect", "--json")
    run("inspect of a folder", "inspect", "thinks")
    run("convert", "convert", "thinks", "thinks.gguf")
    run("convert again", "convert", "thinks", "thinks.gguf")
    run("inspect of what was converted", "inspect", "thinks.gguf")
    run("generate of what was converted", "generate", "-m", "thinks.gguf", "-n", "60", "Hi")
    run("convert to a packed file", "convert", "thinks.gguf", "thinks.safetensors")
    run("convert back to a folder", "convert", "thinks.gguf", "again")
    run("compare", "compare", "thinks", "thinks.gguf", "--text", "Hi")
    run("logits", "logits", "--tokens", "1,2", "--output", "out.npy")
    run("eval perplexity", "eval", "perplexity", "-m", "thinks", "text.txt", files={"text.txt": "Hm, so."})
    run("serve, configuration", "serve", "--generate-config")
    run("serve, an origin of each setting", "serve", "--print-config", "--port", "7")
    run("serve, a port that is none", "serve", "--port", "99999")
    run("serve, two models", "serve", "--model", "thinks", "--models", "thinks")
    for command in (None, "generate", "chat", "serve", "run", "pull", "list", "rm", "ps", "health", "inspect", "convert",
                    "compare", "logits", "bench", "tune", "eval", "completions"):  # fmt: skip
        run(f"-h of {command or 'the program'}", *([command] if command else []), "-h")
