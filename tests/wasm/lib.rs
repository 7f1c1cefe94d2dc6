//! The cases of `compute/tests/kernels.rs` and a benchmark, as a module that a JavaScript engine runs.

#[path = "../../compute/tests/kernels/cases.rs"]
mod cases;
mod speed;

use wrinklefree_compute::kernel::Kernels;

/// Functions that `page.mjs` provides.
mod page {
    #[link(wasm_import_module = "page")]
    unsafe extern "C" {
        /// Prints a line of text.
        pub safe fn say(text: *const u8, length: usize);
        /// Returns a time in milliseconds.
        pub safe fn now() -> f64;
    }
}

fn say(text: &str) {
    page::say(text.as_ptr(), text.len());
}

macro_rules! list {
    ($($name:ident)*) => {
        const CASES: &[(&str, fn())] = &[$((stringify!($name), cases::$name)),*];
    };
}
cases::each_case!(list);

/// Installs a panic hook that prints the panic. Must be called first.
#[unsafe(no_mangle)]
extern "C" fn start() {
    std::panic::set_hook(Box::new(|info| say(&info.to_string())));
}

/// Prints the name of the widest instruction set.
#[unsafe(no_mangle)]
extern "C" fn isa() {
    say(Kernels::best().isa().name());
}

/// Returns the number of cases.
#[unsafe(no_mangle)]
extern "C" fn count() -> usize {
    CASES.len()
}

/// Prints the name of a case.
#[unsafe(no_mangle)]
extern "C" fn name(case: usize) {
    say(CASES[case].0);
}

/// Runs a case; traps if it fails.
#[unsafe(no_mangle)]
extern "C" fn run(case: usize) {
    CASES[case].1();
}

/// Measures all products and prints their speed.
#[unsafe(no_mangle)]
extern "C" fn bench() {
    speed::all();
}
