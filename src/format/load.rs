//! The entry point of the loaders: recognizes files by their content.

use super::numbers::NumberCheck;
use super::{
    Checkpoint, DrafterCheckpoint, File, LoadError, LoadErrorKind as Kind, gguf, hf, packed,
    safetensors,
};
use crate::loader::WeightLoader;

/// Reads a model: a GGUF file or the parts of a split one, one packed file, or the files of a Hugging Face directory.
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

/// Reads a drafter (DFlash, DSpark): a GGUF file, or the files of a Hugging Face directory. All workers of
/// `loader` read its matrices, as in [`load_with`].
///
/// # Errors
/// When the files are not a drafter, are damaged, or need what is not supported; as [`load`].
pub fn load_drafter(
    mut files: Vec<File>,
    loader: &mut WeightLoader<'_, '_>,
) -> Result<DrafterCheckpoint, LoadError> {
    let mut numbers = NumberCheck::new(loader);
    files.iter().try_for_each(refuse_what_is_no_file)?;
    let mut checkpoint = if files.iter().any(|file| gguf::recognize(&file.bytes.first())) {
        files.retain(|file| gguf::recognize(&file.bytes.first()));
        gguf::load_drafter(files, &mut numbers)?
    } else {
        hf::load_drafter(files, &mut numbers)?
    };
    checkpoint.flushed = numbers.flushed;
    Ok(checkpoint)
}

fn read(
    files: &mut Vec<File>,
    options: LoadOptions,
    numbers: &mut NumberCheck<'_, '_, '_>,
) -> Result<Checkpoint, LoadError> {
    files.iter().try_for_each(refuse_what_is_no_file)?;
    if files.iter().any(|file| gguf::recognize(&file.bytes.first())) {
        files.retain(|file| gguf::recognize(&file.bytes.first()));
        return gguf::load(std::mem::take(files), options, numbers);
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

/// Refuses what downloads leave in a file's place.
fn refuse_what_is_no_file(file: &File) -> Result<(), LoadError> {
    let error = |found: &str, advice: &str| {
        Err(LoadError::new(Kind::NotAModel, &file.name, "a file of a model", found).advice(advice))
    };
    let start = file.bytes.first();
    let text = start.trim_ascii_start();
    let html = |tag: &[u8]| text.get(..tag.len()).is_some_and(|t| t.eq_ignore_ascii_case(tag));
    if file.bytes.is_empty() {
        error("an empty file", "download it again")
    } else if start.starts_with(b"version https://git-lfs") {
        error("a Git LFS pointer", "fetch the real file: git lfs pull")
    } else if html(b"<!doctype html") || html(b"<html") {
        error("an HTML page", "download the file itself; a login may be needed")
    } else {
        Ok(())
    }
}
