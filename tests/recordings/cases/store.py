"""The local store without a network: `pull`, `list`, `rm`, `ps`, `run`, and a server of its models."""

import formats
import puppets
from cases import CHAT, GREEDY, delete, get, post, serve, user
from programs import Recorder


def record(wf_run, home):
    """Records the part."""
    run = Recorder(wf_run, home, {"HF_HUB_OFFLINE": "1"})
    run("list, empty", "list")
    run("list, json", "list", "--json")
    run("pull without a network", "pull", "org/name")
    run("pull, a name that is none", "pull", "name")
    run("rm, unknown", "rm", "small")
    run("run, unknown", "run", "smal")
    run("ps without a server", "ps", variables={"WF_PORT": "9"})
    run("ps, an address without a scheme", "ps", "127.0.0.1:9")
    for name, script in {"one": "One is here.", "two": "So it is two."}.items():
        puppets.write(home / "models" / name, script, formats.template("hermes"))
    hi = {**GREEDY, "messages": user("Hi"), "max_tokens": 20}
    cases = {
        "models": get("/v1/models"),
        "tags before loading": get("/api/tags"),
        "ps before loading": get("/api/ps"),
        "load by a request": [post(CHAT, model="one", **hi), post(CHAT, model="two", **hi), get("/v1/models")],
        "no model": post(CHAT, **hi),
        "an unknown model": post(CHAT, model="onne", **hi),
        "load": [post("/v1/models/load", model="one"), post("/models/load", model="none")],
        "unload": [post("/v1/models/unload", model="one"), post("/v1/models/unload", model="one"), get("/v1/models")],
        "Ollama loads and unloads": [
            post("/api/generate", model="one", stream=False),
            post("/api/generate", model="one", keep_alive=0, stream=False),
            get("/api/ps"),
        ],
        "tags": get("/api/tags"),
        "show": post("/api/show", model="one"),
        "delete": delete("/api/delete", {"model": "one"}),
        "server_info": [get("/server_info?model=two"), get("/server_info?model=none"), get("/server_info")],
    }
    found = serve(wf_run, home, cases, "--models", str(home / "models"))
    return run.found | {f"server, {name}": text for name, text in found.items()}
