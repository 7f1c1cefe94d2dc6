//! The container: metadata and the list of tensors in front of their data.

/// Version of the format that is written.
const VERSION: u32 = 3;
/// Alignment of a tensor's data, in bytes: the format's default.
pub(super) const ALIGNMENT: usize = 32;

/// Type ids of metadata values.
mod kind {
    pub const U32: u32 = 4;
    pub const I32: u32 = 5;
    pub const F32: u32 = 6;
    pub const BOOL: u32 = 7;
    pub const TEXT: u32 = 8;
    pub const LIST: u32 = 9;
}

/// Metadata in the order in which they were added.
#[derive(Default)]
pub(super) struct MetaWriter {
    count: u64,
    bytes: Vec<u8>,
}

impl MetaWriter {
    fn key(&mut self, key: &str, kind: u32) {
        self.count += 1;
        put_text(&mut self.bytes, key);
        self.bytes.extend(kind.to_le_bytes());
    }

    fn list<T>(&mut self, key: &str, kind: u32, items: &[T], put: impl Fn(&mut Vec<u8>, &T)) {
        self.key(key, kind::LIST);
        self.bytes.extend(kind.to_le_bytes());
        self.bytes.extend((items.len() as u64).to_le_bytes());
        items.iter().for_each(|item| put(&mut self.bytes, item));
    }

    /// Adds a size or id; those of models fit 32 bits.
    pub(super) fn size(&mut self, key: &str, value: usize) {
        self.key(key, kind::U32);
        self.bytes.extend(u32::try_from(value).unwrap_or(u32::MAX).to_le_bytes());
    }

    pub(super) fn integer(&mut self, key: &str, value: i32) {
        self.key(key, kind::I32);
        self.bytes.extend(value.to_le_bytes());
    }

    pub(super) fn float(&mut self, key: &str, value: f32) {
        self.key(key, kind::F32);
        self.bytes.extend(value.to_le_bytes());
    }

    pub(super) fn bool(&mut self, key: &str, value: bool) {
        self.key(key, kind::BOOL);
        self.bytes.push(value.into());
    }

    pub(super) fn text(&mut self, key: &str, value: &str) {
        self.key(key, kind::TEXT);
        put_text(&mut self.bytes, value);
    }

    pub(super) fn texts<T: AsRef<str>>(&mut self, key: &str, values: &[T]) {
        self.list(key, kind::TEXT, values, |out, text| put_text(out, text.as_ref()));
    }

    pub(super) fn integers(&mut self, key: &str, values: &[i32]) {
        self.list(key, kind::I32, values, |out, value| out.extend(value.to_le_bytes()));
    }

    pub(super) fn floats(&mut self, key: &str, values: &[f32]) {
        self.list(key, kind::F32, values, |out, value| out.extend(value.to_le_bytes()));
    }

    pub(super) fn bools(&mut self, key: &str, values: &[bool]) {
        self.list(key, kind::BOOL, values, |out, value| out.push((*value).into()));
    }

    /// Everything in front of the data, which begin after it. Each tensor is its name, dimensions (the
    /// outermost first), type id and bytes.
    pub(super) fn header<'t>(
        &self,
        tensors: impl ExactSizeIterator<Item = (&'t str, &'t [usize], u32, usize)>,
    ) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(VERSION.to_le_bytes());
        out.extend((tensors.len() as u64).to_le_bytes());
        out.extend(self.count.to_le_bytes());
        out.extend_from_slice(&self.bytes);
        let mut offset = 0u64;
        for (name, shape, type_id, bytes) in tensors {
            put_text(&mut out, name);
            out.extend((shape.len() as u32).to_le_bytes());
            shape.iter().rev().for_each(|&d| out.extend((d as u64).to_le_bytes()));
            out.extend(type_id.to_le_bytes());
            out.extend(offset.to_le_bytes());
            offset += bytes.next_multiple_of(ALIGNMENT) as u64;
        }
        out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
        out
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}
