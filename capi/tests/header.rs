//! The header is what the functions say. `UPDATE=1 cargo test -p wrinklefree-capi` writes it again.

use std::path::Path;

#[test]
fn the_header_matches_the_functions() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).expect("valid");
    let builder = cbindgen::Builder::new().with_config(config).with_src(root.join("src/lib.rs"));
    let mut made = Vec::new();
    builder.generate().expect("the sources are valid").write(&mut made);
    let made = String::from_utf8(made).expect("UTF-8").replace("# Safety", "Requirements:");
    let file = root.join("include/wrinklefree.h");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&file, &made).expect("written");
    }
    let kept = std::fs::read_to_string(&file).expect("there").replace("\r\n", "\n");
    assert!(made == kept, "include/wrinklefree.h is old: run the test with UPDATE=1");
}
