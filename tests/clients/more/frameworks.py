"""Python frameworks against `wf-run serve`. Writes what works to a JSON file for `table.py`."""

import asyncio
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

URL, KEY = os.environ["WF_URL"], os.environ["WF_KEY"]
HOST = URL.removesuffix("/v1")
HEADERS = {"Authorization": f"Bearer {KEY}"}
PROMPT = "Tell me a story about a fox."
RESULTS = []


def client(name, package, api):
    """Registers the checks of a client: a function that yields pairs of a feature and a check."""

    def register(checks):
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            return  # It is in another environment, with another version of `openai`.
        result = {"client": name, "package": f"{package} {version}"}
        result |= {"api": api, "features": {}}
        for feature, check in checks():
            try:
                check()
                result["features"][feature] = True
            except Exception:
                traceback.print_exc()
                result["features"][feature] = False
        RESULTS.append(result)

    return register


def same(got, want):
    assert got == want, f"{got!r} instead of {want!r}"


def has_text(text):
    assert text and text.strip(), repr(text)


@client("Ollama (Python)", "ollama", "Ollama")
def _():
    import ollama

    own = ollama.Client(host=HOST, headers=HEADERS)
    request = {"model": "default", "messages": [{"role": "user", "content": PROMPT}]}
    request["options"] = {"temperature": 0, "num_predict": 40}
    schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"]}
    yield "answer", lambda: has_text(own.chat(**request).message.content)
    yield "stream", lambda: same(
        "".join(part.message.content for part in own.chat(**request, stream=True)),
        own.chat(**request).message.content,
    )
    yield "schema", lambda: json.loads(own.chat(**request, format=schema).message.content)["n"]
    yield "embeddings", lambda: same(len(own.embed("default", ["a", "b"]).embeddings), 2)


@client("OpenAI (Python)", "openai", "OpenAI")
def _():
    import openai

    own = openai.OpenAI(base_url=URL, api_key=KEY)
    request = {"model": "default", "messages": [{"role": "user", "content": PROMPT}]}
    request |= {"temperature": 0, "max_tokens": 40}
    create = own.chat.completions.create
    tool = {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"enum": ["Oslo"]}}, "required": ["city"]}}
    yield "answer", lambda: has_text(create(**request).choices[0].message.content)
    yield "stream", lambda: same(
        "".join(c.choices[0].delta.content or "" for c in create(**request, stream=True)),
        create(**request).choices[0].message.content,
    )

    def calls():
        more = {"tools": [{"type": "function", "function": tool}], "tool_choice": "required"}
        call = create(**{**request, "max_tokens": 200}, **more, parallel_tool_calls=False)
        function = call.choices[0].message.tool_calls[0].function
        same((function.name, json.loads(function.arguments)), ("weather", {"city": "Oslo"}))

    yield "tool call", calls
    yield "embeddings", lambda: same(
        len(own.embeddings.create(model="default", input=["a", "b"]).data), 2
    )


@client("LangChain (Ollama)", "langchain-ollama", "Ollama")
def _():
    from langchain_ollama import ChatOllama, OllamaEmbeddings

    more = {"base_url": HOST, "client_kwargs": {"headers": HEADERS}, "model": "default"}
    own = ChatOllama(**more, temperature=0, num_predict=40)
    yield "answer", lambda: has_text(own.invoke(PROMPT).content)
    yield "stream", lambda: same(
        "".join(chunk.content for chunk in own.stream(PROMPT)), own.invoke(PROMPT).content
    )
    schema = {
        "title": "Number",
        "type": "object",
        "properties": {"n": {"enum": [1, 2]}},
        "required": ["n"],
    }
    typed = own.with_structured_output(schema, method="json_schema")
    yield "schema", lambda: typed.invoke(PROMPT)["n"]
    embed = OllamaEmbeddings(**more)
    yield "embeddings", lambda: same(len(embed.embed_documents(["a", "b"])), 2)


@client("LangChain (OpenAI)", "langchain-openai", "OpenAI")
def _():
    from langchain_openai import ChatOpenAI

    own = ChatOpenAI(base_url=URL, api_key=KEY, model="default", temperature=0, max_tokens=40)
    yield "answer", lambda: has_text(own.invoke(PROMPT).content)
    yield "stream", lambda: same(
        "".join(chunk.content for chunk in own.stream(PROMPT)), own.invoke(PROMPT).content
    )
    long = ChatOpenAI(base_url=URL, api_key=KEY, model="default", temperature=0, max_tokens=200)

    def calls():
        tool = {
            "name": "weather",
            "description": "Tells the weather.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"enum": ["Oslo"]}},
                "required": ["city"],
            },
        }
        bound = long.bind_tools([tool], tool_choice="weather")
        same(bound.invoke(PROMPT).tool_calls[0]["args"], {"city": "Oslo"})

    yield "tool call", calls


@client("LlamaIndex (Ollama)", "llama-index-llms-ollama", "Ollama")
def _():
    import ollama
    from llama_index.llms.ollama import Ollama

    own = Ollama(
        model="default",
        base_url=HOST,
        client=ollama.Client(host=HOST, headers=HEADERS),
        temperature=0,
        context_window=2048,
        additional_kwargs={"num_predict": 40},
    )
    yield "answer", lambda: has_text(own.complete(PROMPT).text)
    yield "stream", lambda: same(
        "".join(part.delta for part in own.stream_complete(PROMPT)), own.complete(PROMPT).text
    )


@client("LlamaIndex (OpenAI)", "llama-index-llms-openai-like", "OpenAI")
def _():
    from llama_index.llms.openai_like import OpenAILike

    own = OpenAILike(
        model="default", api_base=URL, api_key=KEY, is_chat_model=True, temperature=0, max_tokens=40
    )
    yield "answer", lambda: has_text(own.complete(PROMPT).text)
    yield "stream", lambda: same(
        "".join(part.delta for part in own.stream_complete(PROMPT)), own.complete(PROMPT).text
    )


@client("pydantic-ai", "pydantic-ai-slim", "OpenAI")
def _():
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    model = OpenAIChatModel("default", provider=OpenAIProvider(base_url=URL, api_key=KEY))
    agent = Agent(model, model_settings={"temperature": 0, "max_tokens": 40})
    yield "answer", lambda: has_text(agent.run_sync(PROMPT).output)


@client("instructor", "instructor", "OpenAI")
def _():
    import instructor
    import openai
    from pydantic import BaseModel
    from typing import Literal

    class Animal(BaseModel):
        name: Literal["fox", "owl"]

    client = openai.OpenAI(base_url=URL, api_key=KEY)
    request = {"model": "default", "messages": [{"role": "user", "content": PROMPT}]}
    request |= {"temperature": 0, "max_tokens": 400, "response_model": Animal}
    typed = instructor.from_openai(client, mode=instructor.Mode.JSON_SCHEMA)
    called = instructor.from_openai(client, mode=instructor.Mode.TOOLS)
    yield "schema", lambda: typed.chat.completions.create(**request)
    single = {**request, "parallel_tool_calls": False}
    yield "tool call", lambda: called.chat.completions.create(**single)


@client("openai-agents", "openai-agents", "OpenAI")
def _():
    import agents
    import openai

    agents.set_tracing_disabled(True)
    model = agents.OpenAIChatCompletionsModel(
        "default", openai.AsyncOpenAI(base_url=URL, api_key=KEY)
    )
    settings = agents.ModelSettings(temperature=0, max_tokens=40)
    agent = agents.Agent(name="Teller", model=model, model_settings=settings)
    yield "answer", lambda: has_text(asyncio.run(agents.Runner.run(agent, PROMPT)).final_output)


@client("llm", "llm", "OpenAI")
def _():
    def answer():
        with tempfile.TemporaryDirectory() as home:
            Path(home, "extra-openai-models.yaml").write_text(
                f"- model_id: tales\n  model_name: default\n  api_base: {URL}\n  api_key_name: wf\n"
            )
            own = {**os.environ, "LLM_USER_PATH": home}
            program = Path(sys.executable).with_name("llm")
            args = [program, "-m", "tales", "--key", KEY, "-o", "max_tokens", "40", PROMPT]
            ran = subprocess.run(args, env=own, capture_output=True, text=True, check=True)
            has_text(ran.stdout)

    yield "answer", answer


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(RESULTS, indent=1))
