"""Answers JSON schemas of a folder and prints how many: a server's structured outputs, strict and for
best effort.

    tests/clients/json_schemas.py FOLDER [--count 700] [--seed 1] [--url http://127.0.0.1:30000/v1]

The folder may be `data` of github.com/guidance-ai/jsonschemabench, which is in no registry: 700 of its
schemas are picked by the seed. CI uses `tests/clients/json_schemas`, with a schema for each feature that
was refused once. Fails if an answer does not match although it should, if the server fails, or if less
than 95 % are answered for best effort.
"""

import argparse
import json
import os
import random
import sys
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path

try:
    import jsonschema
except ImportError:
    jsonschema = None


def schemas(folder, count, seed):
    """Returns up to `count` schemas with their paths, picked by the seed."""
    paths = sorted(Path(folder).rglob("*.json"))
    picked = random.Random(seed).sample(paths, min(count, len(paths)))
    for path in picked:
        value = json.loads(path.read_text())
        # Some collections wrap the schema.
        if isinstance(value, dict) and isinstance(value.get("schema"), dict) and "type" not in value:
            value = value["schema"]
        yield path.relative_to(folder), value


def matches(schema, text):
    """Returns whether a text matches, or `None` where this cannot be decided."""
    try:
        value = json.loads(text)
    except ValueError:
        return False
    if jsonschema is None:
        return None
    try:
        validator = jsonschema.validators.validator_for(schema)
        return validator(schema).is_valid(value)
    except Exception:
        # References that cannot be fetched, patterns that Python does not know.
        return None


class Server:
    def __init__(self, url, key):
        self.url, self.key = url, key

    def ask(self, schema, strict):
        """Returns the status and the choice or error of an answer."""
        form = {"name": "answer", "schema": schema, "strict": strict}
        body = {
            "messages": [{"role": "user", "content": "Give me an example."}],
            "max_tokens": 256,
            "temperature": 0.8,
            "seed": 1,
            "response_format": {"type": "json_schema", "json_schema": form},
        }
        headers = {"content-type": "application/json", "authorization": f"Bearer {self.key}"}
        request = urllib.request.Request(
            self.url + "/chat/completions", json.dumps(body).encode(), headers
        )
        try:
            with urllib.request.urlopen(request, timeout=120) as reply:
                return reply.status, json.load(reply)["choices"][0]
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode(errors="replace")
        except (OSError, TimeoutError) as error:
            return 599, f"no answer: {error}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("--count", type=int, default=700)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--url", default=os.environ.get("WF_URL", "http://127.0.0.1:30000/v1"))
    parser.add_argument("--key", default=os.environ.get("WF_KEY", ""))
    parser.add_argument("--verbose", action="store_true", help="print each schema that is refused")
    arguments = parser.parse_args()
    server, counts = Server(arguments.url, arguments.key), Counter()
    for path, schema in schemas(arguments.folder, arguments.count, arguments.seed):
        counts["schemas"] += 1
        for name, strict in (("strict", True), ("best_effort", False)):
            status, choice = server.ask(schema, strict)
            if status >= 500:
                counts["5xx"] += 1
                print(f"{path}: {name}: {status}: {choice}")
            if status != 200:
                counts[f"{name} refused"] += 1
                if arguments.verbose:
                    print(f"{path}: {name}: {choice}")
                continue
            counts[f"{name} answered"] += 1
            if choice["finish_reason"] != "stop":
                counts[f"{name} cut off"] += 1
                continue
            promised = strict or choice["schema_validation"]["valid"]
            found = matches(schema, choice["message"]["content"])
            counts[f"{name} matches"] += bool(found)
            if promised and found is False:
                counts["invalid"] += 1
                print(f"{path}: {name}: does not match: {choice['message']['content']}")
    for name in sorted(counts | Counter()):
        print(f"{name:24}{counts[name]:6}")
    share = counts["best_effort answered"] / max(counts["schemas"], 1)
    print(f"seed {arguments.seed}, {share:.1%} answered with best_effort, "
          f"{counts['invalid']} invalid, {counts['5xx']} 5xx")
    sys.exit(bool(counts["invalid"] or counts["5xx"] or share < 0.95))


if __name__ == "__main__":
    main()
