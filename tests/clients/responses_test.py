"""`/v1/responses` by the `openai` Python package."""

import json
import os
import unittest

import openai

CLIENT = openai.OpenAI(base_url=os.environ["WF_URL"], api_key=os.environ["WF_KEY"])


def tearDownModule():
    CLIENT.close()


WEATHER = {
    "type": "function",
    "name": "weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"enum": ["Oslo", "Rome"]}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}
REQUEST = {
    "model": "default",
    "input": "Tell me a story about a fox.",
    "temperature": 0,
    "max_output_tokens": 40,
}
CALL = {
    "tools": [WEATHER],
    "tool_choice": "required",
    "parallel_tool_calls": False,
    "max_output_tokens": 100,
}


def create(**more):
    return CLIENT.responses.create(**{**REQUEST, **more})


class Responses(unittest.TestCase):
    def test_answer(self):
        answer = create(instructions="Be kind.", metadata={"a": "b"}, store=False)
        self.assertEqual((answer.status, answer.metadata), ("incomplete", {"a": "b"}))
        self.assertEqual(answer.incomplete_details.reason, "max_output_tokens")
        self.assertEqual(answer.usage.output_tokens, 40)
        usage = answer.usage
        self.assertEqual(usage.total_tokens, usage.input_tokens + usage.output_tokens)
        whole = create(max_output_tokens=400)
        self.assertEqual((whole.status, whole.incomplete_details), ("completed", None))

    def test_stream_is_the_answer(self):
        want = create()
        events = list(create(stream=True))
        self.assertEqual([event.sequence_number for event in events], list(range(len(events))))
        deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
        self.assertIn("fox", want.output_text)
        self.assertEqual("".join(deltas), want.output_text)
        kinds = [event.type.removeprefix("response.") for event in events]
        begin = ["created", "in_progress", "output_item.added", "content_part.added"]
        self.assertEqual(kinds[:4], begin)
        end = ["output_text.done", "content_part.done", "output_item.done", "incomplete"]
        self.assertEqual(kinds[-4:], end)
        self.assertEqual(events[-1].response.output_text, want.output_text)

    def test_the_package_puts_streams_together(self):
        with CLIENT.responses.stream(**{**REQUEST, **CALL}) as stream:
            for _ in stream:
                pass
            [call] = stream.get_final_response().output
        self.assertEqual((call.type, call.name, call.status), ("function_call", "weather", "completed"))
        [want] = create(**CALL).output
        self.assertEqual(call.arguments, want.arguments)

    def test_tools(self):
        for choice in ["required", {"type": "function", "name": "weather"}]:
            [call] = create(**{**CALL, "tool_choice": choice}).output
            self.assertIn(json.loads(call.arguments)["city"], ["Oslo", "Rome"])
        output = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
        said = [{"role": "user", "content": REQUEST["input"]}, call, output]
        answer = create(input=said, tools=[WEATHER], tool_choice="none")
        self.assertEqual(answer.output[0].type, "message")
        again = create(input=[*said, *answer.output, {"role": "user", "content": "And now?"}])
        self.assertGreater(again.usage.output_tokens, 0)

    def test_json(self):
        schema = {
            "type": "object",
            "properties": {"name": {"type": "string", "maxLength": 10}},
            "required": ["name"],
            "additionalProperties": False,
        }
        form = {"type": "json_schema", "name": "fox", "schema": schema, "strict": True}
        answer = create(text={"format": form}, max_output_tokens=100)
        self.assertEqual(list(json.loads(answer.output_text)), ["name"])

    def test_stored_responses(self):
        first = create(instructions="Be brief.", max_output_tokens=8)
        self.assertEqual(CLIENT.responses.retrieve(first.id).output_text, first.output_text)
        later = create(input="And then?", previous_response_id=first.id, max_output_tokens=8)
        self.assertEqual(later.previous_response_id, first.id)
        messages = [
            {"role": "user", "content": REQUEST["input"]},
            {"role": "assistant", "content": first.output_text},
            {"role": "user", "content": "And then?"},
        ]
        whole = create(input=messages, max_output_tokens=8)
        self.assertEqual(whole.usage.input_tokens, later.usage.input_tokens)
        self.assertEqual(whole.output_text, later.output_text)
        CLIENT.responses.delete(first.id)
        with self.assertRaises(openai.NotFoundError):
            CLIENT.responses.retrieve(first.id)
        unstored = create(store=False, max_output_tokens=1)
        with self.assertRaises(openai.NotFoundError):
            CLIENT.responses.retrieve(unstored.id)

    def test_tools_of_openais_server_are_left_out(self):
        tools = [{"type": "web_search"}, {"type": "custom", "name": "patch"}, WEATHER]
        raw = CLIENT.responses.with_raw_response.create(
            model="default", input="Hi!", tools=tools, tool_choice="required",
            temperature=0, max_output_tokens=64,
        )
        self.assertEqual(raw.headers["x-ignored-fields"], "tools.type=web_search, tools.type=custom")
        self.assertEqual(raw.parse().output[0].name, "weather")

    def test_errors(self):
        image = {"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}
        for param, more in {
            "previous_response_id": {"previous_response_id": "resp-1"},
            "input[0].content": {"input": [image]},
            "background": {"background": True},
            "top_p": {"top_p": 7},
            "input": {"input": "word " * 3000},
        }.items():
            with self.assertRaises(openai.BadRequestError) as caught:
                create(**more)
            self.assertEqual(caught.exception.param, param)


if __name__ == "__main__":
    unittest.main()
