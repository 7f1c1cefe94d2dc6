//! Samples with an own loop on the core's forward pass: a story without the letter "k".

use wrinklefree_easy::machine::{self, Threads};
use wrinklefree_easy::models::{Loaded, OpenOptions};
use wrinklefree_easy::wrinklefree::batch_types::{AttentionMask, LogitRows};
use wrinklefree_easy::wrinklefree::cache::{KvConfig, KvPool, PAGE};
use wrinklefree_easy::wrinklefree::model::{Span, Workspace};

const TOKENS: usize = 40;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = machine::runtime(Threads::all(1))?;
    let options = OpenOptions::default();
    let Loaded { model, tokenizer, defaults, .. } = Loaded::open(&options, &runtime, &mut ())?;
    let tokenizer = tokenizer.ok_or("the model has no tokenizer")?;
    let (model, eos) = (model.with_supported_layout(&runtime), defaults.eos);
    let banned: Vec<bool> = (0..model.spec().vocab_size as u32)
        .map(|id| {
            tokenizer.is_special(id) && !eos.contains(&id) || tokenizer.bytes(id).contains(&b'k')
        })
        .collect();

    let mut text = tokenizer.encode("Once upon a time", true)?;
    let prompt = text.len();
    let mut kv = KvPool::new(model.spec(), (prompt + TOKENS).div_ceil(PAGE), KvConfig::default())?;
    let (seq, mut workspace) = (kv.open(prompt + TOKENS)?, Workspace::default());
    let mut start = 0;
    while text.len() < prompt + TOKENS {
        let (attention_mask, logits) = (AttentionMask::Causal, LogitRows::Last);
        let span = Span { seq, start, tokens: &text[start..], attention_mask, logits };
        let logits = model.forward(&runtime, &mut kv, &[span], &mut workspace).row(0);
        let allowed = logits.iter().enumerate().filter(|(id, _)| !banned[*id]);
        let best = allowed.max_by(|a, b| a.1.total_cmp(b.1)).ok_or("no token is allowed")?.0 as u32;
        start = text.len();
        kv.commit(seq, start);
        if eos.contains(&best) {
            break;
        }
        text.push(best);
    }
    println!("{}", tokenizer.decode(&text[prompt..]));
    Ok(())
}
