"""Requests by part. Each module has `record(wf_run, home)`, which returns the recordings of its cases by name."""

from programs import Server

CHAT, TEXT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"
# The model decides nothing by chance: a case that samples says so.
GREEDY = {"temperature": 0}
STORY = "Tell me a story about a fox named Pip."


def post(path, body=None, headers=None, **fields):
    """Returns a request with a JSON body; a text as body is sent as it is."""
    return "POST", path, fields if body is None else body, headers or {}


def get(path, headers=None):
    """Returns a request without a body."""
    return "GET", path, None, headers or {}


def delete(path, body=None):
    """Returns a request to delete something."""
    return "DELETE", path, body, {}


def user(text=STORY):
    """Returns a conversation of one message."""
    return [{"role": "user", "content": text}]


def serve(wf_run, home, cases, *arguments):
    """Records cases, each a request or a list of them, with one server.

    Each case has an API key of its own, so no case reads what another has left in the prefix cache.
    """
    keys = home / "keys"
    keys.write_text("key-shared\n" + "".join(f"key-{i}\n" for i in range(len(cases))))
    with Server(wf_run, home, ["--api-key-file", str(keys), *arguments]) as server:
        return {
            name: server.recorded(requests if isinstance(requests, list) else [requests], f"key-{i}")
            for i, (name, requests) in enumerate(cases.items())
        }
