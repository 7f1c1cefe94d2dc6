"""Answers that `generate` and `chat` hold to a form."""

import json

from cases import STORY
from cases.chat import SCHEMA
from programs import Recorder

FORMS = {
    "schema": ["--json-schema", json.dumps(SCHEMA)],
    "schema of a file": ["--json-schema", "schema.json"],
    "regex": ["--regex", "(fox|owl) [0-9]{2}"],
    "Lark": ["--grammar", 'start: "a" | "b" "c"'],
    "Lark of a file": ["--grammar", "grammar.lark"],
    "a choice of Unicode": ["--regex", "狐|🦊"],
    "schema as JSON": ["--json-schema", '{"enum": ["a", 1, null]}', "-o", "json"],
    "two forms": ["--regex", "a", "--grammar", 'start: "a"'],
    "a schema that is no JSON": ["--json-schema", "{"],
    "a schema that is missing": ["--json-schema", "none.json"],
    "a keyword that no grammar holds": ["--json-schema", '{"type": "array", "uniqueItems": true}'],
    "a type that is none": ["--json-schema", '{"type": "zebra"}'],
    "a wrong expression": ["--regex", "("],
    "a wrong grammar": ["--grammar", "start: "],
    "GBNF": ["--grammar", 'root ::= "yes" | "no"'],
}


def record(wf_run, home):
    """Records the part."""
    files = {"schema.json": json.dumps(SCHEMA), "grammar.lark": 'start: "fox" | "owl"\n'}
    run = Recorder(wf_run, home)
    for name, arguments in FORMS.items():
        run(f"generate, {name}", "generate", "--temperature", "0", "-n", "40", *arguments, STORY, files=files)
    for name in ("schema", "regex", "Lark"):
        run(f"chat, {name}", "chat", "--temperature", "0", "-n", "40", *FORMS[name], stdin="Hi\nWho?\n", files=files)
    return run.found
