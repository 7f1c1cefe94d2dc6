"""Vectors of the embedded model in all APIs. A long vector is shown by its first and last numbers."""

from cases import post, serve

V1 = "/v1/embeddings"
CASES = {
    "text": post(V1, input="a fox"),
    "texts": post(V1, input=["a fox", "an owl"]),
    "token ids": post(V1, input=[69, 872]),
    "lists of token ids": post(V1, input=[[69, 872], [472]]),
    "base64": post(V1, input="a fox", encoding_format="base64", dimensions=4),
    "dimensions": post(V1, input="a fox", dimensions=4),
    "too many dimensions": post(V1, input="a fox", dimensions=100000),
    "pooling last": post(V1, input="a fox", pooling="last", dimensions=4),
    "truncate_prompt_tokens": post(V1, input="fox " * 40, truncate_prompt_tokens=8, dimensions=2),
    "unknown encoding": post(V1, input="a fox", encoding_format="int8"),
    "empty text": post(V1, input=""),
    "no texts": post(V1, input=[]),
    "too long": post(V1, input="fox " * 2000),
    "vLLM's pooling": post("/pooling", input="a fox"),
    "vLLM's pooling under /v1": post("/v1/pooling", input=["a", "b"]),
    "llama-server": post("/embedding", content="a fox"),
    "llama-server, texts": post("/embeddings", content=["a fox", "an owl"]),
    "llama-server, input": post("/embeddings", input="a fox"),
    "Ollama": post("/api/embed", model="default", input="a fox"),
    "Ollama, texts": post("/api/embed", model="default", input=["a fox", "an owl"]),
    "Ollama, dimensions": post("/api/embed", model="default", input="a fox", dimensions=4),
    "Ollama, no truncation": post("/api/embed", model="default", input="fox " * 2000, truncate=False),
    "Ollama, truncation": post("/api/embed", model="default", input="fox " * 2000, dimensions=2),
    "Ollama's old endpoint": post("/api/embeddings", model="default", prompt="a fox"),
}


def record(wf_run, home):
    """Records the part."""
    return serve(wf_run, home, CASES)
