//! Files that are received in chunks load like whole files, and their memory is freed in segments.

use crate::counting::HELD;
use crate::fixtures::{Gguf, Hf, Rng, Style, file, hybrid, with_header};
use wrinklefree::format::{Checkpoint, File, FileBytes, StreamedFile, codec, load, write_packed};
use wrinklefree::ternary::Layout;

/// Receives a file of known or unknown size in chunks of `chunk` bytes.
fn receive(bytes: &[u8], size: Option<usize>, chunk: usize) -> FileBytes {
    let mut file = StreamedFile::new(size);
    for mut chunk in bytes.chunks(chunk) {
        while !chunk.is_empty() {
            let buffer = file.buffer().expect("memory");
            let (now, later) = chunk.split_at(buffer.len().min(chunk.len()));
            buffer[..now.len()].copy_from_slice(now);
            file.advance(now.len());
            chunk = later;
        }
    }
    assert_eq!((file.len(), file.is_empty()), (bytes.len(), bytes.is_empty()));
    assert!(file.chunks().flatten().eq(bytes), "in order");
    file.finish()
}

/// A file whose ternary matrices are wide enough for several segments.
fn wide() -> Gguf {
    let mut some = None;
    Gguf::model("bitnet-b1.58", 3072, 35, |rng, rows, cols| {
        // Random matrices are slow to make: one of each shape is enough.
        let make = |rng: &mut Rng| codec::TQ2_0.encode(&rng.ternary(rows, cols, None)).unwrap();
        if rows < cols { make(rng) } else { some.get_or_insert_with(|| make(rng)).clone() }
    })
}

fn weights(c: &Checkpoint) -> String {
    format!("{:?}", c.weights)
}

/// Share of the file's size that this thread holds after loading, and the share that is freed with the
/// second of two layers.
fn held(bytes: &[u8], size: Option<usize>) -> (f64, f64) {
    let whole = weights(&load(vec![file("m", bytes.to_vec())]).unwrap());
    let before = HELD.get();
    let file = File { name: "m".into(), bytes: receive(bytes, size, 100_000) };
    let mut c = load(vec![file]).unwrap();
    assert!(weights(&c) == whole, "{size:?}");
    let share = || (HELD.get() - before) as f64 / bytes.len() as f64;
    let all = share();
    c.weights.layers.truncate(1);
    (all, all - share())
}

#[test]
fn memory_is_freed_with_the_tensors_in_it() {
    let gguf = wide().bytes();
    let mut packed = Vec::new();
    let mut checkpoint = load(vec![file("model.gguf", gguf.clone())]).unwrap();
    checkpoint.weights.set_layout(Layout::Tight);
    write_packed(&checkpoint, None, &mut packed).unwrap();
    // All matrices of a packed file are views of it; of a GGUF file only the float embeddings are.
    let (all, second) = held(&packed, Some(packed.len()));
    assert!(all > 0.9 && second > 0.2, "{all:.2}, {second:.2} of it with a layer");
    let (all, _) = held(&gguf, Some(gguf.len()));
    assert!(all < 0.6, "{all:.2}");
    // Files of unknown size have one segment, which stays whole.
    for bytes in [&packed, &gguf] {
        let (all, second) = held(bytes, None);
        assert!(all > 0.9 && second < 0.1, "{all:.2}, {second:.2} of it with a layer");
    }
}

#[test]
fn segments_load_as_the_whole() {
    let hf = Hf::new("bitnet", Style::Packed);
    let default = include_bytes!("../../models/default.wf.safetensors").to_vec();
    let models = [
        vec![file("default.wf.safetensors", default)],
        vec![file("model.gguf", Gguf::q2().bytes())],
        vec![file("model.gguf", hybrid::rotated().bytes())],
        vec![file("model.wf.safetensors", hybrid::packed())],
        hf.files(),
    ];
    for files in models {
        let whole = weights(&load(files.clone()).unwrap());
        for chunk in [1, 4096, usize::MAX] {
            for known in [true, false] {
                let received = files.iter().map(|f| {
                    let bytes = f.bytes.whole();
                    let bytes = receive(&bytes, known.then_some(bytes.len()), chunk);
                    File { name: f.name.clone(), bytes }
                });
                let c = load(received.collect()).unwrap();
                assert!(weights(&c) == whole, "{}, {chunk}, {known}", files[0].name);
            }
        }
    }
}

/// Wrong sizes and headers: the received bytes are kept, and loading reports the error.
#[test]
fn wrong_sizes_and_headers_keep_the_bytes() {
    let far = 1u64 << 62;
    let entry =
        |begin, end| format!(r#"{{"dtype":"U8","shape":[1],"data_offsets":[{begin},{end}]}}"#);
    let header =
        |begin: u64, end: u64| format!(r#"{{"a":{},"b":{}}}"#, entry(0, 1), entry(begin, end));
    let mut gguf = wide();
    gguf.tensors.truncate(1);
    let mut gguf = gguf.parts().0;
    gguf.resize(200_000, 7);
    let files = [
        Vec::new(),
        vec![b'{'; 70_000],
        with_header(&header(far, far + 1), &[1; 100_000]),
        with_header(&header(9, 3), &[2; 100_000]),
        with_header("{", &[3; 100_000]),
        [&far.to_le_bytes()[..], b"{", &[4; 100_000]].concat(),
        [b"GGUF\x03\0\0\0", &[0xff; 100_000][..]].concat(),
        gguf,
    ];
    for (i, bytes) in files.iter().enumerate() {
        for size in [0, 1, bytes.len() / 2, bytes.len(), bytes.len() + 5_000_000] {
            for chunk in [999, usize::MAX] {
                let segments = receive(bytes, Some(size), chunk);
                assert!(segments.whole() == bytes, "file {i}, {size}, {chunk}");
                assert!(
                    load(vec![File { name: "m".into(), bytes: segments }]).is_err(),
                    "file {i}"
                );
            }
        }
    }
}

#[test]
fn without_memory_a_file_is_lost() {
    let header =
        with_header(r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#, &[0; 70_000]);
    let mut file = StreamedFile::new(Some(usize::MAX / 4));
    let mut left = &header[..];
    let error = loop {
        match file.buffer() {
            Err(error) => break error,
            Ok(buffer) => {
                let now = buffer.len().min(left.len());
                buffer[..now].copy_from_slice(&left[..now]);
                file.advance(now);
                left = &left[now..];
            }
        }
    };
    assert!(error.to_string().contains("no memory for"), "{error}");
    assert_eq!(file.buffer().unwrap_err(), error);
}
