//! NumPy's file format, as far as a matrix of f32 needs it.

/// The header of a little-endian f32 array `[rows][cols]` in row-major order.
pub fn header(rows: usize, cols: usize) -> Vec<u8> {
    let mut text =
        format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {cols}), }}");
    // Magic, version, length and text together fill a multiple of 64 bytes and end with \n.
    let fixed = 10;
    let padded = (fixed + text.len() + 1).next_multiple_of(64) - fixed;
    text.extend(std::iter::repeat_n(' ', padded - text.len() - 1));
    text.push('\n');
    let length = u16::try_from(text.len()).expect("two numbers fit a short header");
    let mut header = b"\x93NUMPY\x01\x00".to_vec();
    header.extend(length.to_le_bytes());
    header.extend(text.into_bytes());
    header
}

/// The bytes of one row.
pub fn row(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_as_numpy_writes_it() {
        let header = header(3, 128_256);
        assert_eq!(header.len() % 64, 0);
        assert_eq!(&header[..10], b"\x93NUMPY\x01\x00\x76\x00");
        let text = std::str::from_utf8(&header[10..]).expect("ASCII");
        assert!(
            text.starts_with("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 128256), }")
        );
        assert!(text.ends_with('\n'));
        assert_eq!(row(&[1.0]), [0, 0, 128, 63]);
    }
}
