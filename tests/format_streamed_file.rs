//! Files that come bit by bit load as those that are there at once, into memory that goes piece by piece.
#[path = "common/counting.rs"]
mod counting;
#[path = "common/format.rs"]
mod fixtures;

use counting::HELD;
use fixtures::{Gguf, Hf, Rng, Style, file, with_header};
use wrinklefree::format::{Checkpoint, File, FileBytes, StreamedFile, codec, load, write_packed};
use wrinklefree::ternary::Layout;

/// The bytes in chunks of so many, of a file whose size is known or not.
fn arrive(bytes: &[u8], size: Option<usize>, chunk: usize) -> FileBytes {
    let mut file = StreamedFile::new(size);
    for mut chunk in bytes.chunks(chunk) {
        while !chunk.is_empty() {
            let room = file.buffer().expect("memory");
            let (now, later) = chunk.split_at(room.len().min(chunk.len()));
            room[..now.len()].copy_from_slice(now);
            file.advance(now.len());
            chunk = later;
        }
    }
    assert_eq!((file.len(), file.is_empty()), (bytes.len(), bytes.is_empty()));
    assert!(file.chunks().flatten().eq(bytes), "in order");
    file.finish()
}

/// A file with so wide ternary matrices that it is cut.
fn wide() -> Gguf {
    let mut some = None;
    Gguf::model("bitnet-b1.58", 3072, 35, |rng, rows, cols| {
        // Random matrices take long to make: one of each shape will do.
        let make = |rng: &mut Rng| codec::TQ2_0.encode(&rng.ternary(rows, cols, None)).unwrap();
        if rows < cols { make(rng) } else { some.get_or_insert_with(|| make(rng)).clone() }
    })
}

fn weights(c: &Checkpoint) -> String {
    format!("{:?}", c.weights)
}

/// What of these bytes' memory this thread still has, and what of it goes with the second of two layers.
fn held(bytes: &[u8], size: Option<usize>) -> (f64, f64) {
    let whole = weights(&load(vec![file("m", bytes.to_vec())]).unwrap());
    let before = HELD.get();
    let file = File { name: "m".into(), bytes: arrive(bytes, size, 100_000) };
    let mut c = load(vec![file]).unwrap();
    assert!(weights(&c) == whole, "{size:?}");
    let share = || (HELD.get() - before) as f64 / bytes.len() as f64;
    let all = share();
    c.weights.layers.truncate(1);
    (all, all - share())
}

#[test]
fn memory_goes_with_what_was_in_it() {
    let gguf = wide().bytes();
    let mut packed = Vec::new();
    let mut checkpoint = load(vec![file("model.gguf", gguf.clone())]).unwrap();
    checkpoint.weights.set_layout(Layout::Tight);
    write_packed(&checkpoint, None, &mut packed).unwrap();
    // Packed matrices are views of the file, and of a GGUF file only the embeddings, which are floats.
    let (all, second) = held(&packed, Some(packed.len()));
    assert!(all > 0.9 && second > 0.2, "{all:.2}, {second:.2} of it with a layer");
    let (all, _) = held(&gguf, Some(gguf.len()));
    assert!(all < 0.6, "{all:.2}");
    // Of unknown size they have one piece, which nothing leaves.
    for bytes in [&packed, &gguf] {
        let (all, second) = held(bytes, None);
        assert!(all > 0.9 && second < 0.1, "{all:.2}, {second:.2} of it with a layer");
    }
}

#[test]
fn pieces_load_as_the_whole() {
    let hf = Hf::new("bitnet", Style::Packed);
    let default = include_bytes!("../models/default.wf.safetensors").to_vec();
    let models = [
        vec![file("default.wf.safetensors", default)],
        vec![file("model.gguf", Gguf::q2().bytes())],
        hf.files(),
    ];
    for files in models {
        let whole = weights(&load(files.clone()).unwrap());
        for chunk in [1, 4096, usize::MAX] {
            for known in [true, false] {
                let arrived = files.iter().map(|f| {
                    let bytes = f.bytes.whole();
                    let bytes = arrive(&bytes, known.then_some(bytes.len()), chunk);
                    File { name: f.name.clone(), bytes }
                });
                let c = load(arrived.collect()).unwrap();
                assert!(weights(&c) == whole, "{}, {chunk}, {known}", files[0].name);
            }
        }
    }
}

/// Sizes and headers that are not true: what came is there.
#[test]
fn lies_are_taken_as_they_come() {
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
                let pieces = arrive(bytes, Some(size), chunk);
                assert!(pieces.whole() == bytes, "file {i}, {size}, {chunk}");
                assert!(load(vec![File { name: "m".into(), bytes: pieces }]).is_err(), "file {i}");
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
            Ok(room) => {
                let now = room.len().min(left.len());
                room[..now].copy_from_slice(&left[..now]);
                file.advance(now);
                left = &left[now..];
            }
        }
    };
    assert!(error.to_string().contains("no memory for"), "{error}");
    assert_eq!(file.buffer().unwrap_err(), error);
}
