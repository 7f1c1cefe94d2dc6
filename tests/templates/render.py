"""Renders chat templates with Python's Jinja as `transformers` 5 does.

    python render.py OUT
    python render.py

Without a folder, renders each line of expressions.txt as a template and writes expressions.json.

Renders each template of OUT/templates for each conversation of conversations.json and writes OUT/rendered.json: by
template, a list of `{"text": …}`, `{"refused": …}` (the template called `raise_exception`) or `{"failed": …}`.
"""

import datetime
import json
import pathlib
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox

HERE = pathlib.Path(__file__).parent
# 26 July 2024, 09:05:07, as in the Rust test.
NOW = datetime.datetime(2024, 7, 26, 9, 5, 7)
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
REASONING = ("reasoning_content", "thinking", "reasoning")


class Refusal(jinja2.exceptions.TemplateError):
    pass


class Generation(jinja2.ext.Extension):
    """`{% generation %}`, which marks an assistant's text for training."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(
            x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )

    def raise_exception(message):
        raise Refusal(message)

    class Dict:
        """`dict` without the attributes of a Python class."""

        def __call__(self, *args, **kwargs):
            return dict(*args, **kwargs)

        def fromkeys(self, *args, **kwargs):
            return dict.fromkeys(*args, **kwargs)

    env.filters["tojson"] = tojson
    env.globals["dict"] = Dict()
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


def with_reasoning(message):
    """Gives the reasoning of a message the names that templates know."""
    reasoning = next((message[key] for key in REASONING if message.get(key) is not None), None)
    if reasoning is None:
        return message
    return {"thinking": reasoning, **message, "reasoning_content": reasoning}


def render(template, case):
    variables = {"tools": None, "documents": None, "add_generation_prompt": True, **SPECIAL, **case}
    variables["messages"] = [with_reasoning(message) for message in case["messages"]]
    try:
        return {"text": template.render(**variables)}
    except Refusal as refusal:
        return {"refused": str(refusal)}
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}"}


def main(out):
    out = pathlib.Path(out)
    cases = json.loads((HERE / "conversations.json").read_text())
    env = environment()
    rendered = {}
    for path in sorted((out / "templates").glob("*.jinja")):
        template = env.from_string(path.read_bytes().decode())
        # Templates could change a conversation, so each gets its own.
        rendered[path.stem] = [render(template, json.loads(json.dumps(case))) for case in cases]
    (out / "rendered.json").write_text(json.dumps(rendered, indent=1))
    print(f"{len(rendered)} templates for {len(cases)} conversations")


def expressions():
    case = {"messages": [], "d": {"a": 1, "b": [2, 3], "l": ["x", {"y": None}]}}
    lines = (HERE / "expressions.txt").read_text().splitlines()
    rendered = []
    for line in lines:
        try:
            result = render(environment().from_string(line), case)
        except jinja2.TemplateError as error:
            result = {"failed": f"{type(error).__name__}: {error}"}
        rendered.append({"template": line, **result})
    text = json.dumps(rendered, indent=1, ensure_ascii=False)
    (HERE / "expressions.json").write_text(text + "\n")


if __name__ == "__main__":
    main(sys.argv[1]) if sys.argv[1:] else expressions()
