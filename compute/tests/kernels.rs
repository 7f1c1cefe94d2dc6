//! Compares every instruction set of this machine with the scalar definition. The cases are in
//! `kernels/cases.rs`, because tests/wasm runs them in Node and in a browser, too. With
//! `REQUIRE_ISA=avx2,avx512` the tests fail if one is missing. `cargo test -- --nocapture` prints the
//! sets that ran.

#[path = "kernels/cases.rs"]
mod cases;

macro_rules! tests {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                cases::$name();
            }
        )*
    };
}
cases::each_case!(tests);
