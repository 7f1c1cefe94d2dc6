"""The requests that Open WebUI's backend sends to Ollama and to OpenAI-compatible servers, after its
public documentation: the program itself is too large for a test."""

import json
import os
import unittest
import urllib.request

URL, KEY = os.environ["WF_URL"], os.environ["WF_KEY"]
HOST = URL.removesuffix("/v1")


def send(base, path, body=None):
    """Returns the lines of a response."""
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(base + path, data, headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        return response.read().decode().splitlines()


def ollama(path, body=None):
    return [json.loads(line) for line in send(HOST, path, body)]


class OpenWebUi(unittest.TestCase):
    def test_ollama(self):
        (version,) = ollama("/api/version")
        self.assertTrue(version["version"])
        (tags,) = ollama("/api/tags")
        model = tags["models"][0]["model"]
        (running,) = ollama("/api/ps")
        self.assertEqual(running["models"][0]["model"], model)
        (shown,) = ollama("/api/show", {"model": model})
        self.assertIn("completion", shown["capabilities"])
        chat = {
            "model": model,
            "messages": [
                {"role": "system", "content": "Tell stories."},
                {"role": "user", "content": "Tell me a story about a fox."},
            ],
            "options": {"temperature": 0.2, "seed": 1, "num_predict": 20, "stop": ["</s>"]},
            "keep_alive": "5m",
            "stream": True,
        }
        parts = ollama("/api/chat", chat)
        self.assertTrue("".join(part["message"]["content"] for part in parts).strip())
        self.assertEqual([part["done"] for part in parts][-1], True)
        title = {"model": model, "prompt": "A title:", "stream": False, "options": {"num_predict": 8}}
        (answer,) = ollama("/api/generate", title)
        self.assertTrue(answer["done"])
        embed = {"model": model, "input": ["a", "b"], "truncate": True}
        (vectors,) = ollama("/api/embed", embed)
        self.assertEqual(len(vectors["embeddings"]), 2)

    def test_openai(self):
        (models,) = send(URL, "/models")
        model = json.loads(models)["data"][0]["id"]
        chat = {
            "model": model,
            "messages": [{"role": "user", "content": "Tell me a story about a fox."}],
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": 20,
        }
        events = [line for line in send(URL, "/chat/completions", chat) if line]
        self.assertEqual(events[-1], "data: [DONE]")
        self.assertEqual(json.loads(events[-2][6:])["usage"]["completion_tokens"], 20)


if __name__ == "__main__":
    unittest.main()
