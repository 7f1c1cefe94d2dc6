//! The entry point of the loaders: recognizes files by their content.

use super::{Checkpoint, File, LoadError, LoadErrorKind as Kind, gguf, hf, packed, safetensors};

/// Reads a model: one GGUF file, one packed file, or the files of a Hugging Face directory.
///
/// Weights that need no conversion are views into the files. Bytes of converted weights are freed one
/// segment at a time, where a file has several segments ([`FileBytes`](super::FileBytes)).
///
/// # Errors
/// When the files are not a model, are damaged, or hold a model that is not supported.
pub fn load(mut files: Vec<File>) -> Result<Checkpoint, LoadError> {
    let mut ggufs = (0..files.len()).filter(|&i| gguf::recognize(&files[i].bytes.first()));
    if let Some(file) = ggufs.next() {
        return match ggufs.next() {
            None => gguf::load(files.swap_remove(file)),
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
            return packed::load(&name, contents);
        }
    }
    hf::load(files)
}
