"""A proxy between an agent and the server. It forces calls by name, passes streams on at once, and counts."""

import http.client
import http.server
import json
import re
import threading
import time
import urllib.parse

# Headers of a connection, which do not belong to a message.
CONNECTION = {"host", "content-length", "connection", "accept-encoding", "transfer-encoding"}
MESSAGES, RESPONSES, CHAT = "/v1/messages", "/v1/responses", "/v1/chat/completions"
# Tokens of a thinking and of an answer. Agents ask for tens of thousands.
THINKING, ANSWER = 40, 800
# Positions that a message takes next to its text: its role and its ends.
MARKUP = 24


class Calls:
    """The calls to force: of `tool` with one of the `values` of each parameter, so many after each question."""

    def __init__(self, tool=None, values=None, count=0):
        self.tool, self.values, self.count = tool, values or {}, count

    def schema(self):
        """Returns the schema of exactly these arguments."""
        properties = {name: {"type": "string", "enum": values} for name, values in self.values.items()}
        closed = {"required": list(properties), "additionalProperties": False}
        return {"type": "object", "properties": properties, **closed}

    def choice(self, path):
        """Returns the choice of the tool in an API."""
        if path == MESSAGES:
            return {"type": "tool", "name": self.tool}
        if path == RESPONSES:
            return {"type": "function", "name": self.tool}
        return {"type": "function", "function": {"name": self.tool}}


def messages_of(path, request):
    """Returns the messages of a request."""
    found = request.get("input" if path == RESPONSES else "messages")
    return found if isinstance(found, list) else []


def results_in(path, message):
    """Returns the ids of the calls whose results a message has."""
    if path == RESPONSES:
        return [message["call_id"]] if message.get("type") == "function_call_output" else []
    if path == CHAT:
        return [message["tool_call_id"]] if message["role"] == "tool" else []
    blocks = message["content"] if isinstance(message["content"], list) else []
    return [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]


def texts_in(value):
    """Yields all texts of a JSON value, and the names of its fields."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from texts_in(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield name
            yield from texts_in(item)


def is_answer(message):
    """True for what the server wrote: text, thinking or a call."""
    return message.get("role") == "assistant" or message.get("type") in ("function_call", "reasoning")


class Proxy:
    """Passes requests on to the server at `port`. Questions of the user contain `mark`."""

    def __init__(self, port, calls, mark):
        self.port, self.calls, self.mark = port, calls, mark
        self.rows, self.histories = [], []
        self.issued, self.returned = set(), set()
        self.lock = threading.Lock()
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                proxy.forward(self, None)

            def do_POST(self):
                proxy.forward(self, self.rfile.read(int(self.headers.get("content-length") or 0)))

            def log_message(self, *_):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"

    def __enter__(self):
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.http.shutdown()
        self.http.server_close()

    def results(self, path, request):
        """Returns the number of results after the last question."""
        count = 0
        for message in messages_of(path, request):
            found = results_in(path, message)
            self.returned.update(found)
            asks = message.get("role") == "user" and not found and self.mark in json.dumps(message)
            count = 0 if asks else count + len(found)
        return count

    def force(self, path, request):
        """Forces a call where one is due, and limits thinking and answer. Returns what is noted of the request."""
        tools = [tool.get("function", tool) for tool in request.get("tools") or []]
        ours = [tool for tool in tools if self.calls.tool and tool.get("name") == self.calls.tool]
        note = {"tools": len(tools), "conversation": bool(ours) or not self.calls.tool}
        note["new"] = self.new_positions(path, request)
        if ours:
            ours[0]["input_schema" if path == MESSAGES else "parameters"] = self.calls.schema()
            ours[0].pop("strict", None)
            number = self.results(path, request)
            if number < self.calls.count:
                request["tool_choice"] = self.calls.choice(path)
                if path == CHAT:
                    # qwen-code stops where a call repeats.
                    request |= {"temperature": 1, "top_k": 12, "seed": number}
        thinking = request.get("thinking") if path == MESSAGES else None
        if thinking and thinking.get("type") == "enabled":
            thinking["budget_tokens"] = THINKING
        elif not thinking or thinking.get("type") != "disabled":
            request["thinking_budget"] = THINKING
        if path == RESPONSES:
            request.setdefault("max_output_tokens", ANSWER)
        for limit in ("max_tokens", "max_output_tokens", "max_completion_tokens"):
            if isinstance(request.get(limit), int):
                request[limit] = min(request[limit], ANSWER)
        if path == CHAT and request.get("stream"):
            request.setdefault("stream_options", {})["include_usage"] = True
        return note

    def new_positions(self, path, request):
        """Returns about how many positions no earlier request had, but for what the server wrote itself."""
        system = [request.get(name) for name in ("tools", "system", "instructions")]
        history = [("".join(texts_in(part)), False) for part in system if part]
        for message in messages_of(path, request):
            history.append(("".join(texts_in(message)), is_answer(message)))
        with self.lock:
            earlier = max((common(history, other) for other in self.histories), default=(0, 0))
            self.histories.append(history)
        part, offset = earlier
        rest = [(text[offset if i == 0 else 0 :], answer) for i, (text, answer) in enumerate(history[part:])]
        return sum(len(text.encode()) + MARKUP for text, answer in rest if not answer)

    def forward(self, client, body):
        """Passes a request on, and its response in the pieces that come."""
        path = urllib.parse.urlsplit(client.path).path
        row = {"method": client.command, "path": path}
        if body and path in (MESSAGES, RESPONSES, CHAT):
            request = json.loads(body)
            row |= self.force(path, request)
            body = json.dumps(request).encode()
        upstream = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        headers = {name: value for name, value in client.headers.items() if name.lower() not in CONNECTION}
        begun = time.monotonic()
        upstream.request(client.command, client.path, body, headers)
        reply = upstream.getresponse()
        client.send_response(reply.status)
        for name, value in reply.getheaders():
            if name.lower() not in CONNECTION:
                client.send_header(name, value)
        client.send_header("transfer-encoding", "chunked")
        client.end_headers()
        text, silence = copy(reply, client.wfile, begun)
        upstream.close()
        row |= {"status": reply.status, "silence": round(silence, 2), **usage(path, text)}
        if reply.status >= 400:
            row["error"] = text[:400]
        with self.lock:
            if row.get("conversation"):
                self.issued.update(re.findall(r'"(?:id|call_id)": ?"((?:call|toolu)_[^"]+)"', text))
            self.rows.append(row)

    def summary(self):
        """Returns the counts of all requests."""
        main = [row for row in self.rows if row.get("conversation") and row["prompt"]]
        # The first prompt is new as a whole.
        old = [(row["prompt"] - row["new"], row["prompt"] - row["cached"] - row["new"]) for row in main[1:]]
        known = sum(max(0, known) for known, _ in old)
        again = sum(max(0, again) for _, again in old)
        return {
            "requests": len(self.rows),
            "errors": [(row["path"], row["status"], row.get("error")) for row in self.rows if row["status"] >= 400],
            "calls": len(self.issued),
            "lost": len(self.issued - self.returned),
            "longest_prompt": max((row["prompt"] for row in main), default=0),
            "cached_percent": round(100 * (1 - again / max(1, known)), 2),
            "longest_silence": max((row["silence"] for row in self.rows), default=0),
        }


def common(history, other):
    """Returns the part and the offset in it at which two histories differ."""
    for part, ((text, _), (theirs, _)) in enumerate(zip(history, other)):
        if text != theirs:
            same = next((i for i, (a, b) in enumerate(zip(text, theirs)) if a != b), min(len(text), len(theirs)))
            return part, same
    return min(len(history), len(other)), 0


def copy(reply, to, begun):
    """Copies a response in the pieces that come. Returns its text and the longest time without a piece."""
    data, silence, last = b"", 0, begun
    try:
        while True:
            piece = reply.read1(65536)
            silence, last = max(silence, time.monotonic() - last), time.monotonic()
            data += piece
            to.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            to.flush()
            if not piece:
                break
    except (BrokenPipeError, ConnectionResetError):
        # The agent left.
        pass
    return data.decode(errors="replace"), silence


def usage(path, text):
    """Returns the tokens of a response's prompt, and how many of them were cached."""

    def last(*names):
        found = [number for name in names for number in re.findall(rf'"{name}": ?(\d+)', text)]
        return int(found[-1]) if found else 0

    cached = last("cache_read_input_tokens", "cached_tokens")
    # Anthropic's API counts cached tokens apart.
    prompt = last("prompt_tokens" if path == CHAT else "input_tokens") + (cached if path == MESSAGES else 0)
    return {"prompt": prompt, "cached": cached}
