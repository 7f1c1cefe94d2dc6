//! Kernels: a table of functions chosen once and passed as a value.

/// An instruction set that kernels exist for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isa {
    /// Plain Rust: the definition that every other set must equal.
    Scalar,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
    /// x86-64 with AVX-512 F, BW, VL, DQ and VNNI.
    Avx512,
}

/// The kernels of one instruction set.
#[derive(Clone, Copy)]
pub struct Kernels {
    isa: Isa,
}

impl Isa {
    /// All, from the definition to the widest.
    pub const ALL: [Self; 3] = [Self::Scalar, Self::Avx2, Self::Avx512];

    /// `scalar`, `avx2` or `avx512`, as `WF_ISA` spells them.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        }
    }

    /// The instruction set of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|i| i.name() == name)
    }
}

impl Kernels {
    /// The kernels of `isa`, if this machine can run them.
    pub fn for_isa(isa: Isa) -> Option<Self> {
        (isa == Isa::Scalar).then_some(Self { isa })
    }

    /// The widest that this machine can run.
    pub fn best() -> Self {
        Self { isa: Isa::Scalar }
    }

    /// Which set this is.
    pub fn isa(&self) -> Isa {
        self.isa
    }
}
