//! Every instruction set of this machine against the scalar definition. The cases are in
//! `kernels/cases.rs`, because tests/wasm runs them in Node and in a browser, too.
//! `REQUIRE_ISA=avx2,avx512` fails where one is missing; what ran is printed
//! (`cargo test -- --nocapture`).

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
