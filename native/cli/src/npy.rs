//! NumPy's file format, as far as a matrix of floats needs it.

use anyhow::{Context, bail, ensure};

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

/// Reads a little-endian f32 or f64 array in row-major order: its shape and values.
///
/// # Errors
/// If the bytes are no such array.
pub fn read(bytes: &[u8]) -> anyhow::Result<(Vec<usize>, Vec<f32>)> {
    let rest = bytes.strip_prefix(b"\x93NUMPY").context("it is no NumPy file")?;
    let (length, size) = match rest {
        [1, _, a, b, ..] => (usize::from(u16::from_le_bytes([*a, *b])), 4),
        [2 | 3, _, a, b, c, d, ..] => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, 6),
        _ => bail!("its version is not 1, 2 or 3"),
    };
    let header = rest.get(size..size + length).context("its header is cut short")?;
    let header = std::str::from_utf8(header).context("its header is no text")?;
    let field = |name: &str| {
        let (_, rest) = header.split_once(&format!("'{name}':"))?;
        Some(rest.trim_start())
    };
    ensure!(
        field("fortran_order").is_some_and(|order| order.starts_with("False")),
        "its order is not row-major: save it with numpy.ascontiguousarray"
    );
    let shape = field("shape").and_then(|text| text.strip_prefix('(')?.split_once(')'));
    let shape = shape.context("its header has no shape")?.0;
    let sizes = shape.split(',').map(str::trim).filter(|size| !size.is_empty());
    let shape: Vec<usize> = sizes.map(str::parse).collect::<Result<_, _>>().context("its shape")?;
    let count = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d)).context("its shape")?;
    let data = &rest[size + length..];
    let values: Vec<f32> = match field("descr").and_then(|text| text.split('\'').nth(1)) {
        Some("<f4") => data.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect(),
        Some("<f8") => data.as_chunks().0.iter().map(|b| f64::from_le_bytes(*b) as f32).collect(),
        other => {
            bail!("its type is {}: save it as float32", other.unwrap_or("unknown"))
        }
    };
    ensure!(values.len() == count, "it holds {} numbers of {count}", values.len());
    Ok((shape, values))
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

    #[test]
    fn arrays_come_back() {
        let mut file = header(2, 3);
        let values = [1.0, -2.0, 0.5, 3.0, 4.0, 5.0];
        file.extend(row(&values));
        assert_eq!(read(&file).expect("valid"), (vec![2, 3], values.to_vec()));
        let doubles = String::from_utf8_lossy(&file[10..128]).replace("<f4", "<f8");
        let mut wide = file[..10].to_vec();
        wide.extend(doubles.bytes());
        wide.extend(values.iter().flat_map(|v| f64::from(*v).to_le_bytes()));
        assert_eq!(read(&wide).expect("valid").1, values);
    }

    #[test]
    fn other_bytes_are_refused() {
        let file = header(2, 3);
        let of = |from: &str, to: &str| {
            let text = String::from_utf8_lossy(&file[10..]).replace(from, to);
            [&file[..10], text.as_bytes()].concat()
        };
        for (bytes, what) in [
            (b"PK".to_vec(), "no NumPy file"),
            (file[..40].to_vec(), "cut short"),
            (file.clone(), "0 numbers of 6"),
            (of("<f4", "<i8"), "float32"),
            (of("False", "True "), "row-major"),
            (of("(2, 3)", "(2, x)"), "shape"),
        ] {
            let error = format!("{:#}", read(&bytes).expect_err(what));
            assert!(error.contains(what), "{error}");
        }
    }
}
