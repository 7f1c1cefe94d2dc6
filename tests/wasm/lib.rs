//! The cases of `compute/tests/kernels.rs` and a benchmark, for a JavaScript engine to run.

#[path = "../../compute/tests/kernels/cases.rs"]
mod cases;
mod speed;

use wrinklefree_compute::kernel::Kernels;

/// What the page-side code provides.
mod page {
    #[link(wasm_import_module = "page")]
    unsafe extern "C" {
        /// Takes a line of text.
        pub safe fn say(text: *const u8, length: usize);
        /// Milliseconds since some moment.
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

/// Says what a panic would print. Call it first.
#[unsafe(no_mangle)]
extern "C" fn start() {
    std::panic::set_hook(Box::new(|info| say(&info.to_string())));
}

/// Says the name of the widest set of kernels.
#[unsafe(no_mangle)]
extern "C" fn isa() {
    say(Kernels::best().isa().name());
}

/// How many cases there are.
#[unsafe(no_mangle)]
extern "C" fn count() -> usize {
    CASES.len()
}

/// Says the name of a case.
#[unsafe(no_mangle)]
extern "C" fn name(case: usize) {
    say(CASES[case].0);
}

/// Runs a case: traps where it fails.
#[unsafe(no_mangle)]
extern "C" fn run(case: usize) {
    CASES[case].1();
}

/// Measures all kernels, and says how fast they are.
#[unsafe(no_mangle)]
extern "C" fn bench() {
    speed::all();
}
