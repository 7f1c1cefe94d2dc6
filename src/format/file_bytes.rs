//! A file's bytes, in one segment or several.

use bytes::Bytes;
use std::ops::Range;

/// The bytes of a file, in one or several segments. Each segment has its own allocation, which is freed
/// with the last view into it. The first segment holds the whole header.
///
/// ```
/// use bytes::Bytes;
/// use wrinklefree::format::FileBytes;
///
/// let file: FileBytes = [&b"head"[..], b"tail"].map(Bytes::from_static).into_iter().collect();
/// assert_eq!(file.len(), 8);
/// assert_eq!(&file.slice(2..6)[..], b"adta");
/// ```
#[derive(Clone, Debug, Default)]
pub struct FileBytes(Vec<Segment>);

#[derive(Clone, Debug)]
struct Segment {
    /// End of the segment in the file.
    end: usize,
    bytes: Bytes,
}

impl FileBytes {
    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.0.last().map_or(0, |segment| segment.end)
    }

    /// True if the file is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first segment, which is the whole file where there is only one.
    pub fn first(&self) -> Bytes {
        self.0.first().map(|segment| segment.bytes.clone()).unwrap_or_default()
    }

    /// All bytes: a view where there is one segment, otherwise a copy.
    pub fn whole(&self) -> Bytes {
        self.slice(0..self.len())
    }

    /// The bytes of a range: a view where one segment holds them all, otherwise a copy.
    ///
    /// # Panics
    /// When the range ends after the file.
    pub fn slice(&self, range: Range<usize>) -> Bytes {
        assert!(range.start <= range.end && range.end <= self.len(), "{range:?} of {}", self.len());
        let first = self.0.partition_point(|segment| segment.end <= range.start);
        let within = |segment: &Segment| {
            let start = segment.end - segment.bytes.len();
            segment.bytes.slice(range.start.max(start) - start..range.end.min(segment.end) - start)
        };
        match &self.0[first..] {
            _ if range.is_empty() => Bytes::new(),
            [segment, ..] if range.end <= segment.end => within(segment),
            segments => {
                let parts = segments.iter().take_while(|p| p.end - p.bytes.len() < range.end);
                parts.map(within).collect::<Vec<_>>().concat().into()
            }
        }
    }
}

impl FromIterator<Bytes> for FileBytes {
    fn from_iter<I: IntoIterator<Item = Bytes>>(segments: I) -> Self {
        let mut end = 0;
        let segments = segments.into_iter().filter(|bytes| !bytes.is_empty());
        Self(
            segments
                .map(|bytes| {
                    end += bytes.len();
                    Segment { end, bytes }
                })
                .collect(),
        )
    }
}

impl From<Bytes> for FileBytes {
    fn from(bytes: Bytes) -> Self {
        Self::from_iter([bytes])
    }
}

impl From<Vec<u8>> for FileBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

impl From<&'static [u8]> for FileBytes {
    fn from(bytes: &'static [u8]) -> Self {
        Bytes::from_static(bytes).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_those_of_the_whole() {
        let all: Vec<u8> = (0..40).collect();
        let cut = [&all[..7], &all[7..7], &all[7..8], &all[8..31], &all[31..]];
        let segments: FileBytes = cut.into_iter().map(Bytes::copy_from_slice).collect();
        assert_eq!(segments.len(), all.len());
        assert_eq!(segments.first(), all[..7]);
        assert_eq!(segments.whole(), all);
        for start in 0..=all.len() {
            for end in start..=all.len() {
                assert_eq!(segments.slice(start..end), all[start..end], "{start}..{end}");
            }
        }
        assert!(FileBytes::default().is_empty() && FileBytes::default().whole().is_empty());
    }

    #[test]
    fn a_slice_of_one_piece_is_no_copy() {
        let segments: FileBytes = [vec![1u8; 5], vec![2; 6]].map(Bytes::from).into_iter().collect();
        let (second, part) = (segments.slice(5..11), segments.slice(6..9));
        assert_eq!(part.as_ptr(), second[1..].as_ptr());
    }
}
