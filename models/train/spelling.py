"""Spelling: how much a model leaves to tokens that no word of TinyWorld goes on with.

A token may follow when the letters that it adds, after those that stand there already, still begin
a word, and when a word that it ends is one. To a loss of likely texts the others hardly matter, since
each of them is unlikely; but they are three thousand, and a sampled story has a hundred places.
"""
import re

import numpy as np
import torch
from tokenizers import Tokenizer

from coherence import WORD, Vocabulary

UNKNOWN = 0  # the state in a word that is none: anything may follow until it ends
BETWEEN = 1  # no letters stand there yet


class Speller:
    """The tokens that may follow letters. A state is a number for the letters that a word has so
    far; `follows` and `next` [states, vocabulary] say whether a token may follow, and the state then.
    """

    def __init__(self, tokenizer: Tokenizer, vocabulary: Vocabulary):
        words = vocabulary.words | {word[0].upper() + word[1:] for word in vocabulary.words}
        begun = {word[:n] for word in words for n in range(1, len(word) + 1)}
        state = {"": BETWEEN} | {letters: i for i, letters in enumerate(sorted(begun), BETWEEN + 1)}
        size = tokenizer.get_vocab_size()
        self.follows = np.zeros((BETWEEN + 1 + len(begun), size), dtype=bool)
        self.next = np.zeros(self.follows.shape, dtype=np.int32)
        whole = np.array([True, True, *(letters in words for letters in sorted(begun))])
        bare = {}
        for token in range(size):
            text = tokenizer.id_to_token(token)
            letters = re.search("[A-Za-z]*$", text)[0]
            if letters == text:
                bare[letters] = token
                continue
            # A space or a sign ends the word. There are none between letters: `tokens.SPLIT`.
            assert len(WORD.findall(text)) <= 1 or text.startswith("<|"), text
            letters = "" if text.startswith("<|") else letters
            self.follows[:, token] = whole & (letters in state)
            self.next[:, token] = state.get(letters, UNKNOWN)
        for letters in begun:
            for n in range(len(letters)):
                token = bare.get(letters[n:])
                if token is not None:
                    self.follows[state[letters[:n]], token] = True
                    self.next[state[letters[:n]], token] = state[letters]
        self.follows[UNKNOWN] = True

    def allowed(self, rows: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        """Of rows [B, T], whether each token may stand at the places `index` [N] of all: [N, vocabulary]."""
        tokens = rows.cpu().numpy()
        states = np.full(tokens.shape, BETWEEN)
        for i in range(1, tokens.shape[1]):
            states[:, i] = self.next[states[:, i - 1], tokens[:, i - 1]]
        return torch.from_numpy(self.follows[states.reshape(-1)[index.cpu().numpy()]]).to(rows.device)


def misspelled(logits: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
    """The probability of tokens that may not follow, as -log of the rest: [N], of
    logits and `allowed` [N, vocabulary]."""
    return logits.logsumexp(-1) - logits.masked_fill(~allowed, -torch.inf).logsumexp(-1)
