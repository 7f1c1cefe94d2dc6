//! Names that come from the network and become names of files. What the cache's layout does not
//! allow is refused, so no hub can write outside of the cache.

/// Longest path of a file in a repository, in bytes.
const LONGEST: usize = 1024;

/// Returns true for a relative path of plain components, on every system: no `..`, no empty part,
/// no drive, no backslash, no control characters.
pub fn is_path(name: &str) -> bool {
    name.len() <= LONGEST && name.split('/').all(is_component)
}

fn is_component(part: &str) -> bool {
    let odd = |c: char| c.is_control() || ['\\', ':'].contains(&c);
    !["", ".", ".."].contains(&part) && part.len() <= 255 && !part.contains(odd)
}

/// Returns true for the name of a commit: a hash in hexadecimal digits.
pub fn is_commit(name: &str) -> bool {
    (40..=64).contains(&name.len()) && name.bytes().all(|c| c.is_ascii_hexdigit())
}

/// Returns the name of a blob: an entity tag without quotes and weakness. It may have letters,
/// digits, `-` and `_`, so it cannot be a path, and partial downloads and locks have names of their
/// own. `None`: this tag cannot be one.
pub fn blob(tag: &str) -> Option<&str> {
    let tag = tag.trim();
    let name = tag.strip_prefix("W/").unwrap_or(tag).trim_matches('"');
    let plain = |c: u8| c.is_ascii_alphanumeric() || c == b'-' || c == b'_';
    ((1..=128).contains(&name.len()) && name.bytes().all(plain)).then_some(name)
}

/// Returns the SHA-256 that a blob's name is, in lower case. Other names are hashes of other kinds.
pub fn sha256(blob: &str) -> Option<String> {
    let is = blob.len() == 64 && blob.bytes().all(|c| c.is_ascii_hexdigit());
    is.then(|| blob.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        for name in ["a", "a.gguf", "a/b c/d", ".gitattributes", "größe", "..a"] {
            assert!(is_path(name), "{name}");
        }
        let long = "a/".repeat(600) + "a";
        for name in
            ["", "/", "/a", "a/", "a//b", ".", "..", "a/..", "../a", "a\\b", "C:", "a\n", &long]
        {
            assert!(!is_path(name), "{name}");
        }
    }

    #[test]
    fn commits() {
        assert!(is_commit(&"0a".repeat(20)) && is_commit(&"F".repeat(64)));
        for name in ["", "main", "../../../../../../../../../../../../../../x", &"a".repeat(39)] {
            assert!(!is_commit(name), "{name}");
        }
    }

    #[test]
    fn blobs() {
        assert_eq!(blob("\"abc-1_2\""), Some("abc-1_2"));
        assert_eq!(blob("W/\"abc\""), Some("abc"));
        for tag in ["", "\"\"", "../../x", "/etc/x", "a/b", "..", "a.part", "a\\b", "a:b", "a\0"] {
            assert_eq!(blob(tag), None, "{tag}");
        }
        assert_eq!(sha256(&"AB".repeat(32)), Some("ab".repeat(32)));
        assert_eq!(sha256(&"ab".repeat(20)), None);
    }
}
