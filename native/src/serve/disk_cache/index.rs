//! The texts on disk by their tokens: segments of whole pages, each after another one or at a beginning.

use ring::digest::{SHA256, digest};
use std::collections::HashMap;
use std::ops::Range;
use wrinklefree::cache::PAGE;

/// Maximum number of segments.
const MAX_SEGMENTS: usize = 1 << 14;

/// Digest of a model with its settings, a tenant and the tokens up to the end of a page. Equal keys mean equal
/// texts of one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TextKey([u8; 32]);

impl TextKey {
    /// Returns the key of an empty text of this owner.
    pub fn root(owner: &[u8]) -> Self {
        Self::of(owner)
    }

    /// Returns the key after each whole page of a text.
    pub fn after_pages(self, tokens: &[u32]) -> Vec<Self> {
        let pages = tokens.as_chunks::<PAGE>().0.iter();
        let next = |key: &mut Self, page: &[u32; PAGE]| {
            let tokens = page.iter().flat_map(|token| token.to_le_bytes());
            *key = Self::of(&key.0.into_iter().chain(tokens).collect::<Vec<u8>>());
            Some(*key)
        };
        pages.scan(self, next).collect()
    }

    fn of(bytes: &[u8]) -> Self {
        Self(digest(&SHA256, bytes).as_ref().try_into().expect("32 bytes"))
    }

    /// Returns the key in hexadecimal digits.
    pub fn name(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Returns the key with this name.
    pub fn named(name: &str) -> Option<Self> {
        let mut key = [0; 32];
        if name.len() != 64 || !name.is_ascii() {
            return None;
        }
        for (byte, at) in key.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(&name[at..at + 2], 16).ok()?;
        }
        Some(Self(key))
    }
}

/// Some pages of a text in a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// Key of the text before it.
    pub parent: TextKey,
    /// Its pages.
    pub pages: Range<usize>,
    /// Name of the owner.
    pub tenant: String,
    /// Bytes of its file.
    pub bytes: u64,
}

/// All segments. A text can be used as far as its segments follow each other from the beginning on.
#[derive(Debug, Default)]
pub struct Index {
    segments: HashMap<TextKey, Entry>,
    /// Number of segments after each text.
    children: HashMap<TextKey, usize>,
    /// Bytes of each tenant that has any.
    of_tenant: HashMap<String, u64>,
    bytes: u64,
    /// Number of uses so far.
    clock: u64,
}

#[derive(Debug)]
struct Entry {
    segment: Segment,
    used: u64,
}

impl Index {
    /// Returns the bytes of all segments.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of segments.
    pub fn len(&self) -> usize {
        self.segments.len()
    }

    /// Returns the segments of the longest text that is known, of those that end after these pages, and marks
    /// them as used. `keys` are those after each page.
    pub fn longest(&mut self, keys: &[TextKey]) -> Vec<(TextKey, Segment)> {
        let mut found = Vec::new();
        for key in keys.iter().rev() {
            if self.segments.contains_key(key) {
                found = self.path(*key);
            }
            if !found.is_empty() {
                break;
            }
        }
        self.clock += 1;
        for (key, _) in &found {
            if let Some(entry) = self.segments.get_mut(key) {
                entry.used = self.clock;
            }
        }
        found
    }

    /// Returns the segments up to a key; none if one before it is missing.
    fn path(&self, key: TextKey) -> Vec<(TextKey, Segment)> {
        let (mut at, mut path) = (key, Vec::new());
        while let Some(Entry { segment, .. }) = self.segments.get(&at) {
            path.push((at, segment.clone()));
            if segment.pages.start == 0 {
                path.reverse();
                return path;
            }
            at = segment.parent;
        }
        Vec::new()
    }

    /// Adds a segment. It replaces one of the same text.
    pub fn insert(&mut self, key: TextKey, segment: Segment) {
        self.remove(&key);
        self.clock += 1;
        self.bytes += segment.bytes;
        *self.of_tenant.entry(segment.tenant.clone()).or_default() += segment.bytes;
        *self.children.entry(segment.parent).or_default() += 1;
        self.segments.insert(key, Entry { segment, used: self.clock });
    }

    /// Removes a segment.
    pub fn remove(&mut self, key: &TextKey) {
        let Some(Entry { segment, .. }) = self.segments.remove(key) else { return };
        self.bytes -= segment.bytes;
        if let Some(used) = self.of_tenant.get_mut(&segment.tenant) {
            *used -= segment.bytes;
        }
        self.of_tenant.retain(|_, used| *used > 0);
        if let Some(count) = self.children.get_mut(&segment.parent) {
            *count -= 1;
            if *count == 0 {
                self.children.remove(&segment.parent);
            }
        }
    }

    /// Removes segments until one of `bytes` fits into `limit`, and returns their keys. The tenant with the
    /// most bytes gives the one that it has not used for the longest time and that no other follows.
    pub fn make_room(&mut self, bytes: u64, limit: u64) -> Vec<TextKey> {
        let mut removed = Vec::new();
        while self.bytes + bytes > limit || self.len() >= MAX_SEGMENTS {
            let most = self.of_tenant.iter().max_by_key(|(_, used)| **used);
            let Some(tenant) = most.map(|(tenant, _)| tenant) else { break };
            let leaves = self.segments.iter().filter(|(key, entry)| {
                entry.segment.tenant == *tenant && !self.children.contains_key(key)
            });
            let Some(oldest) = leaves.min_by_key(|(_, entry)| entry.used).map(|(key, _)| *key)
            else {
                break;
            };
            self.remove(&oldest);
            removed.push(oldest);
        }
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(pages: usize, seed: u32) -> Vec<TextKey> {
        let tokens: Vec<u32> = (0..pages * PAGE).map(|i| i as u32 * seed).collect();
        TextKey::root(b"owner").after_pages(&tokens)
    }

    fn segment(parent: TextKey, pages: Range<usize>, tenant: &str) -> Segment {
        Segment { parent, pages, tenant: tenant.into(), bytes: 100 }
    }

    fn root() -> TextKey {
        TextKey::root(b"owner")
    }

    #[test]
    fn keys_have_names_and_depend_on_all_tokens() {
        let [first, second] = [text(4, 1), text(4, 3)];
        assert_eq!(first.len(), 4);
        assert!(first.iter().all(|key| !second.contains(key)));
        assert_eq!(TextKey::named(&first[2].name()), Some(first[2]));
        for wrong in ["", "00", &"g".repeat(64), &"é".repeat(32)] {
            assert_eq!(TextKey::named(wrong), None);
        }
        let other = TextKey::root(b"another").after_pages(&[1; PAGE]);
        assert_ne!(other, root().after_pages(&[1; PAGE]));
    }

    #[test]
    fn a_text_is_found_as_far_as_its_segments_follow_each_other() {
        let (keys, mut index) = (text(9, 1), Index::default());
        index.insert(keys[2], segment(root(), 0..3, ""));
        index.insert(keys[7], segment(keys[4], 5..8, ""));
        assert_eq!(index.longest(&keys), [(keys[2], segment(root(), 0..3, ""))]);
        index.insert(keys[4], segment(keys[2], 3..5, ""));
        let pages =
            |found: Vec<(TextKey, Segment)>| Vec::from_iter(found.into_iter().map(|f| f.1.pages));
        assert_eq!(pages(index.longest(&keys)), [0..3, 3..5, 5..8]);
        assert_eq!(pages(index.longest(&keys[..7])), [0..3, 3..5]);
        assert!(index.longest(&keys[..2]).is_empty() && index.longest(&text(9, 2)).is_empty());
    }

    #[test]
    fn the_largest_tenant_gives_its_oldest_ends_first() {
        let (keys, mut index) = (text(9, 1), Index::default());
        let others = text(9, 2);
        index.insert(others[0], segment(root(), 0..1, "b"));
        index.insert(keys[0], segment(root(), 0..1, "a"));
        index.insert(keys[3], segment(keys[0], 1..4, "a"));
        index.insert(keys[1], segment(keys[0], 1..2, "a"));
        index.longest(&keys[..4]);
        assert_eq!((index.len(), index.bytes()), (4, 400));
        assert_eq!(index.make_room(100, 500), []);
        assert_eq!(index.make_room(100, 400), [keys[1]]);
        assert_eq!(index.make_room(100, 200), [keys[3], keys[0]]);
        assert_eq!(index.make_room(100, 50), [others[0]]);
        assert_eq!((index.len(), index.bytes()), (0, 0));
        assert!(index.children.is_empty() && index.of_tenant.is_empty());
    }
}
