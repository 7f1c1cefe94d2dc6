"""The `openai` Python package's embeddings against `wf-run serve`."""

import os
import unittest

import openai

CLIENT = openai.OpenAI(base_url=os.environ["WF_URL"], api_key=os.environ["WF_KEY"])


def tearDownModule():
    CLIENT.close()


class Embeddings(unittest.TestCase):
    def test_vectors(self):
        texts = ["The fox runs through the forest.", "The fox ran into the forest.", "What is 3 + 4?"]
        # The package asks for base64 unless told otherwise.
        packed = CLIENT.embeddings.create(model="default", input=texts)
        plain = CLIENT.embeddings.create(model="default", input=texts, encoding_format="float")
        vectors = [item.embedding for item in packed.data]
        for vector, other in zip(vectors, (item.embedding for item in plain.data), strict=True):
            self.assertAlmostEqual(sum(x * x for x in vector), 1, places=5)
            for x, y in zip(vector, other, strict=True):
                self.assertAlmostEqual(x, y, places=6)
        near, far = (sum(x * y for x, y in zip(vectors[0], v)) for v in vectors[1:])
        self.assertGreater(near, far)
        self.assertGreater(packed.usage.prompt_tokens, 10)


if __name__ == "__main__":
    unittest.main()
