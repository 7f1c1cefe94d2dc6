//! Generates the JavaScript bindings of a WebAssembly module.
//!
//! `bindgen INPUT.wasm NAME OUT` writes `OUT/NAME.js`, `OUT/NAME_bg.wasm` and their types.

use anyhow::{Context, bail};
use wasm_bindgen_cli_support::Bindgen;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [input, name, out] = &arguments[..] else {
        bail!("usage: bindgen INPUT.wasm NAME OUT");
    };
    Bindgen::new()
        .input_path(input)
        .out_name(name)
        .web(true)?
        .typescript(true)
        .remove_name_section(true)
        .remove_producers_section(true)
        .generate(out)
        .with_context(|| format!("cannot generate the bindings of {input}"))
}
