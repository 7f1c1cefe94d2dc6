//! Random changes to model files: to what they say, and to their bytes.

use crate::fixtures::{Gguf, GgufTensor, Hf, file, safetensors, with_header};
use crate::values;
use fastrand::Rng;
use serde_json::Value;
use wrinklefree::format::File;

/// A valid model that can be changed.
pub enum Source {
    Directory(Hf),
    Gguf(Gguf),
    Packed(Vec<u8>),
}

/// Sizes and numbers at which code goes wrong.
const EXTREMES: [u64; 16] = [
    0,
    1,
    2,
    3,
    7,
    8,
    63,
    255,
    256,
    65_536,
    i32::MAX as u64,
    u32::MAX as u64,
    1 << 32,
    1 << 40,
    i64::MAX as u64,
    u64::MAX,
];

impl Source {
    /// The files as they are.
    pub fn files(&self) -> Vec<File> {
        match self {
            Self::Directory(hf) => hf.files(),
            Self::Gguf(gguf) => vec![file("model.gguf", gguf.bytes())],
            Self::Packed(bytes) => vec![file("model.packed", bytes.clone())],
        }
    }

    /// The files after one to three changes.
    pub fn mutated(&self, rng: &mut Rng) -> Vec<File> {
        let mut files = match self {
            Self::Directory(hf) => directory(hf.clone(), rng),
            Self::Gguf(gguf) => vec![file("model.gguf", changed_gguf(gguf.clone(), rng).bytes())],
            Self::Packed(bytes) => vec![file("model.packed", packed(bytes, rng))],
        };
        if rng.u32(..3) == 0 {
            let index = rng.usize(..files.len());
            let name = files[index].name.clone();
            files[index] = file(&name, bytes(files[index].bytes.whole().to_vec(), rng));
        }
        if files.len() > 1 && rng.u32(..50) == 0 {
            files.swap_remove(rng.usize(..files.len()));
        }
        files
    }
}

fn directory(mut hf: Hf, rng: &mut Rng) -> Vec<File> {
    if rng.bool() {
        values::values(&mut hf.config, rng);
    }
    let mut header = None;
    if rng.bool() {
        let names: Vec<String> = hf.tensors.keys().cloned().collect();
        let name = &names[rng.usize(..names.len())];
        let mut tensor = hf.tensors.remove(name).expect("its name is listed");
        match rng.u32(..6) {
            0 => {}
            1 => drop(hf.tensors.insert(names[rng.usize(..names.len())].clone(), tensor)),
            2 => header = Some(()),
            change => {
                match change {
                    3 => dimensions(&mut tensor.shape, rng),
                    4 => tensor.dtype = ["F32", "F16", "BF16", "U8", "I8", "F64"][rng.usize(..6)],
                    _ => tensor.bytes = data(tensor.bytes, rng),
                }
                hf.tensors.insert(name.clone(), tensor);
            }
        }
    }
    let mut weights = safetensors(&hf.tensors);
    if header.is_some() {
        weights = with_changed_header(&weights, rng);
    }
    let mut files =
        vec![file("config.json", hf.config.to_string()), file("model.safetensors", weights)];
    files.extend(hf.others);
    files
}

fn packed(bytes: &[u8], rng: &mut Rng) -> Vec<u8> {
    match rng.u32(..4) {
        0 => data(bytes.to_vec(), rng),
        _ => with_changed_header(bytes, rng),
    }
}

/// Changes values in the JSON at the beginning of a file.
fn with_changed_header(bytes: &[u8], rng: &mut Rng) -> Vec<u8> {
    let length = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")) as usize;
    let (header, data) = bytes[8..].split_at(length);
    let mut header: Value = serde_json::from_slice(header).expect("valid JSON");
    values::values(&mut header, rng);
    with_header(&header.to_string(), data)
}

fn changed_gguf(mut gguf: Gguf, rng: &mut Rng) -> Gguf {
    for _ in 0..rng.u32(..4) {
        if rng.bool() { metadata(&mut gguf, rng) } else { tensor(&mut gguf.tensors, rng) }
    }
    if rng.u32(..50) == 0 {
        gguf.version = EXTREMES[rng.usize(..EXTREMES.len())] as u32;
    }
    gguf
}

fn metadata(gguf: &mut Gguf, rng: &mut Rng) {
    let other = gguf.meta[rng.usize(..gguf.meta.len())].clone();
    let index = rng.usize(..gguf.meta.len());
    let (key, (kind, bytes)) = &mut gguf.meta[index];
    match rng.u32(..8) {
        0 => drop(gguf.meta.remove(index)),
        1 => *key = other.0,
        2 => (*kind, *bytes) = other.1,
        3 => *kind = rng.u32(..14),
        4 => *bytes = data(std::mem::take(bytes), rng),
        _ => {
            let extreme = EXTREMES[rng.usize(..EXTREMES.len())].to_le_bytes();
            let length = bytes.len().min(extreme.len());
            bytes[..length].copy_from_slice(&extreme[..length]);
        }
    }
}

fn tensor(tensors: &mut Vec<GgufTensor>, rng: &mut Rng) {
    if tensors.is_empty() {
        return;
    }
    let other = tensors[rng.usize(..tensors.len())].clone();
    let index = rng.usize(..tensors.len());
    let tensor = &mut tensors[index];
    match rng.u32(..8) {
        0 => drop(tensors.remove(index)),
        1 => tensor.name = other.name,
        2 => (tensor.kind, tensor.bytes) = (other.kind, other.bytes),
        3 => tensor.kind = rng.u32(..45),
        4 => dimensions(&mut tensor.shape, rng),
        5 => tensors.push(other),
        _ => tensor.bytes = data(std::mem::take(&mut tensor.bytes), rng),
    }
}

/// Changes, adds, removes or exchanges dimensions.
fn dimensions(shape: &mut Vec<usize>, rng: &mut Rng) {
    let extreme = EXTREMES[rng.usize(..EXTREMES.len())] as usize;
    match rng.u32(..4) {
        0 => shape.push(extreme),
        1 => drop(shape.pop()),
        2 => shape.reverse(),
        _ => {
            let index = rng.usize(..shape.len().max(1));
            shape.iter_mut().skip(index).take(1).for_each(|size| *size = extreme);
        }
    }
}

/// Weights of other values or of another length.
fn data(mut data: Vec<u8>, rng: &mut Rng) -> Vec<u8> {
    match rng.u32(..5) {
        0 => data.truncate(rng.usize(..=data.len())),
        1 => data.extend_from_slice(&data.clone()[..data.len() / 2]),
        2 => data.fill([0, 0xFF, 0x7F, 0x80][rng.usize(..4)]),
        3 => data.iter_mut().for_each(|byte| *byte = rng.u8(..)),
        _ => {
            let reach = data.len().max(1);
            let places: Vec<usize> = (0..4).map(|_| rng.usize(..reach)).collect();
            for place in places {
                data.iter_mut().skip(place).take(1).for_each(|byte| *byte = rng.u8(..));
            }
        }
    }
    data
}

/// Changes bytes of a whole file, mostly near its beginning, where most of them have a meaning.
fn bytes(mut bytes: Vec<u8>, rng: &mut Rng) -> Vec<u8> {
    if bytes.is_empty() {
        return bytes;
    }
    let reach = if rng.bool() { bytes.len() } else { bytes.len().min(2048) };
    for _ in 0..rng.u32(1..5) {
        let place = rng.usize(..reach);
        let Some(byte) = bytes.get_mut(place) else { continue };
        match rng.u32(..5) {
            0 => *byte ^= 1 << rng.u32(..8),
            1 => *byte = rng.u8(..),
            2 => *byte = [0, 0xFF, 0x7F, 0x80, b'"', b'9', b'{', b'['][rng.usize(..8)],
            3 => bytes.truncate(place),
            _ => drop(bytes.splice(place..place, [b'"'; 3])),
        }
    }
    bytes
}
