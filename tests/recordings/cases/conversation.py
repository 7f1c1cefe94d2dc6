"""The conversations of the libraries, as the server answers them: the same pieces."""

import json

from cases import CHAT, libraries
from layout import lines
from masks import Masks
from programs import Server


def body(model, messages, options):
    """Returns a request of OpenAI's API."""
    form = {"response_format": {"type": "json_schema", "json_schema": {"name": "form", "schema": options["json_schema"]}}} if "json_schema" in options else {}
    rest = {key: value for key, value in options.items() if key != "json_schema"}
    return {"model": model, "messages": messages, "max_tokens": 200, "temperature": 0} | rest | form


def pieces(kind, text):
    """Returns the reasoning, the calls and the text of an answer."""
    if "event-stream" in kind:
        events = [json.loads(row.removeprefix("data: ")) for row in text.split("\n") if row.startswith("data: {")]
        said = [event["choices"][0]["delta"] for event in events if event.get("choices")]
    else:
        said = [json.loads(text)["choices"][0]["message"]]
    return libraries.pieces(said)


def record(wf_run, home):
    """Records the part."""
    models = home / "models"
    models.mkdir()
    libraries.models(models)
    found = {}
    with Server(wf_run, home, ["--models", str(models)]) as server:
        for name, (model, messages, options, *want) in libraries.talks().items():
            status, headers, text = server.ask("POST", CHAT, body(model, messages, options), {})
            if want:
                answer = dict(zip(("reasoning", "calls", "text"), pieces(headers["content-type"], text)))
                libraries.check(f"conversation, {name}", answer["reasoning"], answer["calls"], answer["text"])
            else:
                answer = json.loads(text)
            found[name] = f"{json.dumps(messages)} {json.dumps(options)}\n{status}\n" + lines(Masks().value(answer))
    return found
