"""Tools and JSON schemas in chats, by the `openai` Python package."""

import json
import os
import typing
import unittest

import openai
import pydantic

CLIENT = openai.OpenAI(base_url=os.environ["WF_URL"], api_key=os.environ["WF_KEY"])


def tearDownModule():
    CLIENT.close()


CITIES = ["Oslo", "Rome"]
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "How the weather is",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": CITIES}},
            "required": ["city"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}
CLOCK = {
    "type": "function",
    "function": {"name": "clock", "parameters": {"type": "object", "additionalProperties": False}},
}
NAMED = {"type": "function", "function": {"name": "weather"}}
REQUEST = {
    "model": "default",
    "messages": [{"role": "user", "content": "How is the weather?"}],
    "temperature": 0,
    "max_tokens": 100,
    "tools": [WEATHER, CLOCK],
    "parallel_tool_calls": False,
}


def chat(**more):
    return CLIENT.chat.completions.create(**{**REQUEST, **more})


class Fox(pydantic.BaseModel):
    model_config = {"extra": "forbid"}
    name: typing.Literal["Pip", "Biscuit"]
    brave: bool


class Tools(unittest.TestCase):
    def test_calls(self):
        for choice in ["required", NAMED]:
            [answer] = chat(tool_choice=choice).choices
            self.assertEqual((answer.finish_reason, answer.message.content), ("tool_calls", None))
            [call] = answer.message.tool_calls
            arguments = json.loads(call.function.arguments)
            if choice is NAMED or call.function.name == "weather":
                self.assertIn(arguments["city"], CITIES)

    def test_streamed_calls(self):
        [want] = chat(tool_choice=NAMED).choices[0].message.tool_calls
        with CLIENT.chat.completions.stream(**REQUEST, tool_choice=NAMED) as stream:
            for _ in stream:
                pass
            [answer] = stream.get_final_completion().choices
        [call] = answer.message.tool_calls
        self.assertEqual(answer.finish_reason, "tool_calls")
        self.assertEqual(call.function.name, "weather")
        self.assertEqual(call.function.arguments, want.function.arguments)

    def test_the_model_may_choose(self):
        [answer] = chat(tool_choice="auto").choices
        self.assertTrue(answer.message.content or answer.message.tool_calls)
        [answer] = chat(tool_choice="none").choices
        self.assertIsNone(answer.message.tool_calls)

    def test_results(self):
        message = chat(tool_choice=NAMED).choices[0].message
        result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "rain"}
        answer = chat(messages=[*REQUEST["messages"], message, result], tool_choice="none")
        self.assertTrue(answer.choices[0].message.content)

    def test_json_schema(self):
        messages = [{"role": "user", "content": "Tell me of a fox."}]
        request = {"model": "default", "messages": messages, "max_tokens": 100}
        answer = CLIENT.chat.completions.parse(**request, response_format=Fox)
        self.assertIsInstance(answer.choices[0].message.parsed, Fox)
        with CLIENT.chat.completions.stream(**request, response_format=Fox) as stream:
            for _ in stream:
                pass
            answer = stream.get_final_completion()
        self.assertIsInstance(answer.choices[0].message.parsed, Fox)


if __name__ == "__main__":
    unittest.main()
