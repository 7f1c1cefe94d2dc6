"""What a server says of itself."""

import json
import re

from cases import get, serve
from programs import Server

CASES = {
    "health": get("/health"),
    "models": get("/v1/models"),
    "model": get("/v1/models/default"),
    "alias": get("/v1/models/small"),
    "loads": get("/v1/loads"),
    "load": get("/load"),
    "server_info": get("/server_info"),
    "tokenizer_info": get("/tokenizer_info"),
    "page": get("/docs/none"),
}


def openapi(document):
    """Returns the fields of each endpoint's body, and the names of its answers."""
    schemas = document["components"]["schemas"]
    parts = ("allOf", "anyOf", "oneOf")

    def fields(schema):
        if "$ref" in schema:
            return fields(schemas[schema["$ref"].rsplit("/", 1)[1]])
        found = {name: kind(inner) for name, inner in schema.get("properties", {}).items()}
        for part in parts:
            for inner in schema.get(part, []):
                found |= fields(inner)
        return found

    def kind(schema):
        if "$ref" in schema:
            return schema["$ref"].rsplit("/", 1)[1]
        inner = next((schema[part] for part in parts if part in schema), None)
        if inner:
            return " | ".join(sorted({kind(each) for each in inner}))
        types = schema.get("type", "any")
        return " | ".join(types) if isinstance(types, list) else types

    rows = []
    for path, methods in sorted(document["paths"].items()):
        for method, what in methods.items():
            body = what.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            rows.append(f"{method.upper()} {path} -> {', '.join(sorted(what['responses']))}")
            rows += [f"    {name}: {types}" for name, types in sorted(fields(body).items())]
    return "\n".join(rows)


def record(wf_run, home):
    """Records the part."""
    found = serve(wf_run, home, CASES, "--alias", "small")
    with Server(wf_run, home, []) as server:
        found["openapi"] = openapi(json.loads(server.ask("GET", "/openapi.json", None, {})[2]))
        metrics = server.ask("GET", "/metrics", None, {})[2]
        found["metrics"] = "\n".join(re.findall(r"^# ((?:HELP|TYPE) .*)", metrics, flags=re.MULTILINE))
    return found
