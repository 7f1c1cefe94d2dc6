//! Vector operations as a trait: a kernel written once runs on every instruction set.
//!
//! A value of a type that implements [`Simd`] proves that the CPU has the instruction set. Functions over
//! it are `#[inline(always)]`, and each set calls them from a function with its target features
//! ([`compiled`]). They hold no closures, which would not get the features.

use bytemuck::Pod;

/// Vector operations of an instruction set.
pub trait Simd: Copy {
    /// A vector of [`LANES`](Self::LANES) floats.
    type Vector: Copy;
    /// A vector of as many 32-bit integers.
    type Ints: Copy;
    /// A float of each of a panel's 16 rows.
    type Panel: Copy + AsRef<[Self::Vector]> + AsMut<[Self::Vector]>;
    /// A 32-bit integer of each of a panel's 16 rows.
    type IntPanel: Copy + AsRef<[Self::Ints]> + AsMut<[Self::Ints]>;
    /// An integer of each of a panel's 16 rows, exact to at least 53 bits.
    type WidePanel: Copy;
    /// The same number of floats in memory.
    type Array: Pod;
    /// The same number of 16-bit codes in memory.
    type Codes: Pod;
    /// The same number of bytes in memory.
    type Int8s: Pod;
    /// Four times as many bytes in memory.
    type Bytes: Pod;
    /// Number of floats in a vector: a power of two, at most 16.
    const LANES: usize;
    /// Number of independent sums or maxima that hide the latency of an operation, at most 4. It decides
    /// the order of sums, so results depend on it.
    const CHAINS: usize;
    /// Number of vector registers.
    const REGISTERS: usize;

    /// Cuts a slice into arrays and leaves out a shorter rest.
    fn arrays(x: &[f32]) -> &[Self::Array];
    /// As [`arrays`](Self::arrays), to write.
    fn arrays_mut(x: &mut [f32]) -> &mut [Self::Array];
    /// Cuts a slice into vectors of bytes and leaves out a shorter rest.
    fn bytes_mut(x: &mut [i8]) -> &mut [Self::Bytes];
    /// Loads a vector.
    fn load(self, x: &Self::Array) -> Self::Vector;
    /// Loads numbers of [`KvType::F16`](super::KvType::F16).
    fn load_f16(self, x: &Self::Codes) -> Self::Vector;
    /// Loads numbers of [`KvType::Bf16`](super::KvType::Bf16).
    fn load_bf16(self, x: &Self::Codes) -> Self::Vector;
    /// Stores a vector.
    fn store(self, x: &mut Self::Array, v: Self::Vector);
    /// Returns a vector of equal numbers.
    fn splat(self, x: f32) -> Self::Vector;
    /// Returns a + b.
    fn add(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// Returns a − b.
    fn sub(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// Returns a · b.
    fn mul(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// Returns a / b.
    fn div(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// Returns a · b + c, rounded once where the set has such an instruction.
    fn add_product(self, a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;
    /// Returns max(x, 0); NaN stays.
    fn rectified(self, x: Self::Vector) -> Self::Vector;
    /// Returns max(|x|, top) for a `top` of numbers that are not negative; `top` where x is NaN.
    fn larger_magnitude(self, x: Self::Vector, top: Self::Vector) -> Self::Vector;
    /// Returns eˣ.
    fn exp(self, x: Self::Vector) -> Self::Vector;
    /// Returns the sum of a vector's numbers.
    fn sum(self, v: Self::Vector) -> f32;
    /// Returns the largest of a vector's numbers.
    fn max(self, v: Self::Vector) -> f32;
    /// Returns the Walsh–Hadamard transform of a vector's numbers, not normalized.
    fn hadamard(self, v: Self::Vector) -> Self::Vector;

    /// Returns a vector of equal integers.
    fn splat_int(self, x: i32) -> Self::Ints;
    /// Rounds half to even to integers, for numbers within ±2²²; NaN becomes `nan`.
    fn round(self, x: Self::Vector, nan: i32) -> Self::Ints;
    /// Returns a + b, wrapping.
    fn add_ints(self, a: Self::Ints, b: Self::Ints) -> Self::Ints;
    /// Returns a − b, wrapping.
    fn sub_ints(self, a: Self::Ints, b: Self::Ints) -> Self::Ints;
    /// Returns 256 · x, wrapping.
    fn left8(self, x: Self::Ints) -> Self::Ints;
    /// Returns ⌊x / 256⌋.
    fn right8(self, x: Self::Ints) -> Self::Ints;
    /// Converts integers to floats.
    fn floats(self, x: Self::Ints) -> Self::Vector;
    /// Converts bytes to integers.
    fn ints(self, x: &Self::Int8s) -> Self::Ints;
    /// Returns the sum of a vector's integers.
    fn sum_ints(self, x: Self::Ints) -> i32;
    /// Stores integers between −128 and 127 as bytes.
    fn narrow(self, x: [Self::Ints; 4], out: &mut Self::Bytes);

    /// Repeats a vector for all rows of a panel.
    fn panel(self, v: Self::Vector) -> Self::Panel;
    /// As [`panel`](Self::panel).
    fn int_panel(self, v: Self::Ints) -> Self::IntPanel;
    /// Returns zeros.
    fn wide_zero(self) -> Self::WidePanel;
    /// Returns a + b.
    fn wide_add(self, a: Self::WidePanel, b: Self::IntPanel) -> Self::WidePanel;
    /// Returns 256 · high + low.
    fn wide_join(self, high: Self::WidePanel, low: Self::WidePanel) -> Self::WidePanel;
    /// Returns a − b.
    fn wide_sub(self, a: Self::WidePanel, b: i64) -> Self::WidePanel;
    /// Converts to floats, rounded once.
    fn wide_round(self, a: Self::WidePanel) -> Self::Panel;

    /// Prefetches the cache line `ahead` bytes past `here`, if the set can; harmless past the end.
    fn prefetch(self, here: *const u8, ahead: usize);

    /// Runs a task in a function of its own with the set's features. It keeps functions small where many
    /// sizes of tiles meet.
    fn outlined<T: Task>(self, task: T);

    /// Returns x · σ(x).
    #[inline(always)]
    fn silu(self, x: Self::Vector) -> Self::Vector {
        let negative = self.sub(self.splat(0.0), x);
        self.div(x, self.add(self.splat(1.0), self.exp(negative)))
    }
}

/// Aligns the stack of the calling function to cache lines. The compiler does so only for variables in
/// memory, but not for vectors that it spills: those may then cross lines, which takes several times as
/// long.
#[inline(always)]
pub fn align_stack() {
    #[cfg(target_arch = "x86_64")]
    {
        let line = std::mem::MaybeUninit::<std::arch::x86_64::__m512i>::uninit();
        std::hint::black_box(&line);
    }
}

/// Work for [`Simd::outlined`].
pub trait Task {
    /// Does the work; `#[inline(always)]`, so that it gets the features.
    fn run(self);
}

/// Implements [`Simd`] for a token by the functions of a module. `unsafe` stands in front of calls of
/// functions with target features, which the token's constructor vouches for.
macro_rules! simd {
    ($token:ty $(, $features:literal)?, [$vector:ty, $ints:ty; $lanes:literal], wide: $wide:ty, chains: $chains:literal,
     registers: $registers:literal, $ops:path $(, $unsafe:tt)?) => {
        impl $crate::kernel::simd::Simd for $token {
            type Vector = $vector;
            type Ints = $ints;
            type Panel = [$vector; $crate::ternary::PANEL_ROWS / $lanes];
            type IntPanel = [$ints; $crate::ternary::PANEL_ROWS / $lanes];
            type WidePanel = $wide;
            type Array = [f32; $lanes];
            type Codes = [u16; $lanes];
            type Int8s = [i8; $lanes];
            type Bytes = [i8; 4 * $lanes];
            const LANES: usize = $lanes;
            const CHAINS: usize = $chains;
            const REGISTERS: usize = $registers;

            #[inline(always)]
            fn arrays(x: &[f32]) -> &[Self::Array] {
                x.as_chunks().0
            }

            #[inline(always)]
            fn arrays_mut(x: &mut [f32]) -> &mut [Self::Array] {
                x.as_chunks_mut().0
            }

            #[inline(always)]
            fn bytes_mut(x: &mut [i8]) -> &mut [Self::Bytes] {
                x.as_chunks_mut().0
            }

            #[inline(always)]
            fn panel(self, v: $vector) -> Self::Panel {
                [v; $crate::ternary::PANEL_ROWS / $lanes]
            }

            #[inline(always)]
            fn int_panel(self, v: $ints) -> Self::IntPanel {
                [v; $crate::ternary::PANEL_ROWS / $lanes]
            }

            #[inline(always)]
            fn outlined<T: $crate::kernel::simd::Task>(self, task: T) {
                #[inline(never)]
                $(#[target_feature(enable = $features)])?
                fn run<T: $crate::kernel::simd::Task>(task: T) {
                    task.run();
                }
                // SAFETY: a token is only made where the CPU has the target features.
                $($unsafe)? { run(task) }
            }

            $crate::kernel::simd::simd!(@each [$ops] [$($unsafe)?] {
                load(x: &Self::Array) -> Self::Vector;
                load_f16(x: &Self::Codes) -> Self::Vector;
                load_bf16(x: &Self::Codes) -> Self::Vector;
                store(x: &mut Self::Array, v: Self::Vector) -> ();
                splat(x: f32) -> Self::Vector;
                add(a: Self::Vector, b: Self::Vector) -> Self::Vector;
                sub(a: Self::Vector, b: Self::Vector) -> Self::Vector;
                mul(a: Self::Vector, b: Self::Vector) -> Self::Vector;
                div(a: Self::Vector, b: Self::Vector) -> Self::Vector;
                add_product(a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;
                rectified(x: Self::Vector) -> Self::Vector;
                larger_magnitude(x: Self::Vector, top: Self::Vector) -> Self::Vector;
                exp(x: Self::Vector) -> Self::Vector;
                sum(v: Self::Vector) -> f32;
                max(v: Self::Vector) -> f32;
                hadamard(v: Self::Vector) -> Self::Vector;
                splat_int(x: i32) -> Self::Ints;
                round(x: Self::Vector, nan: i32) -> Self::Ints;
                add_ints(a: Self::Ints, b: Self::Ints) -> Self::Ints;
                sub_ints(a: Self::Ints, b: Self::Ints) -> Self::Ints;
                left8(x: Self::Ints) -> Self::Ints;
                right8(x: Self::Ints) -> Self::Ints;
                sum_ints(x: Self::Ints) -> i32;
                narrow(x: [Self::Ints; 4], out: &mut Self::Bytes) -> ();
                floats(x: $ints) -> $vector;
                ints(x: &Self::Int8s) -> $ints;
                wide_zero() -> $wide;
                wide_add(a: $wide, b: Self::IntPanel) -> $wide;
                wide_join(high: $wide, low: $wide) -> $wide;
                wide_sub(a: $wide, b: i64) -> $wide;
                wide_round(a: $wide) -> Self::Panel;
                prefetch(here: *const u8, ahead: usize) -> ();
            });
        }
    };
    (@each [$ops:path] $unsafe:tt { $($name:ident($($arg:ident: $of:ty),*) -> $out:ty;)* }) => {
        $($crate::kernel::simd::simd!(@one [$ops] $unsafe $name($($arg: $of),*) -> $out);)*
    };
    (@one [$ops:path] [$($unsafe:tt)?] $name:ident($($arg:ident: $of:ty),*) -> $out:ty) => {
        #[inline(always)]
        fn $name(self, $($arg: $of),*) -> $out {
            use $ops as ops;
            // SAFETY: a token is only made where the CPU has the target features.
            $($unsafe)? { ops::$name($($arg),*) }
        }
    };
}
pub(super) use simd;

/// Defines the functions of a module for [`simd`], inlined and with the features of an instruction set.
/// Those of [`Simd`] are documented there.
macro_rules! lanes {
    ($($features:literal:)? $($(#[$doc:meta])* fn $name:ident $args:tt $(-> $out:ty)? $body:block)*) => {
        lanes!(@each [$(#[target_feature(enable = $features)])?]
            $({ $(#[$doc])* fn $name $args $(-> $out)? $body })*);
    };
    (@each $features:tt $({ $($function:tt)* })*) => {
        $(lanes!(@one $features $($function)*);)*
    };
    (@one [$($features:tt)*] $(#[$doc:meta])* fn $name:ident $args:tt $(-> $out:ty)? $body:block) => {
        $(#[$doc])*
        #[inline]
        $($features)*
        pub fn $name $args $(-> $out)? $body
    };
}
pub(super) use lanes;

/// Calls a function with the target features of a token.
#[cfg(target_arch = "x86_64")]
macro_rules! by_token {
    ($token:expr, $($call:tt)*) => {{
        let _token = $token;
        // SAFETY: a token is only made where the CPU has the target features.
        unsafe { $($call)* }
    }};
}
#[cfg(target_arch = "x86_64")]
pub(super) use by_token;

/// Builds a function pointer to a function that needs CPU features.
macro_rules! detected {
    ($function:path, $($arg:ident),*) => {
        |$($arg),*| detected!(@call [unsafe] $function, $($arg),*)
    };
    (@call [$($unsafe:tt)?] $function:path, $($arg:ident),*) => {
        // SAFETY: the table is only reached through `Kernels::for_isa`, which has checked that the CPU
        // has the features.
        $($unsafe)? { $function($($arg),*) }
    };
}
pub(super) use detected;

/// Builds a function pointer to a function of the common source, compiled with the features of an
/// instruction set. A `token` is made where the features are.
macro_rules! compiled {
    ($features:literal, $unsafe:tt, $function:path,
     ($($arg:ident: $of:ty),*) -> $out:ty $(, $token:expr)?) => {
        |$($arg),*| {
            #[target_feature(enable = $features)]
            fn run($($arg: $of),*) -> $out {
                $function($($token,)? $($arg),*)
            }
            $crate::kernel::simd::detected!(@call $unsafe run, $($arg),*)
        }
    };
}
pub(super) use compiled;

/// Builds the table of an instruction set: the kernels over rows from the common source, and the set's own
/// ones.
macro_rules! kernels {
    ($features:literal, $unsafe:tt, $token:expr, { $($own:tt)* }) => {{
        use $crate::kernel::delta::{self, DeltaRows};
        use $crate::kernel::{exp, finite, hadamard, rows, simd::compiled};

        $crate::kernel::Kernels {
            quantize8: compiled!($features, $unsafe, rows::quantize8,
                (x: &[f32], values: &mut [i8]) -> (i32, f32), $token),
            quantize16: compiled!($features, $unsafe, rows::quantize16,
                (x: &[f32], high: &mut [i8], low: &mut [i8]) -> ([i32; 2], f32), $token),
            rms_norm: compiled!($features, $unsafe, rows::rms_norm,
                (x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) -> (), $token),
            rope: compiled!($features, $unsafe, rows::rope,
                (head: &mut [f32], cos: &[f32], sin: &[f32]) -> (), $token),
            silu_mul: compiled!($features, $unsafe, rows::silu_mul,
                (gate: &mut [f32], up: &[f32]) -> (), $token),
            relu2_mul: compiled!($features, $unsafe, rows::relu2_mul,
                (gate: &mut [f32], up: &[f32]) -> (), $token),
            sigmoid_mul: compiled!($features, $unsafe, rows::sigmoid_mul,
                (gate: &mut [f32], x: &[f32]) -> (), $token),
            add: compiled!($features, $unsafe, rows::add,
                (x: &mut [f32], y: &[f32]) -> (), $token),
            hadamard: compiled!($features, $unsafe, hadamard::hadamard,
                (x: &mut [f32], block: usize) -> (), $token),
            delta: compiled!($features, $unsafe, delta::delta,
                (a: &DeltaRows<'_>, state: &mut [f32], out: &mut $crate::par::Columns<'_>, scratch: &mut $crate::par::Scratch)
                    -> (), $token),
            within: compiled!($features, $unsafe, finite::within, (x: &[f32], bound: f32) -> bool),
            sum_exp: compiled!($features, $unsafe, exp::sum_exp, (logits: &[f32], max: f32) -> f64),
            weigh: compiled!($features, $unsafe, exp::weigh,
                (logits: &mut [f32], max: f32, scale: f32) -> ()),
            $($own)*
        }
    }};
}
pub(super) use kernels;
