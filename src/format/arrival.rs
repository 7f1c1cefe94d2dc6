//! A file that comes bit by bit, for instance from a network: as soon as its header is there, memory is
//! cut between tensors. Whoever turns tensors into another form then gives it back piece by piece, where
//! in one piece the file would stay to the last of them.

use super::{Pieces, gguf, safetensors};
use crate::mem::AlignedVec;
use bytes::Bytes;
use std::fmt;
use std::ops::Range;

/// Bytes of a piece at least. Of smaller ones, a matrix each, holes stayed into which nothing fitted: a
/// layer's matrices go one after the other, and what they become is larger.
const PIECE: usize = 16 << 20;
/// Bytes in which a header is looked for first.
const FIRST: usize = 64 << 10;
/// Bytes by which a file of unknown size grows at least.
const GROWTH: usize = 1 << 20;

/// What the beginning of a file says of the rest.
pub(super) enum Outline {
    /// So many bytes are needed to know, at least.
    Short(usize),
    /// Where the header ends, and where the tensors are.
    Tensors(usize, Vec<Range<usize>>),
    /// No model, or a damaged one.
    Unknown,
}

impl Outline {
    fn of(head: &[u8]) -> Self {
        if gguf::recognize(head) {
            return gguf::outline(head);
        }
        match safetensors::recognize(head) {
            true => safetensors::outline(head),
            false => Self::Unknown,
        }
    }
}

/// There is no memory for so many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMemory(pub usize);

impl fmt::Display for NoMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no memory for {} bytes", self.0)
    }
}

impl std::error::Error for NoMemory {}

/// A file under way: see the module.
#[derive(Default)]
pub struct Arrival {
    /// Bytes that it will have; `None`: unknown, it grows in one piece.
    size: Option<usize>,
    /// Pieces that are full.
    full: Vec<Bytes>,
    /// The piece under way.
    piece: AlignedVec<u8>,
    /// Bytes of it that are there.
    filled: usize,
    /// Bytes that are there.
    length: usize,
    /// Where pieces end, the next one last; `None` as long as the header is not there.
    ends: Option<Vec<usize>>,
    /// There was no memory: what came may be gone.
    failed: Option<NoMemory>,
}

impl Arrival {
    /// A file of so many bytes; `None`: nobody said how many.
    pub fn new(size: Option<usize>) -> Self {
        let ends = size.is_none().then(Vec::new);
        Self { size, ends, ..Self::default() }
    }

    /// Bytes that are there.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Not a byte.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Where the next bytes belong: room for some. [`Self::add`] tells how many were written.
    ///
    /// # Errors
    /// When there is no memory for them; from then on always: the file is lost.
    pub fn room(&mut self) -> Result<&mut [u8], NoMemory> {
        while self.filled == self.piece.len() {
            let made = self.failed.map_or_else(|| self.make_room(), Err);
            self.failed = made.err();
            made?;
        }
        Ok(&mut self.piece[self.filled..])
    }

    fn make_room(&mut self) -> Result<(), NoMemory> {
        match &mut self.ends {
            None => self.read_header(),
            Some(ends) => match ends.pop() {
                Some(end) => self.begin(end),
                None => self.enlarge(self.piece.len() / 2),
            },
        }
    }

    /// So many bytes were written.
    ///
    /// # Panics
    /// Where there was no room for them.
    pub fn add(&mut self, bytes: usize) {
        assert!(bytes <= self.piece.len() - self.filled, "{bytes} bytes");
        self.filled += bytes;
        self.length += bytes;
    }

    /// What is there, in order.
    pub fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        self.full.iter().map(|piece| &piece[..]).chain([&self.piece[..self.filled]])
    }

    /// The file, where it lies.
    pub fn finish(mut self) -> Pieces {
        self.full.push(self.piece.into_bytes().slice(..self.filled));
        self.full.into_iter().collect()
    }

    /// Decides how memory is cut, or waits for more of the header.
    fn read_header(&mut self) -> Result<(), NoMemory> {
        let (size, have) = (self.size.unwrap_or(0), self.piece.len());
        if have == 0 && size > 0 {
            return self.enlarge(FIRST.min(size));
        }
        match Outline::of(&self.piece) {
            Outline::Short(bytes) if have < size => {
                self.enlarge(bytes.max(2 * have).min(size) - have)
            }
            Outline::Tensors(header, tensors) if have < size => {
                self.ends = Some(ends(header, tensors, size));
                self.cut()
            }
            _ => {
                self.ends = Some(Vec::new());
                self.enlarge(size - have)
            }
        }
    }

    /// Moves what is there into pieces.
    fn cut(&mut self) -> Result<(), NoMemory> {
        let head = std::mem::take(&mut self.piece);
        let mut left = &head[..std::mem::take(&mut self.filled)];
        self.length = 0;
        while !left.is_empty() {
            let room = self.room()?;
            let (now, later) = left.split_at(room.len().min(left.len()));
            room[..now.len()].copy_from_slice(now);
            self.add(now.len());
            left = later;
        }
        Ok(())
    }

    /// Begins the piece that ends there.
    fn begin(&mut self, end: usize) -> Result<(), NoMemory> {
        let next = memory(end - self.length)?;
        let full = std::mem::replace(&mut self.piece, next);
        self.filled = 0;
        self.full.push(full.into_bytes());
        Ok(())
    }

    /// Enlarges the piece under way; by [`GROWTH`] at least where nobody knows where it will end.
    fn enlarge(&mut self, by: usize) -> Result<(), NoMemory> {
        let by = if self.length < self.size.unwrap_or(0) { by } else { by.max(GROWTH) };
        let mut larger = memory(self.piece.len() + by)?;
        larger[..self.filled].copy_from_slice(&self.piece[..self.filled]);
        self.piece = larger;
        Ok(())
    }
}

/// Where the pieces of a file of `size` bytes end, the first one last.
fn ends(header: usize, tensors: Vec<Range<usize>>, size: usize) -> Vec<usize> {
    let mut ends: Vec<_> = tensors.into_iter().flat_map(|t| [t.start, t.end]).collect();
    // What a header says may be wrong: loading will tell.
    ends.retain(|&end| end >= header && end < size);
    ends.sort_unstable();
    let mut begin = 0;
    ends.retain(|&end| {
        let cut = end - begin >= PIECE;
        begin = if cut { end } else { begin };
        cut
    });
    ends.push(size);
    ends.reverse();
    ends
}

/// Zeroed memory.
fn memory(bytes: usize) -> Result<AlignedVec<u8>, NoMemory> {
    AlignedVec::try_zeroed(bytes).ok_or(NoMemory(bytes))
}
