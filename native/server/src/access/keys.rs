//! API keys and their owners.

use axum::http::{HeaderMap, header};
use ring::digest::{SHA256, digest};
use std::sync::{Arc, RwLock};
use subtle::{ConditionallySelectable, ConstantTimeEq};

/// Accepted API keys. Without any, the server is open to everybody.
#[derive(Clone, Default)]
pub struct ApiKeys(Arc<[NumberedKey]>);

/// Accepted API keys, and the largest number that one had so far.
pub type SharedKeys = Arc<RwLock<(ApiKeys, u64)>>;

/// A key and its number, which stands for its owner as long as the program runs, and its name for logs.
#[derive(Clone, Debug, PartialEq)]
struct NumberedKey {
    number: u64,
    key: String,
    name: Option<String>,
}

/// An API key, and its name in logs.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedKey {
    /// The key.
    pub key: String,
    /// The comment after it in the key file.
    pub name: Option<String>,
}

impl ApiKeys {
    /// Trims the keys and drops empty ones.
    pub fn new(keys: impl IntoIterator<Item = NamedKey>) -> Self {
        let trimmed = |named: NamedKey| NamedKey { key: named.key.trim().into(), ..named };
        let keys = keys.into_iter().map(trimmed).filter(|named| !named.key.is_empty());
        let numbered = |(number, NamedKey { key, name })| NumberedKey { number, key, name };
        Self((1..).zip(keys).map(numbered).collect())
    }

    /// Returns the keys in the text of a key file: one a line. What follows `#` at the start of a line
    /// or after a space is a comment, which names the key in logs.
    pub fn in_file(text: &str) -> Vec<NamedKey> {
        let named = text.lines().map(split_comment).map(|(key, comment)| {
            let name = comment.trim().trim_start_matches('#').trim();
            let name = Some(name.to_string()).filter(|name| !name.is_empty());
            NamedKey { key: key.trim().into(), name }
        });
        named.filter(|named| !named.key.is_empty()).collect()
    }

    /// Replaces the keys. A key that stays keeps its number, and no number is used again for another
    /// key: its owner would share the cached prefixes of the former one.
    pub fn replace(&mut self, new: &Self, last_number: &mut u64) {
        let keys = new.0.iter().map(|new| {
            let known = self.0.iter().find(|old| old.key == new.key).map(|old| old.number);
            let number = known.unwrap_or_else(|| {
                *last_number += 1;
                *last_number
            });
            NumberedKey { number, ..new.clone() }
        });
        self.0 = keys.collect();
    }

    /// Returns the number of keys.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns true if no key is needed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns a name for the files of a tenant, which tells nothing of its key and stays the same when the
    /// program starts again; `None` without keys, or if the key is not accepted any more.
    pub fn folder(&self, tenant: &Tenant) -> Option<String> {
        let number = tenant.0.parse::<u64>().ok()?;
        let key = self.0.iter().find(|key| key.number == number)?;
        let hash = digest(&SHA256, format!("wf-run slots {}", key.key).as_bytes());
        Some(hash.as_ref()[..16].iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Returns the name of the owner of files: that of [`folder`](Self::folder), empty without keys. `None` if
    /// the key is not accepted any more.
    pub fn owner(&self, tenant: &Tenant) -> Option<String> {
        if *tenant == Tenant::default() { Some(String::new()) } else { self.folder(tenant) }
    }

    /// Returns all tenants with the names of their files.
    pub fn tenants(&self) -> Vec<(String, Tenant)> {
        let numbered = self.0.iter().map(|key| Tenant(key.number.to_string()));
        let tenants = numbered.chain([Tenant::default()]);
        tenants.filter_map(|tenant| Some((self.owner(&tenant)?, tenant))).collect()
    }

    /// Returns the name of the key with this number for logs: its comment in the key file, or the number.
    pub fn name(&self, number: u64) -> String {
        let named = self.0.iter().find(|key| key.number == number);
        named.and_then(|key| key.name.clone()).unwrap_or_else(|| number.to_string())
    }

    /// Returns the number of a key, if it is accepted. The time this takes reveals only the lengths of
    /// the keys.
    pub fn number(&self, given: &[u8]) -> Option<u64> {
        let mut found = 0u64;
        for NumberedKey { number, key, .. } in self.0.iter() {
            found.conditional_assign(number, key.as_bytes().ct_eq(given));
        }
        (found > 0).then_some(found)
    }
}

/// Splits a line of a key file into the key and the comment after it.
fn split_comment(line: &str) -> (&str, &str) {
    let line = line.trim_start();
    let ends = [" #", "\t#"].iter().filter_map(|mark| line.find(mark));
    let end = ends.min().unwrap_or(line.len());
    line.split_at(if line.starts_with('#') { 0 } else { end })
}

/// Returns the key of a request, from `Authorization: Bearer …` or `x-api-key`.
pub fn request_key(headers: &HeaderMap) -> Option<&[u8]> {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| {
        let (scheme, key) = value.as_bytes().split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then_some(key)
    });
    bearer.or_else(|| headers.get("x-api-key").map(|value| value.as_bytes()))
}

/// The owner of a request: the number of its API key, empty without keys. The prefix cache is
/// separate for each tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tenant(pub String);

impl Tenant {
    /// Returns the salt of the prefix cache of requests without a `cache_salt`.
    pub fn unsalted(&self) -> String {
        format!("{} ", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn named(key: &str, name: Option<&str>) -> NamedKey {
        NamedKey { key: key.into(), name: name.map(String::from) }
    }

    fn new_keys<const N: usize>(keys: [&str; N]) -> ApiKeys {
        ApiKeys::new(keys.map(|key| named(key, None)))
    }

    #[test]
    fn keys_match_exactly() {
        let keys = new_keys(["a-key", " other\n", "  "]);
        assert_eq!((keys.number(b"a-key"), keys.number(b"other")), (Some(1), Some(2)));
        for wrong in [&b""[..], b"a-ke", b"a-key ", b"A-KEY", b"a-keyother"] {
            assert_eq!(keys.number(wrong), None);
        }
        assert!(new_keys([""]).is_empty());
    }

    #[test]
    fn key_files_have_comments() {
        let text = "# team A\nfirst # Ann\n\n  second\t#x\nthird#3\n\t# end\n";
        let want =
            [named("first", Some("Ann")), named("second", Some("x")), named("third#3", None)];
        assert_eq!(ApiKeys::in_file(text), want);
        let keys = ApiKeys::new(want);
        assert_eq!([1, 3].map(|number| keys.name(number)), ["Ann", "3"]);
    }

    #[test]
    fn replaced_keys_get_new_numbers() {
        let (mut keys, mut last) = (new_keys(["a", "b"]), 2);
        keys.replace(&new_keys(["c", "b"]), &mut last);
        assert_eq!([&b"a"[..], b"b", b"c"].map(|key| keys.number(key)), [None, Some(2), Some(3)]);
        keys.replace(&new_keys(["a"]), &mut last);
        assert_eq!((keys.number(b"a"), keys.number(b"b"), last), (Some(4), None, 4));
    }

    #[test]
    fn folders_belong_to_keys() {
        let keys = new_keys(["a", "b"]);
        let folder = |keys: &ApiKeys, number: &str| keys.folder(&Tenant(number.into()));
        let [a, b] = ["1", "2"].map(|number| folder(&keys, number).expect("a folder"));
        assert!(a != b && a.len() == 32 && a.chars().all(|c| c.is_ascii_hexdigit()), "{a} {b}");
        assert_eq!(folder(&new_keys(["b"]), "1"), Some(b), "another start numbers keys anew");
        assert_eq!(folder(&keys, "3"), None);
        assert_eq!(ApiKeys::default().folder(&Tenant::default()), None);
    }

    #[test]
    fn keys_are_read_from_two_headers() {
        let with = |name: &'static str, value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_static(value));
            request_key(&headers).map(<[u8]>::to_vec)
        };
        assert_eq!(with("authorization", "Bearer abc"), Some(b"abc".to_vec()));
        assert_eq!(with("authorization", "bearer abc"), Some(b"abc".to_vec()));
        assert_eq!(with("x-api-key", "abc"), Some(b"abc".to_vec()));
        assert_eq!(with("authorization", "Basic abc"), None);
        assert_eq!(with("authorization", "B"), None);
    }
}
