//! The texts on disk by their tokens: segments of whole pages, each after another one or at a beginning.

use ring::digest::{SHA256, digest};
use std::collections::{BTreeMap, HashMap};
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

    /// Returns the bytes of the key.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns the key with these bytes.
    pub fn from_bytes(bytes: &[u8; 32]) -> Self {
        Self(*bytes)
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

/// A file: some pages of a text, and the recurrent states at their end. A file without pages has the states
/// alone, where others have the pages.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// Key of the text before its pages.
    pub parent: TextKey,
    /// Number of pages before.
    pub first: usize,
    /// Keys after each of its pages.
    pub keys: Vec<TextKey>,
    /// Name of the owner.
    pub tenant: String,
    /// Bytes of its file.
    pub bytes: u64,
}

impl Segment {
    /// Returns the key of the text up to its end, which names its file.
    pub fn key(&self) -> TextKey {
        self.keys.last().copied().unwrap_or(self.parent)
    }
}

/// The first pages of a segment that a text begins with.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownPart {
    /// Key of the segment.
    pub file: TextKey,
    /// Places of the pages in the text.
    pub pages: Range<usize>,
}

/// All segments. A text can be used as far as pages follow each other from the beginning on.
#[derive(Debug, Default)]
pub struct Index {
    segments: HashMap<TextKey, Entry>,
    /// The segment of each page, by the key after it, and the page's place in the text.
    pages: HashMap<TextKey, (TextKey, usize)>,
    /// Number of segments after each text.
    children: HashMap<TextKey, usize>,
    /// Bytes of each tenant that has any.
    of_tenant: BTreeMap<String, u64>,
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

    /// Returns true if a segment ends with this text.
    pub fn ends_with(&self, key: &TextKey) -> bool {
        self.segments.contains_key(key)
    }

    /// Returns the parts of the longest known text and marks their segments as used. `keys` are those after
    /// each page of a text. With `at_end` the last part is a whole segment, which has the states at its end.
    pub fn longest(&mut self, keys: &[TextKey], at_end: bool) -> Vec<KnownPart> {
        let known =
            |key: &&TextKey| self.ends_with(key) || (!at_end && self.pages.contains_key(*key));
        let found = keys.iter().rev().filter(known).map(|key| self.parts(*key));
        let found = found.into_iter().find(|parts| !parts.is_empty()).unwrap_or_default();
        self.clock += 1;
        for part in &found {
            if let Some(entry) = self.segments.get_mut(&part.file) {
                entry.used = self.clock;
            }
        }
        found
    }

    /// Returns the parts of a text up to a key; none if one before it is missing.
    fn parts(&self, key: TextKey) -> Vec<KnownPart> {
        let (mut at, mut parts) = (key, Vec::new());
        // A segment without pages comes first: its pages are those of others.
        if let Some(Entry { segment, .. }) = self.segments.get(&key)
            && segment.keys.is_empty()
        {
            parts.push(KnownPart { file: key, pages: segment.first..segment.first });
        }
        while let Some(&(file, place)) = self.pages.get(&at) {
            let Some(Entry { segment, .. }) = self.segments.get(&file) else { break };
            parts.push(KnownPart { file, pages: segment.first..place + 1 });
            if segment.first == 0 {
                parts.reverse();
                return parts;
            }
            at = segment.parent;
        }
        Vec::new()
    }

    /// Adds a segment. It replaces one of the same text.
    pub fn insert(&mut self, segment: Segment) {
        let key = segment.key();
        self.remove(&key);
        self.clock += 1;
        self.bytes += segment.bytes;
        *self.of_tenant.entry(segment.tenant.clone()).or_default() += segment.bytes;
        *self.children.entry(segment.parent).or_default() += 1;
        let places = (segment.first..).map(|place| (key, place));
        self.pages.extend(segment.keys.iter().copied().zip(places));
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
        for page in &segment.keys {
            if self.pages.get(page).is_some_and(|(file, _)| file == key) {
                self.pages.remove(page);
            }
        }
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
            // Of several tenants with as many bytes, the last one is taken: the first by name.
            let most = self.of_tenant.iter().rev().max_by_key(|(_, used)| **used);
            let Some(tenant) = most.map(|(tenant, _)| tenant) else { break };
            let is_end = |segment: &Segment| {
                !segment.keys.iter().any(|page| self.children.contains_key(page))
            };
            let ends = self
                .segments
                .iter()
                .filter(|(_, entry)| entry.segment.tenant == *tenant && is_end(&entry.segment));
            let Some(oldest) = ends.min_by_key(|(_, entry)| entry.used).map(|(key, _)| *key) else {
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
        root().after_pages(&tokens)
    }

    fn segment(keys: &[TextKey], pages: Range<usize>, tenant: &str) -> Segment {
        let parent = pages.start.checked_sub(1).map_or(root(), |before| keys[before]);
        let (first, keys) = (pages.start, keys[pages].to_vec());
        Segment { parent, first, keys, tenant: tenant.into(), bytes: 100 }
    }

    fn root() -> TextKey {
        TextKey::root(b"owner")
    }

    fn places(parts: Vec<KnownPart>) -> Vec<[usize; 2]> {
        parts.into_iter().map(|part| [part.pages.start, part.pages.end]).collect()
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
    fn a_text_is_found_as_far_as_its_pages_follow_each_other() {
        let (keys, mut index) = (text(9, 1), Index::default());
        index.insert(segment(&keys, 0..3, ""));
        index.insert(segment(&keys, 5..8, ""));
        assert_eq!(places(index.longest(&keys, false)), [[0, 3]]);
        index.insert(segment(&keys, 3..5, ""));
        assert_eq!(places(index.longest(&keys, false)), [[0, 3], [3, 5], [5, 8]]);
        assert_eq!(places(index.longest(&keys[..7], false)), [[0, 3], [3, 5], [5, 7]]);
        assert_eq!(places(index.longest(&keys[..7], true)), [[0, 3], [3, 5]]);
        assert_eq!(places(index.longest(&keys[..2], false)), [[0, 2]]);
        assert!(index.longest(&keys[..2], true).is_empty());
        assert!(index.longest(&text(9, 2), false).is_empty());
    }

    #[test]
    fn a_text_goes_on_from_any_page_and_states_have_files_of_their_own() {
        let (keys, mut index) = (text(9, 1), Index::default());
        index.insert(segment(&keys, 0..6, ""));
        let other = keys[3].after_pages(&[7; 2 * PAGE]);
        let other = [&keys[..4], &other].concat();
        index.insert(segment(&other, 4..6, ""));
        assert_eq!(places(index.longest(&other, true)), [[0, 4], [4, 6]]);
        assert!(index.longest(&keys[..5], true).is_empty());
        index.insert(segment(&keys[..5], 5..5, ""));
        assert_eq!(places(index.longest(&keys[..5], true)), [[0, 5], [5, 5]]);
        assert_eq!(places(index.longest(&keys, true)), [[0, 6]]);
        index.remove(&keys[5]);
        assert!(index.longest(&other, false).is_empty());
    }

    #[test]
    fn the_largest_tenant_gives_its_oldest_ends_first() {
        let (keys, mut index) = (text(9, 1), Index::default());
        let others = text(9, 2);
        index.insert(segment(&others, 0..1, "b"));
        index.insert(segment(&keys, 0..1, "a"));
        index.insert(segment(&keys, 1..4, "a"));
        let branch = [keys[0], keys[0].after_pages(&[9; PAGE])[0]];
        index.insert(segment(&branch, 1..2, "a"));
        index.longest(&keys[..4], false);
        assert_eq!((index.len(), index.bytes()), (4, 400));
        assert_eq!(index.make_room(100, 500), []);
        assert_eq!(index.make_room(100, 400), [branch[1]]);
        assert_eq!(index.make_room(100, 200), [keys[3], keys[0]]);
        assert_eq!(index.make_room(100, 50), [others[0]]);
        assert_eq!((index.len(), index.bytes()), (0, 0));
        assert!(index.children.is_empty() && index.of_tenant.is_empty());
        assert!(index.pages.is_empty());
    }
}
