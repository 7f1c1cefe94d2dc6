//! Malformed `tokenizer.json` files give errors.

use wrinklefree::format::{GgufVocab, Vocabulary};
use wrinklefree::text::{TextError, Tokenizer};

const SMALL: &str = r#"{"version":"1.0","truncation":{"direction":"Right","max_length":2,"strategy":"LongestFirst","stride":0},"padding":null,
"added_tokens":[{"id":4,"content":"<s>","special":true,"single_word":false,"lstrip":false,"rstrip":false,"normalized":false}],
"normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Replace","pattern":{"String":"x"},"content":"a"}]},
"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"a+"},"behavior":"Isolated","invert":false},{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":false,"use_regex":false}]},
"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"pair":[],"special_tokens":{"<s>":{"id":"<s>","ids":[4],"tokens":["<s>"]}}},
"decoder":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":false,"use_regex":false},
"model":{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,"ignore_merges":false,"vocab":{"a":0,"b":1,"ab":2,"aa":3},"merges":["a b","a a"]}}"#;

#[test]
fn limits_of_a_training_run_do_not_cut_prompts() {
    let tokenizer = Tokenizer::from_json(SMALL.as_bytes()).unwrap();
    assert_eq!(tokenizer.encode("bbbxa", true).unwrap(), [4, 1, 1, 1, 3]);
    assert_eq!(tokenizer.decode(&[4, 2, 1, 3, 77]), "abbaa");
    assert_eq!(tokenizer.id("<s>"), Some(4));
    assert_eq!((tokenizer.id("x"), tokenizer.token(9)), (None, None));
    assert!(tokenizer.is_special(4) && !tokenizer.is_special(0));
    assert_eq!((tokenizer.bytes(2), tokenizer.bytes(99)), (&b"ab"[..], &b""[..]));
}

#[test]
fn every_truncation_and_every_flipped_byte_is_an_error_or_a_tokenizer() {
    for end in 0..SMALL.len() {
        assert!(Tokenizer::from_json(&SMALL.as_bytes()[..end]).is_err(), "{end}");
    }
    let mut built = 0;
    for at in 0..SMALL.len() {
        for new in [b'0', b'"', b'}', b'z', 0xFF, b'-'] {
            let mut json = SMALL.as_bytes().to_vec();
            json[at] = new;
            if let Ok(tokenizer) = Tokenizer::from_json(&json) {
                built += 1;
                let _ = tokenizer.encode("xaab b<s>é", true);
                let _ = tokenizer.decode(&[0, 1, 2, 3, 4, 5, 9]);
            }
        }
    }
    assert!(built > 0);
}

#[test]
fn ids_beyond_reason_are_refused() {
    let json = SMALL.replace("\"aa\":3", "\"aa\":4000000000");
    let error = Tokenizer::from_json(json.as_bytes()).unwrap_err();
    assert!(error.to_string().contains("4000000000"), "{error}");
    for json in ["", "null", "[]", "{}", "{\"version\":\"1.0\"}", "\u{0}"] {
        let error = Tokenizer::from_json(json.as_bytes()).unwrap_err();
        assert_eq!(error.code(), "bad_vocabulary");
    }
}

/// `SMALL` with one part replaced.
fn with(part: &str, value: &str) -> Result<Tokenizer, TextError> {
    let mut json: serde_json::Value = serde_json::from_str(SMALL).unwrap();
    json[part] = serde_json::from_str(value).unwrap();
    Tokenizer::from_json(&serde_json::to_vec(&json).unwrap())
}

#[test]
fn parts_that_the_crate_panics_on_are_refused_by_name() {
    let cases = [
        ("pre_tokenizer", r#"{"type":"FixedLength","length":0}"#, "the type is `FixedLength`"),
        ("pre_tokenizer", r#"{"type":"Sequence"}"#, "no list `pretokenizers`"),
        ("normalizer", r#"{"replacement":"x"}"#, "has no `type`"),
        ("normalizer", r#"{"type":"Replace","pattern":{"String":""},"content":"x"}"#, "empty text"),
        ("normalizer", r#"{"type":"Replace","pattern":{"Regex":"a*"},"content":"x"}"#, "empty"),
        ("normalizer", r#"{"type":"Replace","pattern":{"Regex":"(?=a)"},"content":"x"}"#, "empty"),
        ("normalizer", r#"{"type":"Precompiled","precompiled_charsmap":"AAAA"}"#, "`Precompiled`"),
        (
            "normalizer",
            r#"{"type":"Sequence","normalizers":[{"type":"Sequence","normalizers":[{"type":"Precompiled","precompiled_charsmap":"/////w=="}]}]}"#,
            "the type is `Precompiled`",
        ),
        (
            "post_processor",
            r#"{"type":"TemplateProcessing","single":[{"Sequence":{"id":"B","type_id":0}}],"pair":[],"special_tokens":{}}"#,
            "`single` has an unknown or repeated sequence \"B\"",
        ),
        (
            "post_processor",
            r#"{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x","type_id":0}}],"pair":[],"special_tokens":{}}"#,
            "no ids of \"x\"",
        ),
        (
            "post_processor",
            r#"{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x","type_id":0}}],"pair":[],"special_tokens":{"x":{"id":"x","ids":[77],"tokens":["x"]}}}"#,
            "adds the id 77",
        ),
        ("decoder", r#"{"type":"Strip","content":" ","start":0,"stop":1}"#, "`stop` other than 0"),
        (
            "decoder",
            r#"{"type":"CTC","pad_token":"","word_delimiter_token":"","cleanup":true}"#,
            "`CTC`",
        ),
        ("normalizer", r#"{"type":"Prepend","prepend":""}"#, "an empty `prepend`"),
        ("model", r#"{"type":"Unigram","unk_id":0,"vocab":[["a",0.0]]}"#, "the type is `Unigram`"),
    ];
    for (part, value, says) in cases {
        let error = with(part, value).unwrap_err();
        assert_eq!(error.code(), "bad_vocabulary");
        assert!(error.to_string().contains(says), "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }
    // Each step makes the text twice as long.
    let step = r#"{"type":"Replace","pattern":{"String":"a"},"content":"aa"}"#;
    let steps = vec![step; 30].join(",");
    let error = with("normalizer", &format!(r#"{{"type":"Sequence","normalizers":[{steps}]}}"#));
    assert!(error.unwrap_err().to_string().contains("64 times"));
}

#[test]
fn parts_that_are_accepted_encode_anything() {
    let patterns = ["", "a*", "(?=a)", "\\b", "^", "$", "a|", "(a+)+b", "\\s+(?!\\S)"];
    let behaviors = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"];
    let mut parts: Vec<(&str, String)> = Vec::new();
    for pattern in patterns {
        for behavior in behaviors {
            for invert in [false, true] {
                let pattern = serde_json::json!({"type": "Split", "pattern": {"Regex": pattern},
                    "behavior": behavior, "invert": invert});
                parts.push(("pre_tokenizer", pattern.to_string()));
            }
        }
    }
    let pre = ["Digits", "Punctuation", "Whitespace", "WhitespaceSplit", "BertPreTokenizer"];
    for kind in pre {
        let json =
            serde_json::json!({"type": kind, "individual_digits": true, "behavior": "Isolated"});
        parts.push(("pre_tokenizer", json.to_string()));
    }
    for scheme in ["always", "first", "never"] {
        let json = serde_json::json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": true});
        parts.push(("pre_tokenizer", json.to_string()));
        parts.push(("decoder", json.to_string()));
    }
    for kind in ["NFC", "NFD", "NFKC", "NFKD", "Nmt", "Lowercase", "StripAccents", "ByteLevel"] {
        parts.push(("normalizer", serde_json::json!({ "type": kind }).to_string()));
    }
    parts.push(("normalizer", r#"{"type":"Strip","strip_left":true,"strip_right":true}"#.into()));
    parts.push(("normalizer", r#"{"type":"Prepend","prepend":"▁"}"#.into()));
    parts.push(("normalizer", r#"{"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,"strip_accents":null,"lowercase":true}"#.into()));
    for content in ["", "ab"] {
        for pattern in [serde_json::json!({"String": "a"}), serde_json::json!({"Regex": "[^b]+"})] {
            let json =
                serde_json::json!({"type": "Replace", "pattern": pattern, "content": content});
            parts.push(("normalizer", json.to_string()));
            parts.push(("decoder", json.to_string()));
        }
    }
    for (part, value) in parts {
        let tokenizer = with(part, &value).unwrap_or_else(|e| panic!("{value}: {e}"));
        for text in [
            "",
            " ",
            "a",
            "aaab",
            " \u{0} é\u{301} 日本\u{AD}\r\n 12\u{200D}👩‍💻 <s>b",
            "ﷺ\u{FEFF}",
            "\u{301}a",
            "\u{0}b",
        ] {
            let ids = tokenizer.encode(text, true).unwrap_or_default();
            let _ = tokenizer.decode(&ids);
        }
    }
}

#[test]
fn a_long_token_does_not_take_long() {
    let long = "é".repeat(200_000);
    let tokens: Vec<String> = ["a", "b", "ab", &long, &long[..1000]].map(String::from).into();
    let vocab = GgufVocab { model: "llama".into(), tokens, ..GgufVocab::default() };
    let started = std::time::Instant::now();
    let tokenizer = Tokenizer::new(&Vocabulary::Gguf(Box::new(vocab))).unwrap();
    assert!(started.elapsed() < std::time::Duration::from_secs(5));
    assert!(tokenizer.encode("ab", false).unwrap().contains(&2));
}

/// Writes valid files as seeds of the fuzzers.
#[test]
#[ignore = "writes tests/fuzz/corpus"]
fn seeds() {
    let root = env!("CARGO_MANIFEST_DIR");
    let put = |target: &str, name: &str, bytes: &[u8]| {
        let folder = format!("{root}/tests/fuzz/corpus/{target}");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(format!("{folder}/{name}"), bytes).unwrap();
    };
    put("tokenizer", "small", SMALL.as_bytes());
    put(
        "gguf_vocab",
        "llama",
        b"llama default 0 1 1\n3 0 <s>\n1 -1 a\n1 -2 b\n1 -3 ab\n6 0 <0x0A>",
    );
    put("gguf_vocab", "gpt2", b"gpt2 qwen2 0 1 0\n3 0 <s>\n1 0 a\n1 0 b\n1 0 ab\na b");
    for entry in std::fs::read_dir(format!("{root}/tests/golden/text_templates")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "jinja") {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            put("template", &name, &std::fs::read(&path).unwrap());
        }
    }
}
