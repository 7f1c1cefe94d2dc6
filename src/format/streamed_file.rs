//! A file that is received in chunks, for instance from a network. Once its header is complete, memory
//! is split into segments between tensors. A loader that converts tensors then frees one segment at a
//! time, instead of holding the whole file until the last tensor is converted.

use super::index::HeaderScan;
use super::{FileBytes, gguf, safetensors};
use crate::mem::AlignedVec;
use bytes::Bytes;
use std::fmt;
use std::ops::Range;

/// Smallest segment, in bytes. Segments of one matrix each fragmented memory: the converted matrices
/// are larger, so none fitted into a freed segment.
const MIN_SEGMENT: usize = 16 << 20;
/// Bytes of the first buffer, in which the header is searched.
const FIRST: usize = 64 << 10;
/// Smallest growth of a file of unknown size, in bytes.
const GROWTH: usize = 1 << 20;

/// Reads the header in the first bytes of a file.
fn scan_header(head: &[u8]) -> HeaderScan {
    if gguf::recognize(head) {
        return gguf::scan_header(head);
    }
    if safetensors::recognize(head) { safetensors::scan_header(head) } else { HeaderScan::Unknown }
}

/// An allocation of this many bytes failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMemory(pub usize);

impl fmt::Display for NoMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no memory for {} bytes", self.0)
    }
}

impl std::error::Error for NoMemory {}

/// A file that is received in chunks, in memory where the kernels can read it.
///
/// Write each chunk to [`buffer`](Self::buffer), report its length to [`advance`](Self::advance), and
/// call [`finish`](Self::finish) at the end.
///
/// ```
/// use wrinklefree::format::StreamedFile;
///
/// let mut file = StreamedFile::new(None);
/// for chunk in [&b"first "[..], b"second"] {
///     file.buffer()?[..chunk.len()].copy_from_slice(chunk);
///     file.advance(chunk.len());
/// }
/// assert_eq!(&file.finish().whole()[..], b"first second");
/// # Ok::<(), wrinklefree::format::NoMemory>(())
/// ```
#[derive(Default)]
pub struct StreamedFile {
    /// Expected size in bytes. A file of unknown size (`None`) grows in one segment.
    size: Option<usize>,
    /// Segments that are full.
    full: Vec<Bytes>,
    /// The segment that is being filled.
    segment: AlignedVec<u8>,
    /// Bytes written to `segment`.
    filled: usize,
    /// Bytes written to the file.
    length: usize,
    /// Ends of the segments to come, the next one last; `None` until the header is complete.
    ends: Option<Vec<usize>>,
    /// Set once an allocation has failed: earlier bytes may be lost.
    failed: Option<NoMemory>,
}

impl StreamedFile {
    /// Creates an empty file of an expected `size` in bytes, or of unknown size.
    pub fn new(size: Option<usize>) -> Self {
        let ends = size.is_none().then(Vec::new);
        Self { size, ends, ..Self::default() }
    }

    /// Bytes written so far.
    pub fn len(&self) -> usize {
        self.length
    }

    /// True if no byte was written.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns a buffer of at least one byte for the next bytes of the file. Report the number of
    /// written bytes to [`Self::advance`].
    ///
    /// # Errors
    /// When there is no memory for a buffer. The file is then lost, and every later call fails too.
    pub fn buffer(&mut self) -> Result<&mut [u8], NoMemory> {
        while self.filled == self.segment.len() {
            let made = self.failed.map_or_else(|| self.grow(), Err);
            self.failed = made.err();
            made?;
        }
        Ok(&mut self.segment[self.filled..])
    }

    fn grow(&mut self) -> Result<(), NoMemory> {
        match &mut self.ends {
            None => self.read_header(),
            Some(ends) => match ends.pop() {
                Some(end) => self.begin(end),
                None => self.enlarge(self.segment.len() / 2),
            },
        }
    }

    /// Records that this many bytes were written to [`Self::buffer`].
    ///
    /// # Panics
    /// When the buffer is smaller.
    pub fn advance(&mut self, bytes: usize) {
        assert!(bytes <= self.segment.len() - self.filled, "{bytes} bytes");
        self.filled += bytes;
        self.length += bytes;
    }

    /// The bytes written so far, in order.
    pub fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        self.full.iter().map(|segment| &segment[..]).chain([&self.segment[..self.filled]])
    }

    /// Returns the file without copying it.
    pub fn finish(mut self) -> FileBytes {
        self.full.push(self.segment.into_bytes().slice(..self.filled));
        self.full.into_iter().collect()
    }

    /// Decides where segments end, or waits for more of the header.
    fn read_header(&mut self) -> Result<(), NoMemory> {
        let (size, have) = (self.size.unwrap_or(0), self.segment.len());
        if have == 0 && size > 0 {
            return self.enlarge(FIRST.min(size));
        }
        match scan_header(&self.segment) {
            HeaderScan::Short(bytes) if have < size => {
                self.enlarge(bytes.max(2 * have).min(size) - have)
            }
            HeaderScan::Tensors(header, tensors) if have < size => {
                self.ends = Some(ends(header, tensors, size));
                self.split()
            }
            _ => {
                self.ends = Some(Vec::new());
                self.enlarge(size - have)
            }
        }
    }

    /// Moves the bytes received so far into segments.
    fn split(&mut self) -> Result<(), NoMemory> {
        let head = std::mem::take(&mut self.segment);
        let mut left = &head[..std::mem::take(&mut self.filled)];
        self.length = 0;
        while !left.is_empty() {
            let buffer = self.buffer()?;
            let (now, later) = left.split_at(buffer.len().min(left.len()));
            buffer[..now.len()].copy_from_slice(now);
            self.advance(now.len());
            left = later;
        }
        Ok(())
    }

    /// Begins the segment that ends at position `end`.
    fn begin(&mut self, end: usize) -> Result<(), NoMemory> {
        let next = memory(end - self.length)?;
        let full = std::mem::replace(&mut self.segment, next);
        self.filled = 0;
        self.full.push(full.into_bytes());
        Ok(())
    }

    /// Enlarges the current segment; by at least [`GROWTH`] where its end is unknown.
    fn enlarge(&mut self, by: usize) -> Result<(), NoMemory> {
        let by = if self.length < self.size.unwrap_or(0) { by } else { by.max(GROWTH) };
        let mut larger = memory(self.segment.len() + by)?;
        larger[..self.filled].copy_from_slice(&self.segment[..self.filled]);
        self.segment = larger;
        Ok(())
    }
}

/// Ends of the segments of a file of `size` bytes, the first one last.
fn ends(header: usize, tensors: Vec<Range<usize>>, size: usize) -> Vec<usize> {
    let mut ends: Vec<_> = tensors.into_iter().flat_map(|t| [t.start, t.end]).collect();
    // The header is not checked yet: loading will report an error.
    ends.retain(|&end| end >= header && end < size);
    ends.sort_unstable();
    let mut begin = 0;
    ends.retain(|&end| {
        let cut = end - begin >= MIN_SEGMENT;
        begin = if cut { end } else { begin };
        cut
    });
    ends.push(size);
    ends.reverse();
    ends
}

/// Allocates zeroed memory.
fn memory(bytes: usize) -> Result<AlignedVec<u8>, NoMemory> {
    AlignedVec::try_zeroed(bytes).ok_or(NoMemory(bytes))
}
