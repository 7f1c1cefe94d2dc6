//! Reads the NumPy files of `tests/golden`: little-endian, C order.

use std::path::Path;

/// The dtype, shape and data of an `.npy` file (format version 1.0).
fn parse(path: &Path) -> (String, Vec<usize>, Vec<u8>) {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert_eq!(&bytes[..8], b"\x93NUMPY\x01\x00", "{}", path.display());
    let length = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let header = std::str::from_utf8(&bytes[10..10 + length]).unwrap();
    let between = |from: &str, to: char| {
        let start = header.find(from).unwrap() + from.len();
        header[start..].split(to).next().unwrap().to_owned()
    };
    let shape = between("'shape': (", ')');
    let shape = shape.split(',').filter_map(|n| n.trim().parse().ok()).collect();
    (between("'descr': '", '\''), shape, bytes[10 + length..].to_vec())
}

/// An f32 array and its shape.
pub fn floats(path: &Path) -> (Vec<usize>, Vec<f32>) {
    let (dtype, shape, data) = parse(path);
    assert_eq!(dtype, "<f4");
    (shape, data.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect())
}

/// An array of token ids, stored as int64.
pub fn ids(path: &Path) -> Vec<u32> {
    let (dtype, _, data) = parse(path);
    assert_eq!(dtype, "<i8");
    data.as_chunks().0.iter().map(|&b| u32::try_from(i64::from_le_bytes(b)).unwrap()).collect()
}
