"""The C interface: its library, called as the header says."""

import ctypes
import json
import math
import os
from ctypes import byref, c_char_p, c_float, c_int, c_int64, c_size_t, c_uint32, c_void_p

from cases import libraries
from layout import lines
from masks import Masks
from programs import environment, target

STATUS = ["ok", "no event", "finished", "invalid argument", "open failed", "invalid request", "unsupported",
          "buffer too small", "stopped", "internal", "model failed"]  # fmt: skip
REASONS = ["none", "stop", "stop string", "length", "cancelled", "tool_calls"]


class Logprob(ctypes.Structure):
    """`wf_logprob`."""

    _fields_ = [("token", c_uint32), ("logprob", c_float)]


class Call(ctypes.Structure):
    """`wf_tool_call`."""

    _fields_ = [("index", c_size_t), ("id", c_char_p), ("name", c_char_p), ("arguments", c_char_p)]


class Event(ctypes.Structure):
    """`wf_event`."""

    _fields_ = [
        ("kind", c_int), ("text", c_char_p), ("text_length", c_size_t),
        ("reasoning", c_char_p), ("reasoning_length", c_size_t),
        ("tool_calls", ctypes.POINTER(Call)), ("tool_call_count", c_size_t), ("token", Logprob),
        ("top", ctypes.POINTER(Logprob)), ("top_count", c_size_t), ("reason", c_int),
        ("prompt_tokens", c_size_t), ("cached_tokens", c_size_t), ("passes", c_size_t),
    ]  # fmt: skip


class Engine:
    """An engine of the library."""

    def __init__(self, library, model, options):
        self.library, self.engine = library, c_void_p()
        self.opened = library.wf_open(model, options, byref(self.engine))

    def error(self, status):
        """Returns a status with the last message."""
        return {"status": STATUS[status]} | ({"error": self.library.wf_last_error().decode()} if status else {})

    def ask(self, way, given, options):
        """Returns the events of a request, or its error."""
        request, data = c_void_p(), json.dumps(options).encode()
        if way == "generate":
            status = self.library.wf_submit(self.engine, given.encode(), data, byref(request))
        else:
            status = self.library.wf_submit_chat(self.engine, json.dumps(given).encode(), data, byref(request))
        if status:
            return self.error(status)
        pieces, thoughts, calls, tokens, logprobs, event = [], [], [], [], [], Event()
        while True:
            status = self.library.wf_poll(request, -1, byref(event))
            if status:
                return self.error(status)
            pieces.append(event.text.decode())
            thoughts.append(event.reasoning.decode())
            calls += [[value.decode() if isinstance(value, bytes) else value for value in (part.index, part.id, part.name, part.arguments)]
                      for part in event.tool_calls[: event.tool_call_count]]  # fmt: skip
            if event.kind:
                break
            tokens.append(event.token.token)
            if not math.isnan(event.token.logprob):
                top = [[event.top[i].token, event.top[i].logprob] for i in range(event.top_count)]
                logprobs.append([event.token.logprob, top])
        self.library.wf_request_free(request)
        answer = {"text": pieces if way == "stream" else "".join(pieces), "tokens": tokens}
        answer |= {"reasoning": thoughts if way == "stream" else "".join(thoughts)} if any(thoughts) else {}
        answer |= {"calls": libraries.joined(calls)} if calls else {}
        answer |= {"logprobs": logprobs} if logprobs else {}
        return answer | {
            "reason": REASONS[event.reason],
            "prompt_tokens": event.prompt_tokens,
            "cached_tokens": event.cached_tokens,
            "passes": event.passes,
        }

    def others(self):
        """Returns the results of the other functions."""
        library, engine = self.library, self.engine
        tokens, text, count = (c_uint32 * 16)(), ctypes.create_string_buffer(64), c_size_t()
        size = library.wf_embedding_size(engine)
        vector, logits = (c_float * size)(), (c_float * library.wf_vocab_size(engine))()
        found = {
            "name": library.wf_name(engine).decode(),
            "context": library.wf_context(engine),
            "vocab_size": library.wf_vocab_size(engine),
            "embedding_size": size,
            "tokenize": [STATUS[library.wf_tokenize(engine, b"a fox", tokens, 16, byref(count))], tokens[: count.value]],
            "tokenize, no room": [STATUS[library.wf_tokenize(engine, b"a fox", tokens, 0, byref(count))], count.value],
            "detokenize": [STATUS[library.wf_detokenize(engine, tokens, 2, text, 64, byref(count))], text.value.decode()],
            "embed": [STATUS[library.wf_embed(engine, b"a fox", 0, vector, size)], list(vector[:4])],
            "logits": [STATUS[library.wf_logits(engine, tokens, 2, logits, len(logits))], list(logits[:4])],
        }
        tokens[0] = 99999
        found["detokenize an unknown id"] = [STATUS[library.wf_detokenize(engine, tokens, 1, text, 64, byref(count))], text.value.decode()]
        found["embed with an unknown pooling"] = self.error(library.wf_embed(engine, b"a", 7, vector, size))
        return found


def library():
    """Returns the library with the types of its functions."""
    built = target() / "debug/deps/libwrinklefree_c.so"
    path = os.environ.get("WF_LIBRARY") or built
    if not os.path.exists(path):
        raise SystemExit(f"{path} is missing: run `cargo test --workspace` first, or name it in WF_LIBRARY")
    found = ctypes.CDLL(str(path))
    for name in ("wf_name", "wf_last_error", "wf_version"):
        getattr(found, name).restype = c_char_p
    for name in ("wf_context", "wf_vocab_size", "wf_embedding_size"):
        getattr(found, name).restype = c_size_t
    found.wf_poll.argtypes = [c_void_p, c_int64, c_void_p]
    return found


def record(_, home):
    """Records the part."""
    # The library reads the environment of this process.
    os.environ["WF_ISA"] = environment()["WF_ISA"]
    loaded = library()
    options = b'{"threads": 1, "context": 512}'
    engines = {"default": Engine(loaded, None, options)}
    for name, folder in libraries.models(home).items():
        engines[name] = Engine(loaded, str(folder).encode(), options)
    table = libraries.requests()
    answers = {name: engines[model].ask(*rest) for name, (model, *rest) in table.items()}
    for name, answer in ((name, answer) for name, answer in answers.items() if "error" not in answer):
        libraries.check(name, answer.get("reasoning", ""), answer.get("calls", []), answer.get("text", ""))
    found = {name: libraries.recording(*table[name][1:], answer) for name, answer in answers.items()}
    for warm in ({}, {"temperature": 2, "seed": 6, "max_tokens": 24}):
        absent, stated = (engines["default"].ask("chat", libraries.USER, given | warm) for given in ({}, libraries.stated_defaults()))
        assert absent["tokens"] == stated["tokens"], "absent options mean what the table of defaults says"
    found["functions"] = lines(Masks().value(engines["default"].others()))
    for name, arguments in {
        "open, a missing model": (b"no-such-folder/model.gguf", None),
        "open, an unknown option": (None, b'{"zebra": 1}'),
        "open, no JSON": (None, b"{"),
        "open, no threads": (None, b'{"threads": 0}'),
    }.items():
        engine = Engine(loaded, *arguments)
        found[name] = lines(engine.error(engine.opened))
    return found
