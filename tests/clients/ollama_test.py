"""The `ollama` Python package against `wf-run serve`."""

import json
import os
import unittest

import ollama

HOST = os.environ["WF_URL"].removesuffix("/v1")
CLIENT = ollama.Client(host=HOST, headers={"Authorization": f"Bearer {os.environ['WF_KEY']}"})
PROMPT = [{"role": "user", "content": "Tell me a story about a fox."}]
OPTIONS = {"temperature": 0, "num_predict": 40}


def chat(**more):
    return CLIENT.chat(**{"model": "default", "messages": PROMPT, "options": OPTIONS, **more})


def weather(city: str) -> str:
    """Tells the weather.

    Args:
      city: The city.
    """
    return f"rain in {city}"


class Ollama(unittest.TestCase):
    def test_chat_and_stream(self):
        answer = chat()
        self.assertIn("fox", answer.message.content)
        self.assertEqual((answer.done, answer.done_reason, answer.eval_count), (True, "length", 40))
        parts = list(chat(stream=True))
        self.assertEqual("".join(p.message.content for p in parts), answer.message.content)
        self.assertEqual([part.done for part in parts], [False] * (len(parts) - 1) + [True])

    def test_generate(self):
        answer = CLIENT.generate(model="default", prompt=PROMPT[0]["content"], options=OPTIONS)
        self.assertEqual(answer.response, chat().message.content)
        raw = CLIENT.generate(model="default", prompt="Once upon", raw=True, options=OPTIONS)
        self.assertTrue(raw.response)
        hole = {"temperature": 0, "num_predict": 3}
        fill = CLIENT.generate(
            model="default", prompt="Tom had a red", suffix=" ball.", options=hole
        )
        self.assertEqual(fill.done_reason, "stop")

    def test_format_is_a_schema(self):
        schema = {
            "type": "object",
            "properties": {"animal": {"enum": ["fox", "owl"]}},
            "required": ["animal"],
        }
        answer = chat(format=schema)
        self.assertIn(json.loads(answer.message.content)["animal"], ["fox", "owl"])

    def test_functions_are_tools(self):
        # Without a call, the answer is a text: the model only knows stories.
        answer = chat(tools=[weather])
        self.assertTrue(answer.message.content or answer.message.tool_calls)
        call = ollama.Message.ToolCall(
            function=ollama.Message.ToolCall.Function(name="weather", arguments={"city": "Oslo"})
        )
        history = [
            *PROMPT,
            ollama.Message(role="assistant", content="", tool_calls=[call]),
            {"role": "tool", "tool_name": "weather", "content": weather("Oslo")},
        ]
        self.assertTrue(chat(messages=history, tools=[weather]).message.content)

    def test_embeddings(self):
        vectors = CLIENT.embed(model="default", input=["a fox", "an owl"]).embeddings
        self.assertEqual(len(vectors), 2)
        one = CLIENT.embeddings(model="default", prompt="a fox").embedding
        self.assertEqual(list(one), list(vectors[0]))

    def test_models(self):
        (model,) = CLIENT.list().models
        self.assertEqual((model.model, len(model.digest)), ("default", 64))
        self.assertEqual(CLIENT.ps().models[0].model, "default")
        self.assertIn("completion", CLIENT.show("default").capabilities)

    def test_errors(self):
        with self.assertRaises(ollama.ResponseError) as caught:
            chat(model="llama3")
        self.assertEqual(caught.exception.status_code, 404)
        self.assertIn("llama3", caught.exception.error)
        with self.assertRaises(ollama.ResponseError) as caught:
            chat(options={"repeat_last_n": 4})
        self.assertIn("repeat_last_n", caught.exception.error)


if __name__ == "__main__":
    unittest.main()
