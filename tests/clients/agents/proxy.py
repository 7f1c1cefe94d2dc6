"""A proxy between an agent and the server, which forces the model's outputs and keeps the requests."""

import http.client
import http.server
import json
import threading
import urllib.parse

ANSWER = "Hello from the model!"


class Proxy:
    """Forces a call of `tool` with `arguments` first, then answers."""

    def __init__(self, server, tool=None, arguments=None):
        self.server = urllib.parse.urlsplit(server)
        self.tool, self.arguments = tool, arguments
        self.requests = []
        self.replies = []
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                proxy.forward(self, None)

            def do_POST(self):
                size = int(self.headers.get("content-length") or 0)
                proxy.forward(self, self.rfile.read(size))

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

    def forward(self, client, body):
        path = urllib.parse.urlsplit(client.path).path
        if body and path in FORCE:
            request = json.loads(body)
            self.requests.append(json.loads(body))
            FORCE[path](self, request)
            body = json.dumps(request).encode()
        drop = {"host", "content-length", "connection", "accept-encoding"}
        headers = {k: v for k, v in client.headers.items() if k.lower() not in drop}
        upstream = http.client.HTTPConnection(self.server.hostname, self.server.port, timeout=120)
        upstream.request(client.command, client.path, body, headers)
        reply = upstream.getresponse()
        data = reply.read()
        upstream.close()
        self.replies.append((client.command, path, reply.status, dict(reply.getheaders()), data.decode()))
        client.send_response(reply.status)
        for name, value in reply.getheaders():
            if name.lower() not in {"transfer-encoding", "content-length", "connection"}:
                client.send_header(name, value)
        client.send_header("content-length", str(len(data)))
        client.end_headers()
        client.wfile.write(data)

    def calls(self, names):
        """True if the forced call is due: the agent has the tool and has not sent its result."""
        return self.tool is not None and self.tool in names and not self.has_result()

    def has_result(self):
        return "tool_result" in (text := json.dumps(self.requests[-1])) or (
            '"function_call_output"' in text or '"role": "tool"' in text
        )


def closed(arguments):
    """The schema of exactly these arguments."""
    properties = {name: {"enum": [value]} for name, value in arguments.items()}
    return {"type": "object", "properties": properties, "required": list(arguments)}


def messages(proxy, request):
    tools = {tool["name"]: tool for tool in request.get("tools", [])}
    if proxy.calls(tools):
        request["tool_choice"] = {"type": "tool", "name": proxy.tool}
        tools[proxy.tool]["input_schema"] = closed(proxy.arguments)
    else:
        request["tool_choice"] = {"type": "none"}
        request["guided_choice"] = [ANSWER]


def responses(proxy, request):
    tools = {tool.get("name"): tool for tool in request.get("tools", [])}
    if proxy.calls(tools):
        request["tool_choice"] = {"type": "function", "name": proxy.tool}
        tools[proxy.tool]["parameters"] = closed(proxy.arguments)
    else:
        request["tool_choice"] = "none"
        request["guided_choice"] = [ANSWER]


def chat(proxy, request):
    tools = {tool["function"]["name"]: tool["function"] for tool in request.get("tools") or []}
    if proxy.calls(tools):
        request["tool_choice"] = {"type": "function", "function": {"name": proxy.tool}}
        tools[proxy.tool]["parameters"] = closed(proxy.arguments)
    else:
        request["tool_choice"] = "none"
        request["guided_choice"] = [ANSWER]


FORCE = {
    "/v1/messages": messages,
    "/v1/responses": responses,
    "/v1/chat/completions": chat,
}
