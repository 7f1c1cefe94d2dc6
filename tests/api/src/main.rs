//! Prints the public items of a crate, one a line, from its rustdoc JSON.

fn main() -> anyhow::Result<()> {
    let json = std::env::args().nth(1).ok_or_else(|| anyhow::anyhow!("usage: api FILE.json"))?;
    let mut builder = public_api::Builder::from_rustdoc_json(json);
    builder = builder.omit_blanket_impls(true).omit_auto_trait_impls(true);
    println!("{}", builder.omit_auto_derived_impls(true).build()?);
    Ok(())
}
