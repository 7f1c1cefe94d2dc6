"""The module as programs use it: outputs, arrays, errors."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wrinklefree
from conftest import ENDLESS
from wrinklefree import Engine

PROMPT = "Tell me a story about a fox named Pip."
STORY = "Have you heard of Pip? He was a small fox. Pip was strong and a little proud."


def test_generates_what_the_program_generates(engine: Engine, wf_run: Path) -> None:
    command = [str(wf_run), "generate", "--temperature", "0", "--max-tokens", "20", PROMPT]
    shown = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    story = engine.chat([{"role": "user", "content": PROMPT}], temperature=0, max_tokens=20)
    assert story.text == str(story) == STORY
    assert shown.strip() == STORY
    assert story.finish_reason == "length" and len(story.tokens) == 20
    assert engine.detokenize(story.tokens) == STORY


def test_the_version_is_the_programs(wf_run: Path) -> None:
    shown = subprocess.run([str(wf_run), "--version"], capture_output=True, check=True, text=True)
    assert shown.stdout.split()[1] == wrinklefree.__version__


def test_streams_the_same_text(engine: Engine) -> None:
    whole = engine.generate("Once upon a time", temperature=0.0, max_tokens=24)
    chunks = list(engine.stream("Once upon a time", temperature=0.0, max_tokens=24))
    assert "".join(map(str, chunks)) == whole.text
    assert [c.token for c in chunks if c.token is not None] == whole.tokens
    last = chunks[-1]
    assert (last.finish_reason, last.passes) == ("length", whole.passes)
    assert last.prompt_tokens == whole.prompt_tokens == len(engine.tokenize("Once upon a time"))
    assert all(chunk.finish_reason is None for chunk in chunks[:-1])


def test_absent_options_mean_what_the_table_of_defaults_says(engine: Engine) -> None:
    page = (Path(__file__).parents[2] / "docs/command-line.md").read_text()
    cells = re.findall(r"^\| `(\w+)` \|[^|]+\|[^|]+\| ([^|]+) \|[^|]+\|[^|]+\|$", page, re.M)
    table = dict(cells)
    stated = {name: float(value) for name, value in cells if re.fullmatch(r"[\d.]+", value)}
    for name in ("max_tokens", "top_k", "mirostat"):
        stated[name] = int(stated[name])
    assert len(stated) > 12 and table["seed"] == "drawn", table
    message = [{"role": "user", "content": PROMPT}]

    def text(**options: Any) -> str:
        return engine.chat(message, **options).text

    assert text(**stated) == text(), stated
    warm = {"temperature": 2.0, "seed": 3, "max_tokens": 24}
    assert text(**{**stated, **warm}) == text(**warm) != text(temperature=0, max_tokens=24)
    assert len({text(temperature=2.0, max_tokens=24) for _ in range(3)}) > 1


def test_thinking_and_answer_are_apart(thinker: Engine) -> None:
    question = [{"role": "user", "content": "Is it?"}]
    whole = thinker.chat(question, temperature=0)
    assert (whole.reasoning, whole.text) == ("Hm, is it?", "Yes, it is.")
    chunks = list(thinker.chat_stream(question, temperature=0))
    assert "".join(chunk.reasoning for chunk in chunks) == whole.reasoning
    assert "".join(chunk.text for chunk in chunks) == whole.text
    answer = thinker.chat(question, temperature=0, enable_thinking=False)
    assert (answer.reasoning, answer.text) == ("", whole.text)
    history = [*question, {"role": "assistant", "content": "Yes.", "reasoning": "Hm."}, *question]
    assert thinker.chat(history, temperature=0).prompt_tokens > whole.prompt_tokens


def test_fills_holes(engine: Engine, wf_run: Path) -> None:
    command = [str(wf_run), "generate", "--suffix", " ball.", "--temperature", "0", "Tom had a red"]
    shown = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    assert engine.generate("Tom had a red", suffix=" ball.", temperature=0).text == shown.rstrip("\n")
    with pytest.raises(wrinklefree.RequestError, match="suffix needs a prompt that is a text"):
        engine.generate([5], suffix="x")


def test_snapshots_replace_each_other(engine: Engine) -> None:
    greedy: Any = {"temperature": 0, "max_tokens": 40, "decode_mode": "iterative"}
    whole = engine.generate("Once upon a time", **greedy)
    chunks = list(engine.stream("Once upon a time", diffusing=True, **greedy))
    assert "".join(chunk.text for chunk in chunks) == whole.text
    snapshots = [chunk.snapshot for chunk in chunks if chunk.snapshot is not None]
    assert snapshots[-1] == whole.text
    assert any("░" in text for text in snapshots)
    assert all(whole.text.startswith(text.split("░")[0]) for text in snapshots)
    assert all(chunk.snapshot is None or not chunk.text for chunk in chunks)
    assert chunks[-1].reasoning_snapshot is None and chunks[-1].finish_reason == "length"
    with pytest.raises(wrinklefree.RequestError, match="diffusing is for streams"):
        engine.generate("Once", diffusing=True, **greedy)


def test_prompts_may_be_token_ids(engine: Engine) -> None:
    ids = engine.tokenize("Once upon a time")
    from_ids = engine.generate(ids, temperature=0, max_tokens=8)
    assert from_ids.text == engine.generate("Once upon a time", temperature=0, max_tokens=8).text
    assert engine.generate(np.array(ids), temperature=0, max_tokens=8).text == from_ids.text


def test_a_cancelled_stream_ends(engine: Engine) -> None:
    endless = engine.stream("Once", max_tokens=10**9, context_shift=4, logit_bias=ENDLESS)
    with endless as stream:
        assert next(stream).token is not None
        stream.cancel()
        assert [c.finish_reason for c in stream][-1] == "cancelled"


def test_logits_are_the_engines_memory(engine: Engine) -> None:
    tokens = engine.tokenize("Once upon a time")
    logits = engine.logits(tokens)
    assert logits.dtype == np.float32 and logits.shape == (engine.vocab_size,)
    first = engine.generate("Once upon a time", temperature=0, max_tokens=1).tokens
    assert first == [int(logits.argmax())]
    owner = logits.base
    assert not logits.flags.owndata and owner is not None, "NumPy has copied"
    address, read_only = owner.__array_interface__["data"]
    assert (address, read_only) == (logits.ctypes.data, False)
    logits[:] = 0  # It belongs to the caller.
    del owner
    assert engine.logits(tokens).argmax() == first[0] and not logits.any()


def test_embeddings_have_length_one(engine: Engine) -> None:
    mean, last = engine.embed("a small fox"), engine.embed("a small fox", pooling="last")
    assert mean.shape == (engine.hidden_size,)
    assert np.linalg.norm(mean) == pytest.approx(1, abs=1e-5)
    assert np.linalg.norm(last) == pytest.approx(1, abs=1e-5)
    assert np.abs(mean - last).max() > 1e-3


def test_log_probabilities(engine: Engine) -> None:
    output = engine.generate("Once upon", temperature=0, max_tokens=3, logprobs=2)
    assert output.logprobs is not None and len(output.logprobs) == 3
    for token, logprob, top in zip(output.tokens, output.logprobs, output.top_logprobs):
        assert len(top) == 2 and top[0] == (token, logprob) and logprob >= top[1][1]
    assert engine.generate("Once upon", max_tokens=1).logprobs is None


def test_completions_are_pickled_and_copied(engine: Engine) -> None:
    output = engine.generate("Once upon", temperature=0, max_tokens=3, logprobs=1)
    for other in (pickle.loads(pickle.dumps(output)), copy.deepcopy(output)):
        for name in (name for name in dir(output) if not name.startswith("_")):
            assert getattr(other, name) == getattr(output, name), name
        assert type(other) is wrinklefree.Completion and other.tokens == output.tokens
    with pytest.raises(ValueError, match="finish_reason: \"tired\" is none of stop, length"):
        wrinklefree.Completion("", "", [], [], None, [], "tired", 0, 0, 0)  # type: ignore[arg-type]


def test_the_help_lists_all_options() -> None:
    stub = Path(wrinklefree.__file__).with_name("_native.pyi").read_text(encoding="utf-8")
    options = stub.split("class _Options")[1].split("@type_check_only")[0]
    names = re.findall(r"^    (\w+):", options, re.MULTILINE)
    assert len(names) > 30
    for method in (Engine.generate, Engine.stream, Engine.chat, Engine.chat_stream):
        listed = re.findall(r"`(\w+)`", method.__doc__ or "")
        assert not set(names) - set(listed), method


def test_outputs_keep_to_a_schema(engine: Engine) -> None:
    schema = {
        "type": "object",
        "required": ["animal", "brave"],
        "properties": {"animal": {"enum": ["fox", "owl"]}, "brave": {"type": "boolean"}},
        "additionalProperties": False,
    }
    answer = json.loads(engine.generate(PROMPT, json_schema=schema, temperature=0).text)
    assert answer["animal"] in ("fox", "owl") and isinstance(answer["brave"], bool)
    assert engine.generate(PROMPT, regex="[ab]{3}").text.strip("ab") == ""
    unique = {"type": "array", "uniqueItems": True, "maxItems": 2, "items": {"enum": [7]}}
    kept = engine.generate(PROMPT, json_schema=unique, best_effort=True, temperature=0)
    assert set(json.loads(kept.text)) <= {7}


def test_stop_texts_and_biases(engine: Engine) -> None:
    whole = engine.generate("Once upon a time", temperature=0, max_tokens=16)
    word = whole.text.split()[3]
    for stop in (word, [word]):
        cut = engine.generate("Once upon a time", temperature=0, max_tokens=16, stop=stop)
        assert cut.text == whole.text[: whole.text.index(word)] and cut.finish_reason == "stop"
    first = whole.tokens[0]
    for bias in ({first: float("-inf")}, {str(first): -100.0}, [(first, -100.0)]):
        other = engine.generate("Once upon a time", temperature=0, max_tokens=1, logit_bias=bias)
        assert other.tokens != [first]


def test_calls_without_a_seed_draw_their_own(engine: Engine) -> None:
    def texts(seed: int | None) -> set[str]:
        calls = (engine.generate(PROMPT, temperature=1.5, max_tokens=16, seed=seed) for _ in range(5))
        return {call.text for call in calls}

    assert len(texts(None)) > 1 and len(texts(7)) == 1


def test_decode_modes_are_options(engine: Engine) -> None:
    plain = engine.generate(PROMPT, temperature=0, max_tokens=32, decode_mode="ar")
    drafted = engine.generate(PROMPT, temperature=0, max_tokens=32, decode_mode="verify")
    assert drafted.text == plain.text


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"temperatur": 0}, ValueError, "there is no option temperatur: help"),
        ({"max_tokens": "many"}, TypeError, "max_tokens: expected a whole number from 0, not 'many'"),
        ({"max_tokens": -1}, ValueError, "max_tokens: expected a whole number from 0, not -1"),
        ({"max_tokens": 2**70}, ValueError, "max_tokens: expected a whole number from 0"),
        ({"top_k": 1.5}, ValueError, "top_k: expected a whole number from 0, not 1.5"),
        ({"temperature": "hot"}, TypeError, "temperature: expected a number, not 'hot'"),
        ({"top_p": [1]}, TypeError, "top_p: expected a number, not \\[1\\]"),
        ({"draft_length": 0}, ValueError, "draft_length: expected a whole number from 1, not 0"),
        ({"seed": -1}, ValueError, "seed: expected a whole number from 0, not -1"),
        ({"stop": 3}, TypeError, "stop: expected a text or texts, not 3"),
        ({"regex": 3}, TypeError, "regex: expected a text, not 3"),
        ({"sub_block_cache": "yes"}, TypeError, "sub_block_cache: expected True or False"),
        ({"logit_bias": {"fox": 1}}, TypeError, "logit_bias: 'fox' is not a token id"),
        ({"logit_bias": {3: "x"}}, TypeError, "logit_bias: expected a number for token 3, not 'x'"),
        (
            {"chat_template_kwargs": "x"},
            TypeError,
            "chat_template_kwargs: expected a dictionary, not 'x'",
        ),
        ({"json_schema": object()}, TypeError, "json_schema: expected a JSON value, not <object"),
        ({"logit_bias": 3}, TypeError, "logit_bias: expected pairs of a token id and a number"),
        ({"decode_mode": "fast"}, ValueError, "decode_mode: expected one of auto, ar, .*, not 'fast'"),
        (
            {"json_schema": {"type": "array", "uniqueItems": True}},
            wrinklefree.RequestError,
            "no grammar can hold `uniqueItems` at `#`: leave it out; the option `best_effort`",
        ),
        ({"regex": "a", "grammar": 'start: "a"'}, ValueError, "exclude each other"),
        ({"regex": "("}, wrinklefree.RequestError, "the grammar cannot be used"),
    ],
)
def test_bad_options_are_refused(
    engine: Engine, options: dict[str, object], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        engine.generate("Once", **options)  # type: ignore[arg-type]


def test_bad_requests_are_refused(engine: Engine) -> None:
    for prompt in ([], [engine.vocab_size], "word " * engine.context):
        with pytest.raises(wrinklefree.RequestError):
            engine.generate(prompt)
    for wrong, message in [
        (3, "prompt: expected a text or token ids, not int"),
        (b"Once", "prompt: expected a text or token ids, not bytes"),
        (bytearray(b"Once"), "prompt: expected a text or token ids, not bytearray"),
        ({1: 2}, "prompt: expected a text or token ids, not dict"),
        (frozenset({300, 5}), "prompt: expected a text or token ids, not frozenset"),
        ({5: 0}.keys(), "prompt: expected a text or token ids, not dict_keys"),
        ([1, "x"], "prompt\\[1\\]: 'x' is not a token id"),
        ([1.0], "prompt\\[0\\]: 1.0 is not a token id"),
        ([True], "prompt\\[0\\]: True is not a token id"),
        (None, "prompt: expected a text or token ids, not NoneType"),
    ]:
        with pytest.raises(TypeError, match=message):
            engine.generate(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="prompt\\[0\\]: -1 is not a token id"):
        engine.generate([-1])
    with pytest.raises(TypeError, match="tokens: expected token ids, not str"):
        engine.detokenize("Once")  # type: ignore[arg-type]
    for method in (engine.tokenize, engine.embed):
        with pytest.raises(TypeError, match="text: expected a text, not 3"):
            method(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="tokens\\[1\\]: -5 is not a token id"):
        engine.logits([1, -5])
    with pytest.raises(wrinklefree.RequestError, match="tokens: 99999 is outside the vocabulary of"):
        engine.detokenize([1, 99999])
    with pytest.raises(wrinklefree.RequestError, match="messages is empty"):
        engine.chat([])
    with pytest.raises(wrinklefree.RequestError, match=r"messages\[0\].role: unknown role `robot`"):
        engine.chat([{"role": "robot", "content": "Hello"}])
    with pytest.raises(wrinklefree.RequestError, match="a plain prompt has no thinking"):
        engine.generate("Once", enable_thinking=False)  # type: ignore[call-arg]
    for messages, kind, message in [
        ([{"role": "user"}], ValueError, r"messages\[0\]: the field `content` is missing"),
        ([{"role": "user", "content": 3}], TypeError, r"messages\[0\]: content: expected a text, not 3"),
        ([{"role": "user", "content": "", "n": 1}], ValueError, r"messages\[0\]: there is no field n, only"),
        ([3], TypeError, r"messages\[0\]: expected a dictionary with `role` and `content`, not 3"),
        ("Hello", TypeError, "messages: expected a list of dictionaries .*, not str"),
        (3, TypeError, "messages: expected a list of dictionaries .*, not int"),
    ]:
        with pytest.raises(kind, match=message):
            engine.chat(messages)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="pooling: \"max\" is none of mean, last"):
        engine.embed("fox", pooling="max")  # type: ignore[arg-type]
    assert issubclass(wrinklefree.RequestError, wrinklefree.Error)


def test_models_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(wrinklefree.OpenError, match="no weights"):
        wrinklefree.load(tmp_path)
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF")
    with pytest.raises(wrinklefree.OpenError, match="broken.gguf"):
        wrinklefree.load(str(broken))
    with pytest.raises(ValueError, match="kv_dtype: \"f8\" is none of f32"):
        wrinklefree.load(kv_dtype="f8")  # type: ignore[arg-type]
    for threads in (0, -3, 2**70):
        with pytest.raises(ValueError, match=f"threads: expected a whole number from 1, not {threads}"):
            wrinklefree.load(threads=threads)
    for wrong in ("x", True):
        with pytest.raises(TypeError, match=f"threads: expected a whole number from 1, not {wrong!r}"):
            wrinklefree.load(threads=wrong)  # type: ignore[arg-type]


def test_a_long_context_warns() -> None:
    assert wrinklefree.load(threads=1).context == 512
    with pytest.warns(UserWarning, match="the model was trained for 512"):
        assert wrinklefree.load(threads=1, context=4096).context == 4096


def test_without_numpy_texts_work_and_arrays_name_it() -> None:
    script = """
import sys
sys.modules["numpy"] = None
import wrinklefree
engine = wrinklefree.load(threads=1)
assert engine.generate("Once", max_tokens=2).text
try:
    engine.embed("fox")
except ImportError as error:
    print(error)
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "pip install numpy" in run.stdout, run


@pytest.mark.parametrize("page", ["README.md", "python/README.md"])
def test_the_programs_of_the_readmes_run(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    readme = (Path(__file__).parents[2] / page).read_text(encoding="utf-8")
    program = readme.split("```python\n")[1].split("```")[0]
    exec(compile(program, page, "exec"), {})
    assert "Pip" in capsys.readouterr().out


CITY = {"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}}, "required": ["city"]}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": CITY}}


def test_a_required_call_goes_back_with_its_result(engine: Engine) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Is it warm in Oslo?"}]
    answer = engine.chat(messages, tools=[WEATHER], tool_choice="required", temperature=0)
    (call,) = answer.tool_calls
    assert (call.name, answer.finish_reason, answer.text) == ("weather", "tool_calls", "")
    assert json.loads(call.arguments)["city"] in ("Oslo", "Rome")
    assert pickle.loads(pickle.dumps(answer)).tool_calls == answer.tool_calls
    messages += [
        {"role": "assistant", "content": None, "tool_calls": [call.to_dict()]},
        {"role": "tool", "tool_call_id": call.id, "content": "It is warm."},
    ]
    end = engine.chat(messages, tools=[WEATHER], tool_choice="none", max_tokens=8)
    assert end.prompt_tokens > answer.prompt_tokens and not end.tool_calls


def test_streams_have_parts_of_calls(engine: Engine) -> None:
    question = [{"role": "user", "content": "Is it warm in Oslo?"}]
    with engine.chat_stream(question, tools=[WEATHER], tool_choice="required", temperature=0) as stream:
        chunks = list(stream)
    parts = [part for chunk in chunks for part in chunk.tool_calls]
    assert parts[0].name == "weather" and parts[0].id and all(part.index == 0 for part in parts)
    assert json.loads("".join(part.arguments for part in parts))["city"]
    assert chunks[-1].finish_reason == "tool_calls"


def test_streams_in_asyncio(engine: Engine) -> None:
    async def texts() -> list[str]:
        return [chunk.text async for chunk in engine.stream("Once upon", max_tokens=8, temperature=0)]

    assert "".join(asyncio.run(texts())) == engine.generate("Once upon", max_tokens=8, temperature=0).text


def test_a_cancelled_task_cancels_its_request(engine: Engine) -> None:
    async def cancelled() -> None:
        stream = engine.stream("Once upon", max_tokens=100_000, context_shift=1, logit_bias=ENDLESS)

        async def read() -> None:
            async for _ in stream:
                pass

        task = asyncio.create_task(read())
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        # The thread that waited may have taken the last chunk.
        chunks = await asyncio.to_thread(list, stream)
        assert all(chunk.finish_reason in (None, "cancelled") for chunk in chunks)
        assert engine.stats()["running"] == 0

    asyncio.run(cancelled())


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"tools": "sun"}, "tools: expected a list"),
        ({"tools": [WEATHER, {"type": "function"}]}, r"tools\[1\]: the field `function` is missing"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, r"tools\[0\]: invalid tool name"),
        ({"tools": [WEATHER], "tool_choice": "maybe"}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice requires a call"),
        ({"documents": [{"text": "It is warm."}]}, "takes no documents"),
    ],
)
def test_tools_that_cannot_be_used_are_refused(engine: Engine, options: dict[str, Any], text: str) -> None:
    with pytest.raises((ValueError, TypeError, wrinklefree.Error), match=text):
        engine.chat([{"role": "user", "content": "Hi"}], **options)
