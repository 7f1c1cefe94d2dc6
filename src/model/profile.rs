//! Where the time of passes goes.

/// A kind of step of a forward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Token embeddings, and the angles of positions.
    Embed,
    /// Residual sums and norms in front of products, and their quantization.
    Norm,
    /// The products of queries, keys and values.
    Qkv,
    /// Keys and values to their pages.
    Cache,
    /// Attention over pages.
    Attention,
    /// The product behind it.
    Output,
    /// The products of gate and up.
    GateUp,
    /// The activation function, and quantization.
    Activation,
    /// The product behind it.
    Down,
    /// The product of the output head.
    Head,
}

impl Phase {
    /// How many there are.
    pub const COUNT: usize = Self::ALL.len();
    /// All, in the order of a pass.
    pub const ALL: [Self; 10] = [
        Self::Embed,
        Self::Norm,
        Self::Qkv,
        Self::Cache,
        Self::Attention,
        Self::Output,
        Self::GateUp,
        Self::Activation,
        Self::Down,
        Self::Head,
    ];

    /// As tables name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Embed => "embed",
            Self::Norm => "norm",
            Self::Qkv => "qkv",
            Self::Cache => "kv write",
            Self::Attention => "attention",
            Self::Output => "output",
            Self::GateUp => "gate, up",
            Self::Activation => "activation",
            Self::Down => "down",
            Self::Head => "head",
        }
    }
}

/// A stop watch for the phases of passes. It costs a look at the clock for each step of a layer; until
/// it is set going, nothing.
#[derive(Default)]
pub(super) struct Profile {
    /// The time in seconds, from any beginning.
    now: Option<fn() -> f64>,
    last: f64,
    pub seconds: [f64; Phase::COUNT],
}

impl Profile {
    /// One that goes.
    pub fn new(now: fn() -> f64) -> Self {
        Self { now: Some(now), ..Self::default() }
    }

    /// A pass begins.
    pub fn begin(&mut self) {
        self.last = self.now.map_or(0.0, |now| now());
    }

    /// What has passed since the last call was `phase`.
    pub fn lap(&mut self, phase: Phase) {
        if let Some(now) = self.now {
            let now = now();
            self.seconds[phase as usize] += now - self.last;
            self.last = now;
        }
    }
}
