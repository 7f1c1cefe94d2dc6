//! The one entry: recognises what it was given by its content.

use super::{Checkpoint, File, LoadError, LoadErrorKind as Kind, gguf, hf, packed, safetensors};

/// Reads a model: one GGUF file, one packed file, or the files of a Hugging Face directory.
/// Weights that need no conversion are views into the files.
///
/// # Errors
/// When the files are no model, are damaged, or hold a model that is not supported.
pub fn load(files: &[File]) -> Result<Checkpoint, LoadError> {
    let mut ggufs = files.iter().filter(|f| gguf::recognise(&f.bytes));
    if let Some(file) = ggufs.next() {
        return match ggufs.next() {
            None => gguf::load(file),
            Some(second) => {
                let found = format!("also {}", second.name);
                Err(LoadError::new(Kind::NotAModel, &file.name, "one GGUF file", found)
                    .advice("name one of them; merge split files first"))
            }
        };
    }
    if let [file] = files
        && safetensors::recognise(&file.bytes)
    {
        let contents = safetensors::parse(file)?;
        if packed::recognise(&contents) {
            return packed::load(file, contents);
        }
    }
    hf::load(files)
}
