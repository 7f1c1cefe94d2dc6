"""The `anthropic` Python package against `wf-run serve`."""

import json
import os
import unittest

import anthropic

URL = os.environ["WF_URL"].removesuffix("/v1")
CLIENT = anthropic.Anthropic(base_url=URL, api_key=os.environ["WF_KEY"], max_retries=0)


def tearDownModule():
    CLIENT.close()


CITIES = ["Oslo", "Rome"]
WEATHER = {
    "name": "weather",
    "description": "How the weather is",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"enum": CITIES}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
REQUEST = {
    "model": "default",
    "messages": [{"role": "user", "content": "Tell me a story about a fox."}],
    "max_tokens": 40,
    "extra_body": {"temperature": 0},
}


def create(**more):
    return CLIENT.messages.create(**{**REQUEST, **more})


def stream(**more):
    return CLIENT.messages.stream(**{**REQUEST, **more})


class Messages(unittest.TestCase):
    def test_answer(self):
        answer = create(system=[{"type": "text", "text": "Be kind."}])
        self.assertEqual((answer.type, answer.role), ("message", "assistant"))
        self.assertEqual(answer.stop_reason, "max_tokens")
        self.assertIsNone(answer.stop_sequence)
        self.assertEqual(answer.usage.output_tokens, 40)

    def test_what_was_computed_before_is_counted_apart(self):
        messages = [{"role": "user", "content": "Tell me a story about an owl and a bear. " * 5}]
        first, again = [create(messages=messages).usage for _ in range(2)]
        self.assertGreater(again.cache_read_input_tokens, 0)
        total = first.input_tokens + first.cache_read_input_tokens
        self.assertEqual(again.input_tokens + again.cache_read_input_tokens, total)
        count = CLIENT.messages.count_tokens(model="default", messages=messages)
        self.assertEqual(count.input_tokens, total)

    def test_stream_is_the_answer(self):
        want = create()
        with stream() as events:
            kinds = [event.type for event in events]
            got = events.get_final_message()
        self.assertEqual(got.content[0].text, want.content[0].text)
        self.assertIn("fox", got.content[0].text)
        self.assertEqual((got.stop_reason, got.usage.output_tokens), ("max_tokens", 40))
        self.assertEqual(got.usage.input_tokens, want.usage.input_tokens)
        self.assertEqual((kinds[0], kinds[-1]), ("message_start", "message_stop"))

    def test_stop_sequences_are_named(self):
        stops = {"stop_sequences": ["dragon", " fox"], "max_tokens": 100}
        with stream(**stops) as events:
            streamed = events.get_final_message()
        for answer in [create(**stops), streamed]:
            self.assertEqual(answer.stop_reason, "stop_sequence")
            self.assertEqual(answer.stop_sequence, " fox")
            self.assertNotIn(" fox", answer.content[0].text)


class Format(unittest.TestCase):
    SCHEMA = {
        "type": "object",
        "properties": {"city": {"enum": CITIES}, "ok": {"type": "boolean"}},
        "required": ["city", "ok"],
        "additionalProperties": False,
    }

    def test_answers_fit_a_schema(self):
        format = {"type": "json_schema", "schema": self.SCHEMA}
        asked = {"output_config": {"format": format, "effort": "low"}, "max_tokens": 100}
        whole = create(**asked)
        with stream(**asked) as events:
            streamed = events.get_final_message()
        for answer in [whole, streamed]:
            self.assertEqual(answer.stop_reason, "end_turn")
            said = json.loads(answer.content[0].text)
            self.assertEqual(set(said), {"city", "ok"})
            self.assertIn(said["city"], CITIES)
            self.assertIsInstance(said["ok"], bool)
        with self.assertRaisesRegex(anthropic.BadRequestError, "output_config.format"):
            create(output_config={"format": {"type": "json_schema", "schema": {"type": "town"}}})


class Tools(unittest.TestCase):
    def call(self, answer):
        self.assertEqual(answer.stop_reason, "tool_use")
        [call] = [block for block in answer.content if block.type == "tool_use"]
        self.assertEqual(call.name, "weather")
        self.assertIn(call.input["city"], CITIES)
        return call

    def test_calls(self):
        one = {"disable_parallel_tool_use": True}
        for choice in [{"type": "any", **one}, {"type": "tool", "name": "weather", **one}]:
            asked = {"tools": [WEATHER], "tool_choice": choice, "max_tokens": 100}
            call = self.call(create(**asked))
            with stream(**asked) as events:
                self.assertEqual(self.call(events.get_final_message()).input, call.input)

    def test_results(self):
        asked = {"tools": [WEATHER], "max_tokens": 100}
        force = {"type": "any", "disable_parallel_tool_use": True}
        call = self.call(create(**asked, tool_choice=force))
        result = {"type": "tool_result", "tool_use_id": call.id, "content": "rain"}
        messages = [
            *REQUEST["messages"],
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result, {"type": "text", "text": "So?"}]},
        ]
        answer = create(**asked, messages=messages, tool_choice={"type": "none"})
        self.assertEqual(answer.content[0].type, "text")
        self.assertGreater(create(**asked, messages=messages).usage.output_tokens, 0)


class Errors(unittest.TestCase):
    def test_they_are_typed(self):
        image = {"type": "image", "source": {"type": "url", "url": "http://x"}}
        cases = [
            (anthropic.NotFoundError, "not_found_error", "claude", {"model": "claude"}),
            (anthropic.BadRequestError, "invalid_request_error", "top_p", {"extra_body": {"top_p": 7}}),
            (
                anthropic.BadRequestError,
                "invalid_request_error",
                "messages[0].content[0]: a part of type `image` is not supported: send text only",
                {"messages": [{"role": "user", "content": [image]}]},
            ),
        ]
        for error, kind, part, more in cases:
            with self.assertRaises(error) as caught:
                create(**more)
            body = caught.exception.body
            self.assertEqual((body["type"], body["error"]["type"]), ("error", kind))
            self.assertIn(part, body["error"]["message"])
        with self.assertRaises(anthropic.AuthenticationError) as caught:
            CLIENT.with_options(api_key="wrong").messages.create(**REQUEST)
        self.assertEqual(caught.exception.body["error"]["type"], "authentication_error")


if __name__ == "__main__":
    unittest.main()
