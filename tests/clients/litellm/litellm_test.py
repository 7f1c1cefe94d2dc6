"""`litellm` against `wf-run serve`, through the APIs that it speaks."""

import os
import unittest

# Prevents a download of model prices.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
import litellm

URL, KEY = os.environ["WF_URL"], os.environ["WF_KEY"]
PROMPT = [{"role": "user", "content": "Tell me a story about a fox."}]


def complete(provider, **more):
    base = URL if provider in ("openai", "hosted_vllm") else URL.removesuffix("/v1")
    request = {"model": f"{provider}/default", "api_base": base, "api_key": KEY}
    request |= {"messages": PROMPT, "temperature": 0, "max_tokens": 40}
    return litellm.completion(**{**request, **more})


class Litellm(unittest.TestCase):
    def test_answers_and_streams(self):
        texts = set()
        for provider in ["openai", "anthropic", "hosted_vllm", "ollama_chat"]:
            answer = complete(provider)
            self.assertEqual(answer.usage.completion_tokens, 40)
            self.assertEqual(answer.choices[0].finish_reason, "length")
            chunks = list(complete(provider, stream=True))
            streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
            self.assertEqual(streamed, answer.choices[0].message.content)
            texts.add(streamed)
        self.assertEqual(len(texts), 1)

    def test_errors(self):
        for provider in ["openai", "anthropic", "hosted_vllm"]:
            with self.assertRaises(litellm.BadRequestError):
                complete(provider, top_p=7)


if __name__ == "__main__":
    unittest.main()
