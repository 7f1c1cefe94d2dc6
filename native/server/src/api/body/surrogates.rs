//! Halves of surrogate pairs, which are no characters: clients that cut texts in UTF-16 send them.

/// Bytes of an escape such as `\ud83d`.
const ESCAPE: usize = 6;

/// Replaces the escapes of half surrogate pairs in JSON by that of the replacement character.
pub fn replace_halves(json: &mut [u8]) {
    let mut at = 0;
    while let Some(found) = json.get(at..).and_then(|rest| rest.iter().position(|&b| b == b'\\')) {
        let start = at + found;
        at = match (escape(json, start), escape(json, start + ESCAPE)) {
            (Some(0xD800..0xDC00), Some(0xDC00..0xE000)) => start + 2 * ESCAPE,
            (Some(0xD800..0xE000), _) => {
                json[start..start + ESCAPE].copy_from_slice(b"\\ufffd");
                start + ESCAPE
            }
            // The next byte is escaped, so it begins nothing.
            _ => start + 2,
        };
    }
}

/// Returns the code of the escape at a place of JSON.
fn escape(json: &[u8], at: usize) -> Option<u16> {
    let digits = json.get(at..at + ESCAPE)?.strip_prefix(b"\\u")?;
    let digits =
        std::str::from_utf8(digits).ok().filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()))?;
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_halves_are_replaced() {
        for (json, want) in [
            (r#""a \ud83d\ude00 b""#, r#""a \ud83d\ude00 b""#),
            (r#""a \ud83d b""#, r#""a \ufffd b""#),
            (r#""\uDE00\ud83d""#, r#""\ufffd\ufffd""#),
            (r#""\ud83d\ud83d\ude00""#, r#""\ufffd\ud83d\ude00""#),
            (r#""\\ud83d \"\u00e9""#, r#""\\ud83d \"\u00e9""#),
            (r#""\ud83"#, r#""\ud83"#),
            ("\\", "\\"),
        ] {
            let mut bytes = json.as_bytes().to_vec();
            replace_halves(&mut bytes);
            assert_eq!(std::str::from_utf8(&bytes), Ok(want), "{json}");
        }
    }
}
