"""The `openai` Python package against `wf-run serve`."""

import asyncio
import os
import unittest

import openai

PROMPT = [{"role": "user", "content": "Tell me a story about a fox."}]


SERVER = {"base_url": os.environ["WF_URL"], "api_key": os.environ["WF_KEY"]}
CLIENT = openai.OpenAI(**SERVER)


def tearDownModule():
    CLIENT.close()


def chat(**more):
    defaults = {"model": "default", "messages": PROMPT, "temperature": 0, "max_tokens": 40}
    return CLIENT.chat.completions.create(**{**defaults, **more})


class Chat(unittest.TestCase):
    def test_answer(self):
        answer = chat()
        self.assertEqual(answer.object, "chat.completion")
        self.assertEqual(answer.choices[0].finish_reason, "length")
        self.assertEqual(answer.choices[0].message.role, "assistant")
        self.assertIn("fox", answer.choices[0].message.content)
        self.assertEqual(answer.usage.completion_tokens, 40)

    def test_stream_is_the_answer(self):
        want = chat().choices[0].message.content
        options = {"include_usage": True}
        chunks = list(chat(stream=True, stream_options=options))
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        self.assertEqual(text, want)
        self.assertEqual(chunks[-1].usage.completion_tokens, 40)
        self.assertTrue(all(c.usage is None for c in chunks[:-1]))

    def test_decode_modes_are_extra_fields(self):
        for mode in ["ar", "verify", "greedy", "iterative", "adaptive"]:
            answer = chat(extra_body={"decode_mode": mode, "threshold": 0.7})
            self.assertEqual(answer.usage.completion_tokens, 40, mode)

    def test_log_probabilities(self):
        answer = chat(logprobs=True, top_logprobs=3, max_tokens=5)
        tokens = answer.choices[0].logprobs.content
        self.assertEqual("".join(t.token for t in tokens), answer.choices[0].message.content)
        self.assertTrue(all(t.top_logprobs[0].logprob == t.logprob for t in tokens))

    def test_seeds_and_several_answers(self):
        def texts():
            answer = chat(n=2, seed=5, temperature=1)
            return [choice.message.content for choice in answer.choices]

        self.assertEqual(texts(), texts())
        self.assertEqual(len(set(texts())), 2)

    def test_stop(self):
        answer = chat(stop=["fox"], max_tokens=100)
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        self.assertNotIn("fox", answer.choices[0].message.content)

    def test_many_at_once(self):
        async def all_of_them():
            request = {"model": "default", "messages": PROMPT, "temperature": 0, "max_tokens": 40}
            async with openai.AsyncOpenAI(**SERVER) as own:
                answers = [own.chat.completions.create(**request) for _ in range(12)]
                return await asyncio.gather(*answers)

        texts = {answer.choices[0].message.content for answer in asyncio.run(all_of_them())}
        self.assertEqual(texts, {chat().choices[0].message.content})


class Rest(unittest.TestCase):
    def test_completions(self):
        create = CLIENT.completions.create
        answer = create(model="default", prompt="Once upon", temperature=0, max_tokens=4)
        self.assertEqual(answer.usage.completion_tokens, 4)
        chunks = create(
            model="default", prompt="Once upon", temperature=0, max_tokens=4, stream=True
        )
        streamed = "".join(c.choices[0].text for c in chunks)
        self.assertEqual(streamed, answer.choices[0].text)
        self.assertTrue(streamed.strip())
        # Sampled answers may end at once.
        more = {"ignore_eos": True}
        answer = create(
            model="default", prompt=["a", "b"], max_tokens=2, logprobs=2, echo=False, extra_body=more
        )
        self.assertEqual([len(c.logprobs.tokens) for c in answer.choices], [2, 2])

    def test_models(self):
        self.assertEqual([m.id for m in CLIENT.models.list()], ["default"])
        self.assertEqual(CLIENT.models.retrieve("default").owned_by, "wrinklefree")

    def test_errors(self):
        with self.assertRaises(openai.AuthenticationError):
            CLIENT.with_options(api_key="wrong").models.list()
        with self.assertRaises(openai.NotFoundError):
            chat(model="gpt-4")
        with self.assertRaises(openai.BadRequestError) as caught:
            chat(temperature=-1)
        self.assertEqual(caught.exception.param, "temperature")
        with self.assertRaises(openai.BadRequestError) as caught:
            chat(messages=[{"role": "user", "content": "word " * 3000}])
        self.assertEqual(caught.exception.code, "context_length_exceeded")


if __name__ == "__main__":
    unittest.main()
