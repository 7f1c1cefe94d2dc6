"""Ternary (BitNet b1.58) language models on ordinary CPUs.

>>> import wrinklefree
>>> engine = wrinklefree.load()
>>> question = [{"role": "user", "content": "Tell me a story about a fox named Pip."}]
>>> print(engine.chat(question, max_tokens=20, temperature=0))
Have you heard of Pip? He was a small fox. Pip was strong and a little proud.
"""

from ._native import (
    Chunk,
    Completion,
    Engine,
    Error,
    OpenError,
    RequestError,
    Stream,
    ToolCall,
    ToolCallChunk,
    __version__,
    load,
)

__all__ = [
    "Chunk",
    "Completion",
    "Engine",
    "Error",
    "OpenError",
    "RequestError",
    "Stream",
    "ToolCall",
    "ToolCallChunk",
    "__version__",
    "load",
]
