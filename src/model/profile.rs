//! Measures the time of a pass's phases.

/// A phase of a forward pass, summed over its layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Looks up token embeddings, and computes RoPE's angles.
    Embed,
    /// Adds residuals, normalizes and quantizes the inputs of products.
    Norm,
    /// Rotates inputs for matrices in a rotated basis, and quantizes them.
    Rotation,
    /// Products of the mixer's inputs: q, k and v, and those of linear attention.
    Qkv,
    /// Writes keys and values to their pages.
    Cache,
    /// Attention over pages.
    Attention,
    /// Linear attention: convolution and recurrent states.
    States,
    /// Product of the output projection.
    Output,
    /// Products of gate and up.
    GateUp,
    /// Activation function, sub-norm and quantization.
    Activation,
    /// Product of the down projection.
    Down,
    /// Product of the output head.
    Head,
}

impl Phase {
    /// Number of phases.
    pub const COUNT: usize = Self::ALL.len();
    /// All phases, in the order of a pass.
    pub const ALL: [Self; 12] = [
        Self::Embed,
        Self::Norm,
        Self::Rotation,
        Self::Qkv,
        Self::Cache,
        Self::Attention,
        Self::States,
        Self::Output,
        Self::GateUp,
        Self::Activation,
        Self::Down,
        Self::Head,
    ];

    /// Name of the phase in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Embed => "embed",
            Self::Norm => "norm",
            Self::Rotation => "rotation",
            Self::Qkv => "qkv",
            Self::Cache => "kv write",
            Self::Attention => "attention",
            Self::States => "states",
            Self::Output => "output",
            Self::GateUp => "gate, up",
            Self::Activation => "activation",
            Self::Down => "down",
            Self::Head => "head",
        }
    }
}

/// A stopwatch for the phases of passes. It reads the clock once per step of a layer, and not at all
/// until it is started.
#[derive(Default)]
pub(super) struct Profile {
    /// Returns the time in seconds, from any origin.
    now: Option<fn() -> f64>,
    last: f64,
    pub seconds: [f64; Phase::COUNT],
}

impl Profile {
    /// A running stopwatch.
    pub fn new(now: fn() -> f64) -> Self {
        Self { now: Some(now), ..Self::default() }
    }

    /// Starts a pass.
    pub fn begin(&mut self) {
        self.last = self.now.map_or(0.0, |now| now());
    }

    /// Adds the time since the last call to `phase`.
    pub fn lap(&mut self, phase: Phase) {
        if let Some(now) = self.now {
            let now = now();
            self.seconds[phase as usize] += now - self.last;
            self.last = now;
        }
    }
}
