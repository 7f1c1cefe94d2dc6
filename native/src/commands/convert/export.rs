//! Models in the formats of other programs.

use super::verify;
use anyhow::Context;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use wf_run_cli::progress::BytesWritten;
use wrinklefree::format::{
    Checkpoint, GgufFile, GgufOptions, GgufTokenizer, GgufVocab, HfDirectory, Vocabulary,
};
use wrinklefree::text::Tokenizer;

/// Writes a GGUF file, and returns notes on what other programs will not read as it was.
pub fn gguf(
    checkpoint: &Checkpoint,
    tokenizer: Option<&Tokenizer>,
    options: GgufOptions,
    out: &mut impl Write,
) -> anyhow::Result<Vec<String>> {
    let vocab = vocab(checkpoint, tokenizer);
    let (json, mut notes) = match (tokenizer, &vocab) {
        (Some(tokenizer), Some(vocab)) if !same(tokenizer, vocab, checkpoint) => {
            let note = match vocab.pre.as_deref() {
                Some("unnamed") => {
                    "GGUF has no name for this pre-tokenizer: other programs will refuse it"
                }
                _ => {
                    "other programs may tokenize some texts in another way: GGUF has no normalizers"
                }
            };
            (Some(tokenizer.to_json()), vec![note.to_owned()])
        }
        (Some(tokenizer), None) => {
            let note = "GGUF holds byte-pair tokenizers only: other programs will find none";
            (Some(tokenizer.to_json()), vec![note.to_owned()])
        }
        _ => (None, Vec::new()),
    };
    let text = GgufTokenizer { vocab: vocab.as_ref(), json: json.as_deref() };
    let file = GgufFile::new(checkpoint, text, options).context("GGUF cannot hold the model")?;
    notes.extend_from_slice(file.losses());
    file.write(&mut BytesWritten::new(out, file.bytes())).context("cannot write the file")?;
    Ok(notes)
}

/// Writes the files of a directory, and returns the size of the weights.
pub fn hf(
    checkpoint: &Checkpoint,
    tokenizer_json: Option<Vec<u8>>,
    directory: &Path,
) -> anyhow::Result<u64> {
    let json = tokenizer_json.map(String::from_utf8).transpose()?;
    let model = HfDirectory::new(checkpoint, json.as_deref())
        .context("a directory cannot hold the model")?;
    for (name, contents) in model.files() {
        let path = directory.join(name);
        fs::write(&path, contents).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let path = directory.join(HfDirectory::WEIGHTS);
    let mut file = File::create(&path).map(BufWriter::new)?;
    model
        .write_weights(&mut BytesWritten::new(&mut file, model.weights_bytes()))
        .with_context(|| format!("cannot write {}", path.display()))?;
    file.into_inner()?.sync_all()?;
    Ok(model.weights_bytes())
}

fn vocab(checkpoint: &Checkpoint, tokenizer: Option<&Tokenizer>) -> Option<GgufVocab> {
    match &checkpoint.text.vocabulary {
        Some(Vocabulary::Gguf(vocab)) => Some(GgufVocab::clone(vocab)),
        _ => tokenizer?.to_gguf(),
    }
}

/// Returns true if a vocabulary gives the ids of a tokenizer.
fn same(tokenizer: &Tokenizer, vocab: &GgufVocab, checkpoint: &Checkpoint) -> bool {
    let vocabulary = Vocabulary::Gguf(Box::new(vocab.clone()));
    let built = Tokenizer::new(&vocabulary);
    built.is_ok_and(|built| verify::tokenizers(tokenizer, &built, &checkpoint.text.special).is_ok())
}
