"""The tokenizer: byte-level BPE, special tokens, and how a conversation becomes ids.

    <|bos|> (<|user|> question <|bot|> answer <|eos|>)+
"""
import random
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIAL = ["<|mask|>", "<|bos|>", "<|eos|>", "<|user|>", "<|bot|>"]
MASK, BOS, EOS, USER, BOT = range(5)
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}<|user|>{{ m['content'] }}"
    "<|bot|>{% elif m['role'] == 'assistant' %}{{ m['content'] }}<|eos|>{% endif %}{% endfor %}"
)
# Qwen2's split: letters with the sign or space before them, single digits, signs, line ends, spaces.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def train(texts, vocab: int) -> Tokenizer:
    """A tokenizer of at most `vocab` entries for `texts`."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=SPECIAL, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def load(path: Path, vocab: int, seed: int, documents: int = 20_000) -> Tokenizer:
    """The tokenizer in a file, trained on generated documents first if there is none."""
    import tinyworld

    if not path.exists():
        rng = random.Random(f"tokenizer {seed}")
        documents = (tinyworld.document(rng, "train") for _ in range(documents))
        texts = (text for document in documents for turn in document for text in turn)
        path.parent.mkdir(parents=True, exist_ok=True)
        train(texts, vocab).save(str(path))
    return Tokenizer.from_file(str(path))


def prompt(tokenizer: Tokenizer, turns, question: str) -> list[int]:
    """A conversation so far and a question, up to where the answer begins."""
    return [*conversation(tokenizer, turns), USER, *tokenizer.encode(question).ids, BOT]


def conversation(tokenizer: Tokenizer, turns) -> list[int]:
    """The ids of whole turns."""
    ids = [BOS]
    for question, answer in turns:
        ids += [USER, *tokenizer.encode(question).ids, BOT, *tokenizer.encode(answer).ids, EOS]
    return ids


def text(tokenizer: Tokenizer, ids) -> str:
    """The text of ids, without special tokens."""
    return tokenizer.decode([i for i in ids if i >= len(SPECIAL)])


def config(context: int) -> dict:
    """`tokenizer_config.json` of an exported model."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|bos|>",
        "eos_token": "<|eos|>", "mask_token": "<|mask|>", "model_max_length": context,
        "chat_template": CHAT_TEMPLATE,
    }
