//! Vector operations as a trait: a kernel written once runs on every instruction set.
//!
//! A value of a type that implements [`Simd`] proves that the CPU has the instruction set. Functions over
//! it are `#[inline(always)]`, and each set calls them from a function with its target features. They
//! hold no closures, which would not get the features.

/// Vector operations of an instruction set.
pub trait Simd: Copy {
    /// A vector of [`LANES`](Self::LANES) floats.
    type Vector: Copy;
    /// The same number of floats in memory.
    type Array;
    /// Number of floats in a vector: a power of two, at most 16.
    const LANES: usize;

    /// Cuts a slice into arrays and leaves out a shorter rest.
    fn arrays(x: &[f32]) -> &[Self::Array];
    /// As [`arrays`](Self::arrays), to write.
    fn arrays_mut(x: &mut [f32]) -> &mut [Self::Array];
    /// Loads a vector.
    fn load(self, x: &Self::Array) -> Self::Vector;
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
    /// Returns eˣ.
    fn exp(self, x: Self::Vector) -> Self::Vector;
    /// Returns the sum of a vector's numbers.
    fn sum(self, v: Self::Vector) -> f32;
    /// Returns the Walsh–Hadamard transform of a vector's numbers, not normalized.
    fn hadamard(self, v: Self::Vector) -> Self::Vector;

    /// Returns x · σ(x).
    #[inline(always)]
    fn silu(self, x: Self::Vector) -> Self::Vector {
        let negative = self.sub(self.splat(0.0), x);
        self.div(x, self.add(self.splat(1.0), self.exp(negative)))
    }
}

/// Implements [`Simd`] for a token by the functions of a module. `unsafe` stands in front of calls of
/// functions with target features, which the token's constructor vouches for.
macro_rules! simd {
    ($token:ty, $lanes:literal, $vector:ty, $ops:path $(, $unsafe:tt)?) => {
        impl $crate::kernel::simd::Simd for $token {
            type Vector = $vector;
            type Array = [f32; $lanes];
            const LANES: usize = $lanes;

            #[inline(always)]
            fn arrays(x: &[f32]) -> &[Self::Array] {
                x.as_chunks().0
            }

            #[inline(always)]
            fn arrays_mut(x: &mut [f32]) -> &mut [Self::Array] {
                x.as_chunks_mut().0
            }

            simd!(@each [$ops] [$($unsafe)?] {
                load(x: &Self::Array) -> $vector;
                store(x: &mut Self::Array, v: $vector) -> ();
                splat(x: f32) -> $vector;
                add(a: $vector, b: $vector) -> $vector;
                sub(a: $vector, b: $vector) -> $vector;
                mul(a: $vector, b: $vector) -> $vector;
                div(a: $vector, b: $vector) -> $vector;
                add_product(a: $vector, b: $vector, c: $vector) -> $vector;
                exp(x: $vector) -> $vector;
                sum(v: $vector) -> f32;
                hadamard(v: $vector) -> $vector;
            });
        }
    };
    (@each [$ops:path] $unsafe:tt { $($name:ident($($arg:ident: $of:ty),*) -> $out:ty;)* }) => {
        $(simd!(@one [$ops] $unsafe $name($($arg: $of),*) -> $out);)*
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
