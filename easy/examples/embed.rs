//! Compares texts by their embeddings.

use wrinklefree_easy::{Engine, Error};

fn main() -> Result<(), Error> {
    let engine = Engine::builder_default().context(256).build()?;
    let question = engine.embed("A fox ran through the forest.")?;
    for text in ["The fox ran in the woods.", "Two plus two is four."] {
        // Embeddings have length 1, so the product is the cosine.
        let other = engine.embed(text)?;
        let cosine: f32 = question.iter().zip(&other).map(|(a, b)| a * b).sum();
        println!("{cosine:.3} {text}");
    }
    Ok(())
}
