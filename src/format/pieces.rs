//! A file's bytes, in one piece or in several.

use bytes::Bytes;
use std::ops::Range;

/// The bytes of a file. In several pieces each has memory of its own, which goes when nobody has any of
/// its bytes any more. The first has whatever says where tensors are.
#[derive(Clone, Debug, Default)]
pub struct Pieces(Vec<Piece>);

#[derive(Clone, Debug)]
struct Piece {
    /// Where it ends in the file.
    end: usize,
    bytes: Bytes,
}

impl Pieces {
    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.0.last().map_or(0, |piece| piece.end)
    }

    /// Not a byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first piece: everything where there is only one.
    pub fn first(&self) -> Bytes {
        self.0.first().map(|piece| piece.bytes.clone()).unwrap_or_default()
    }

    /// Everything: a view of a single piece, a copy of several.
    pub fn whole(&self) -> Bytes {
        self.slice(0..self.len())
    }

    /// Some of the bytes: a view where they are in one piece, a copy where they are in several.
    ///
    /// # Panics
    /// Where there are not so many.
    pub fn slice(&self, range: Range<usize>) -> Bytes {
        assert!(range.start <= range.end && range.end <= self.len(), "{range:?} of {}", self.len());
        let first = self.0.partition_point(|piece| piece.end <= range.start);
        let within = |piece: &Piece| {
            let start = piece.end - piece.bytes.len();
            piece.bytes.slice(range.start.max(start) - start..range.end.min(piece.end) - start)
        };
        match &self.0[first..] {
            _ if range.is_empty() => Bytes::new(),
            [piece, ..] if range.end <= piece.end => within(piece),
            pieces => {
                let parts = pieces.iter().take_while(|p| p.end - p.bytes.len() < range.end);
                parts.map(within).collect::<Vec<_>>().concat().into()
            }
        }
    }
}

impl FromIterator<Bytes> for Pieces {
    fn from_iter<I: IntoIterator<Item = Bytes>>(pieces: I) -> Self {
        let mut end = 0;
        let pieces = pieces.into_iter().filter(|bytes| !bytes.is_empty());
        Self(
            pieces
                .map(|bytes| {
                    end += bytes.len();
                    Piece { end, bytes }
                })
                .collect(),
        )
    }
}

impl From<Bytes> for Pieces {
    fn from(bytes: Bytes) -> Self {
        Self::from_iter([bytes])
    }
}

impl From<Vec<u8>> for Pieces {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

impl From<&'static [u8]> for Pieces {
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
        let pieces: Pieces = cut.into_iter().map(Bytes::copy_from_slice).collect();
        assert_eq!(pieces.len(), all.len());
        assert_eq!(pieces.first(), all[..7]);
        assert_eq!(pieces.whole(), all);
        for start in 0..=all.len() {
            for end in start..=all.len() {
                assert_eq!(pieces.slice(start..end), all[start..end], "{start}..{end}");
            }
        }
        assert!(Pieces::default().is_empty() && Pieces::default().whole().is_empty());
    }

    #[test]
    fn a_slice_of_one_piece_is_no_copy() {
        let pieces: Pieces = [vec![1u8; 5], vec![2; 6]].map(Bytes::from).into_iter().collect();
        let (second, part) = (pieces.slice(5..11), pieces.slice(6..9));
        assert_eq!(part.as_ptr(), second[1..].as_ptr());
    }
}
