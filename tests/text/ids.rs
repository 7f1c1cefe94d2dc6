//! Ids equal those of Python's `tokenizers`, for a `tokenizer.json` and for a GGUF file made from it.

use crate::{gguf, golden, npm};
use serde_json::Value;
use wrinklefree::format::{GgufVocab, Vocabulary};
use wrinklefree::text::{TextError, Tokenizer};

fn from_gguf(vocab: &GgufVocab) -> Result<Tokenizer, TextError> {
    Tokenizer::new(&Vocabulary::Gguf(Box::new(vocab.clone())))
}

fn assert_ids(what: &str, tokenizer: &Tokenizer, rows: &Value) {
    for row in rows.as_array().unwrap() {
        let text = row["text"].as_str().unwrap();
        let ids = serde_json::to_value(tokenizer.encode(text, false).unwrap()).unwrap();
        assert_eq!(ids, row["ids"], "{what}: {text:?}");
    }
}

fn assert_texts(what: &str, tokenizer: &Tokenizer, rows: &Value) {
    for row in rows.as_array().unwrap() {
        let ids: Vec<u32> = serde_json::from_value(row["ids"].clone()).unwrap();
        assert_eq!(tokenizer.decode(&ids), row["decoded"], "{what}: {ids:?}");
    }
}

#[test]
fn json_gives_the_ids_and_texts_of_python() {
    let golden = golden("text_ids.json");
    for (name, vocab_size) in [("llama3", 128_256), ("qwen3", 151_669), ("llama2", 32_000)] {
        let Some(json) = npm::file(name, "tokenizer.json") else {
            continue;
        };
        let tokenizer = Tokenizer::new(&Vocabulary::Json(json.into())).unwrap();
        assert_ids(name, &tokenizer, &golden[name]);
        assert_texts(name, &tokenizer, &golden[name]);
        assert_eq!(tokenizer.vocab_size(), vocab_size);
        assert_eq!(tokenizer.check(vocab_size), Ok(()));
        assert_eq!(tokenizer.check(vocab_size + 100), Ok(()));
        let error = tokenizer.check(vocab_size - 1).unwrap_err();
        assert_eq!(error.code(), "tokenizer_mismatch");

        let again = Tokenizer::from_json(tokenizer.to_json().as_bytes()).unwrap();
        assert_ids(name, &again, &golden[name]);
        assert_texts(name, &again, &golden[name]);
    }
}

/// The words into which a pre-tokenizer splits a text.
fn words(pre: &str, text: &str) -> Vec<String> {
    // GPT-2's characters for bytes: printable ones stand for themselves.
    let plain = |byte: &u32| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let alphabet: Vec<char> = (0..256)
        .map(|byte| {
            if plain(&byte) {
                byte
            } else {
                256 + (0..byte).filter(|other| !plain(other)).count() as u32
            }
        })
        .map(|code| char::from_u32(code).unwrap())
        .collect();
    let chars: Vec<char> = text.bytes().map(|byte| alphabet[usize::from(byte)]).collect();
    // Any two neighbors merge, so each word becomes one token.
    let (mut tokens, mut merges) = (Vec::new(), Vec::new());
    for length in 1..=chars.len() {
        for piece in chars.windows(length) {
            let token: String = piece.iter().collect();
            if !tokens.contains(&token) {
                let halves = |at: usize| [&piece[..at], &piece[at..]].map(String::from_iter);
                merges.extend((1..length).map(|at| halves(at).join(" ")));
                tokens.push(token);
            }
        }
    }
    let (model, pre) = ("gpt2".into(), Some(pre.into()));
    let tokenizer =
        from_gguf(&GgufVocab { model, pre, tokens, merges, ..GgufVocab::default() }).unwrap();
    let ids = tokenizer.encode(text, false).unwrap();
    ids.iter().map(|&id| String::from_utf8(tokenizer.bytes(id).to_vec()).unwrap()).collect()
}

#[test]
fn hunyuan_splits_numbers_and_ideographs_first() {
    let cases: [(&str, &[&str]); 3] = [
        (
            "Hello, world! 12345678 tokens",
            &["Hello", ",", " world", "!", " ", "123", "456", "78", " tokens"],
        ),
        ("日本語のテキストabc漢字123", &["日本語のテキスト", "abc", "漢字", "123"]),
        (
            "don't_stop (like) this...OK?",
            &["don", "'t", "_stop", " (", "like", ")", " this", "...", "OK", "?"],
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(words("hunyuan-dense", text), expected, "{text}");
    }
}

#[test]
fn gguf_gives_the_ids_of_the_json_it_was_made_from() {
    let golden = golden("text_ids.json");
    for (name, pre, rows) in [("llama3", "llama-bpe", 0), ("qwen3", "qwen2", 151_936)] {
        let Some(json) = npm::file(name, "tokenizer.json") else {
            continue;
        };
        let json: Value = serde_json::from_slice(&json).unwrap();
        let mut vocab = gguf::byte_level(&json, pre, rows);
        let tokenizer = from_gguf(&vocab).unwrap();
        let original = Tokenizer::from_json(&serde_json::to_vec(&json).unwrap()).unwrap();
        assert_eq!(tokenizer.vocab_size(), original.vocab_size());
        for id in 0..tokenizer.vocab_size() as u32 {
            assert_eq!(tokenizer.token(id), original.token(id));
            assert_eq!(tokenizer.bytes(id), original.bytes(id));
        }
        assert_ids(name, &tokenizer, &golden[name]);
        let again = Tokenizer::from_json(tokenizer.to_json().as_bytes()).unwrap();
        assert_ids(name, &again, &golden[name]);

        // Some converters omit the name.
        for missing in [None, Some(String::new()), Some("default".into())] {
            vocab.pre = missing;
            let guessed = from_gguf(&vocab).unwrap();
            assert_ids(name, &guessed, &golden[name]);
            assert_eq!(guessed.guessed_pre_tokenizer(), Some(pre));
        }
        // Nor has a vocabulary of their own the tokens by which these are known.
        let mut unknown = gguf::byte_level(&json, "default", rows);
        for token in unknown.tokens.iter_mut().filter(|token| token.starts_with("<|")) {
            *token = token.replace("<|", "<<");
        }
        let guessed = from_gguf(&unknown).unwrap();
        assert_eq!(guessed.guessed_pre_tokenizer(), Some(pre), "by the merges");

        vocab.pre = Some(pre.into());
        let hello = tokenizer.encode("Hello", false).unwrap();
        let bos = tokenizer.id(if name == "llama3" { "<|begin_of_text|>" } else { "<|im_start|>" });
        vocab.bos = bos;
        for (add_bos, expected) in
            [(Some(true), true), (Some(false), false), (None, name == "llama3")]
        {
            vocab.add_bos = add_bos;
            let ids = from_gguf(&vocab).unwrap().encode("Hello", true).unwrap();
            let bos = bos.filter(|_| expected);
            assert!(ids.iter().eq(bos.iter().chain(&hello)), "{name} {add_bos:?}: {ids:?}");
        }
    }
}

#[test]
fn qwen35_counts_marks_to_words_and_its_own_marks_to_the_text() {
    let golden = golden("qwen35_text.json");
    let json = &golden["tokenizer"];
    let original = Tokenizer::from_json(&serde_json::to_vec(json).unwrap()).unwrap();
    let mut vocab = gguf::byte_level(json, "qwen35", 720);
    let thinking = original.encode("<think>\nHm.\n</think>\n\n42<|im_end|>", false).unwrap();
    for (what, tokenizer) in [("json", original), ("gguf", from_gguf(&vocab).unwrap())] {
        assert_ids(what, &tokenizer, &golden["rows"]);
        assert_eq!(tokenizer.decode(&thinking), "<think>\nHm.\n</think>\n\n42", "{what}");
        // Form C is that of the reference for GGUF files, too.
        assert_eq!(tokenizer.encode("e\u{301}", false), tokenizer.encode("é", false), "{what}");
    }
    vocab.pre = Some("qwen2".into());
    let other = from_gguf(&vocab).unwrap();
    let marked = golden["rows"].as_array().unwrap().iter().any(|row| {
        let ids = other.encode(row["text"].as_str().unwrap(), false).unwrap();
        serde_json::to_value(ids).unwrap() != row["ids"]
    });
    assert!(marked, "the texts have marks, which Qwen2 splits off");
}

#[test]
fn sentencepiece_gguf_gives_the_merges_and_ids_of_the_json() {
    let Some(json) = npm::file("llama2", "tokenizer.json") else {
        return;
    };
    let json: Value = serde_json::from_slice(&json).unwrap();
    let tokenizer = from_gguf(&gguf::sentencepiece(&json)).unwrap();
    let rows = &golden("text_ids.json")["llama2"];
    assert_ids("llama2", &tokenizer, rows);
    assert_texts("llama2", &tokenizer, rows);
    assert_eq!(tokenizer.encode("a", true).unwrap()[0], 1);
    let ours: Value = serde_json::from_str(&tokenizer.to_json()).unwrap();
    assert_eq!(gguf::merges(&ours), gguf::merges(&json));

    let mut vocab = gguf::sentencepiece(&json);
    vocab.add_space_prefix = Some(false);
    let tokenizer = from_gguf(&vocab).unwrap();
    let ids = tokenizer.encode("the cat", false).unwrap();
    assert_eq!(tokenizer.token(ids[0]).as_deref(), Some("the"));
    assert_eq!(tokenizer.decode(&ids), "the cat");
    assert_eq!(tokenizer.decode(&tokenizer.encode(" x", false).unwrap()), " x");
}

#[test]
fn malformed_gguf_vocabularies_are_refused() {
    let good = GgufVocab {
        model: "gpt2".into(),
        pre: Some("gpt-2".into()),
        tokens: ["a", "b", "ab", "<s>"].map(String::from).into(),
        types: vec![1, 1, 1, 3],
        merges: vec!["a b".into()],
        ..GgufVocab::default()
    };
    let ids = from_gguf(&good).unwrap().encode("ab<s>ba", false).unwrap();
    assert_eq!(ids, [2, 3, 1, 0]);

    let fails = |change: &dyn Fn(&mut GgufVocab), code: &str, says: &str| {
        let mut vocab = good.clone();
        change(&mut vocab);
        let error = from_gguf(&vocab).unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert!(error.to_string().contains(says), "{error}");
    };
    fails(&|v| v.model = "rwkv".into(), "unknown_tokenizer_model", "`rwkv`");
    fails(
        &|v| v.pre = Some("gpt-4o".into()),
        "unknown_pre_tokenizer",
        "`gpt-4o`; known are llama-bpe",
    );
    fails(&|v| v.types.truncate(2), "bad_vocabulary", "4 tokens but 2 types");
    fails(&|v| v.scores.push(0.0), "bad_vocabulary", "4 tokens but 1 scores");
    fails(&|v| v.merges.push("ab".into()), "bad_vocabulary", "\"ab\" is not two tokens");
    fails(&|v| v.merges.push("a c".into()), "bad_vocabulary", "needs the token \"c\"");
    fails(&|v| v.merges.push("b a".into()), "bad_vocabulary", "needs the token \"ba\"");
    fails(
        &|v| (v.bos, v.add_bos) = (Some(9), Some(true)),
        "bad_vocabulary",
        "bos_token_id is 9 in a vocabulary of 4",
    );
}

#[test]
fn names_of_pre_tokenizers_that_mean_known_rules() {
    let Some(json) = npm::file("qwen3", "tokenizer.json") else {
        return;
    };
    let json: Value = serde_json::from_slice(&json).unwrap();
    let text = "I'll pay 1234.50 (in 2025)…\n\n\tit's_fine  ok";
    let ids = |pre: &str| {
        let tokenizer = from_gguf(&gguf::byte_level(&json, pre, 0)).unwrap();
        assert_eq!(tokenizer.guessed_pre_tokenizer(), None);
        tokenizer.encode(text, false).unwrap()
    };
    let groups: [(&str, &[&str]); 4] = [
        ("llama-bpe", &["midm-2.0", "dbrx", "smaug-bpe", "glm4", "chatglm-bpe"]),
        ("qwen2", &["kormo", "megrez", "stablelm2", "hunyuan", "grok-2"]),
        ("gpt-2", &["exaone4", "mellum", "a.x-4.0", "mpt", "jais", "trillion"]),
        ("smollm", &["command-r", "codeshell", "exaone", "minerva-7b"]),
    ];
    for (first, others) in groups {
        let want = ids(first);
        others.iter().for_each(|name| assert_eq!(ids(name), want, "{name} as {first}"));
    }
    assert_ne!(ids("gpt-2"), ids("qwen2"), "the text shows the difference");
}
