//! The entry point of the loaders: recognizes files by their content.

use super::numbers::NumberCheck;
use super::{Checkpoint, File, LoadError, LoadErrorKind as Kind, gguf, hf, packed, safetensors};
use crate::loader::WeightLoader;

/// Reads a model: one GGUF file, one packed file, or the files of a Hugging Face directory.
///
/// Weights that need no conversion are views into the files. Bytes of converted weights are freed one
/// segment at a time, where a file has several segments ([`FileBytes`](super::FileBytes)).
///
/// # Errors
/// When the files are not a model, are damaged, hold a model that is not supported, or a number that is
/// NaN or infinite.
pub fn load(files: Vec<File>) -> Result<Checkpoint, LoadError> {
    load_with(files, LoadOptions::default(), &mut WeightLoader::alone())
}

/// Options of loading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadOptions {
    /// Reads the block for multi-token prediction, if the files have one. If it cannot be used, the model
    /// is loaded without it, and [`Checkpoint::mtp_fault`] has the reason. Otherwise the block is skipped.
    pub mtp: bool,
}

/// As [`load`]. All workers of `loader` read the float matrices to check their numbers, and bring those
/// to their final memory that the loader's source does not leave in place.
///
/// # Errors
/// As [`load`].
pub fn load_with(
    mut files: Vec<File>,
    options: LoadOptions,
    loader: &mut WeightLoader<'_, '_>,
) -> Result<Checkpoint, LoadError> {
    let mut numbers = NumberCheck::new(loader);
    let mut checkpoint = read(&mut files, options, &mut numbers)?;
    checkpoint.flushed = numbers.flushed;
    Ok(checkpoint)
}

fn read(
    files: &mut Vec<File>,
    options: LoadOptions,
    numbers: &mut NumberCheck<'_, '_, '_>,
) -> Result<Checkpoint, LoadError> {
    let mut ggufs = (0..files.len()).filter(|&i| gguf::recognize(&files[i].bytes.first()));
    if let Some(file) = ggufs.next() {
        return match ggufs.next() {
            None => gguf::load(files.swap_remove(file), options, numbers),
            Some(second) => {
                let found = format!("also {}", files[second].name);
                Err(LoadError::new(Kind::NotAModel, &files[file].name, "one GGUF file", found)
                    .advice("name one of them; merge split files first"))
            }
        };
    }
    // A file with this ending gets the safetensors parser's error, whatever it contains.
    if let [file] = &files[..]
        && (safetensors::recognize(&file.bytes.first()) || file.name.ends_with(".safetensors"))
    {
        let contents = safetensors::parse(file)?;
        if packed::recognize(&contents) {
            let name = files.swap_remove(0).name;
            return packed::load(&name, contents, options, numbers);
        }
    }
    hf::load(std::mem::take(files), options, numbers)
}
