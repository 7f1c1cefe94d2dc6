//! Malformed `tokenizer.json` files end in errors.

use wrinklefree::text::Tokenizer;

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
