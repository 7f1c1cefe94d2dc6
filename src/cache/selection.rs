//! Which pages a row reads: all, or those that matter most to it. A page that is not chosen is never
//! touched.
//!
//! What a row gets depends on its tokens alone, not on how a prompt was cut or who shares its pages:
//! only pages that it sees whole can be left out, and their summaries are of what stands in them now.
//!
//! How much attention a page gets is estimated from mean and variance of its keys. That was better
//! than Quest's bound from least and largest keys (arXiv 2406.10774) at each number of pages
//! (docs/kv-cache.md).

use crate::kernel::{Kernels, PAGE};
use std::fmt;
use std::str::FromStr;

/// Which of the pages that it sees a row reads. But for windows its own, the one before and those
/// behind (of its block) are always read, and so is the first, which much attention goes to whatever
/// it holds (attention sinks, arXiv 2309.17453).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum PageSelection {
    /// All.
    #[default]
    Dense,
    /// Those with the last `window` positions and with the first `sinks`, which may be none. Others
    /// are never read again, and given back by sequences that share nothing (see
    /// [`KvPool::open`](super::KvPool::open)).
    Window {
        /// Positions, the row's own included.
        window: usize,
        /// Positions.
        sinks: usize,
    },
    /// As many as hold this many positions, the best; and at least those that are always read.
    TopK(usize),
    /// Those with at least this share of the attention that the best of them gets.
    Threshold(f32),
    /// A share of all: `min` where few pages stand out, up to `max` where all are alike, by the
    /// entropy of the pages' scores.
    Dynamic {
        /// Share of the pages at least.
        min: f32,
        /// Share of the pages at most.
        max: f32,
    },
}

/// What is no [`PageSelection`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no way to attend: expected dense, window:W or window:W,sinks:S (positions), topk:K \
     (positions), threshold:T (above 0, at most 1), dynamic or dynamic:MIN,MAX (shares of the \
     context, 0 < MIN ≤ MAX ≤ 1)"
)]
pub struct SelectionError(String);

/// The shares of [`PageSelection::Dynamic`] where nothing is said.
const DYNAMIC: (f32, f32) = (0.1, 0.5);
/// Positions that a window keeps of the beginning where nothing is said.
const SINKS: usize = 4;

impl FromStr for PageSelection {
    type Err = SelectionError;

    fn from_str(text: &str) -> Result<Self, SelectionError> {
        Self::parse(text).ok_or_else(|| SelectionError(text.into()))
    }
}

impl fmt::Display for PageSelection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dense => f.write_str("dense"),
            Self::Window { window, sinks } => write!(f, "window:{window},sinks:{sinks}"),
            Self::TopK(positions) => write!(f, "topk:{positions}"),
            Self::Threshold(share) => write!(f, "threshold:{share}"),
            Self::Dynamic { min, max } => write!(f, "dynamic:{min},{max}"),
        }
    }
}

/// What one row sees of one KV head.
pub(crate) struct Sighted<'a> {
    /// Its position.
    pub position: usize,
    /// It sees the keys `0..end`.
    pub end: usize,
    /// Its sequence's pages.
    pub table: &'a [u32],
    /// Width of a head.
    pub head_dim: usize,
    /// Its queries that share the head, `[group][head_dim]`.
    pub queries: &'a [f32],
    /// What scores are multiplied with.
    pub scale: f32,
    /// The head's summaries, `[page][2 · head_dim]`; none where the selection needs none.
    pub summaries: &'a [f32],
}

impl PageSelection {
    fn parse(text: &str) -> Option<Self> {
        let (name, rest) = match text.split_once(':') {
            Some((name, rest)) => (name, Some(rest)),
            None => (text, None),
        };
        let selection = match (name, rest) {
            ("dense", None) => Self::Dense,
            ("window", Some(rest)) => {
                let (window, sinks) = match rest.split_once(',') {
                    Some((window, sinks)) => (window, sinks.strip_prefix("sinks:")?.parse().ok()?),
                    None => (rest, SINKS),
                };
                Self::Window { window: window.parse().ok()?, sinks }
            }
            ("topk", Some(rest)) => Self::TopK(rest.parse().ok()?),
            ("threshold", Some(rest)) => Self::Threshold(rest.parse().ok()?),
            ("dynamic", None) => Self::Dynamic { min: DYNAMIC.0, max: DYNAMIC.1 },
            ("dynamic", Some(rest)) => {
                let (min, max) = rest.split_once(',')?;
                Self::Dynamic { min: min.parse().ok()?, max: max.parse().ok()? }
            }
            _ => return None,
        };
        selection.makes_sense().then_some(selection)
    }

    /// Whether its numbers are in range; NaN is in none.
    fn makes_sense(&self) -> bool {
        match *self {
            Self::Dense => true,
            Self::Window { window, .. } => window > 0,
            Self::TopK(positions) => positions > 0,
            Self::Threshold(share) => share > 0.0 && share <= 1.0,
            Self::Dynamic { min, max } => min > 0.0 && min <= max && max <= 1.0,
        }
    }

    /// Whether it looks at what pages hold.
    pub(crate) fn needs_summaries(&self) -> bool {
        !matches!(self, Self::Dense | Self::Window { .. })
    }

    /// The pages `from..to` of a sequence that no row from `position` on reads.
    pub(super) fn passed(&self, position: usize) -> std::ops::Range<usize> {
        let Self::Window { window, sinks } = *self else { return 0..0 };
        let from = sinks.div_ceil(PAGE);
        from..((position + 1).saturating_sub(window) / PAGE).max(from)
    }

    /// Writes the pages that a row reads to `chosen`, in order of position, and returns how many keys
    /// of them it sees: it sees nothing behind `end`, so the last of them may be seen in part.
    pub(crate) fn choose(&self, k: &Kernels, row: &Sighted<'_>, chosen: &mut Vec<u32>) -> usize {
        let pages = row.end.div_ceil(PAGE);
        chosen.clear();
        if let Self::Dense = self {
            chosen.extend_from_slice(row.table);
            return row.end;
        }
        // Whoever looks back from further on stands where its sight ends.
        let position = row.position.min(row.end - 1);
        let near = (position / PAGE).saturating_sub(1);
        match *self {
            Self::Window { .. } => {
                let passed = self.passed(position);
                chosen.extend(&row.table[..passed.start.min(pages)]);
                chosen.extend(&row.table[passed.end.min(pages)..pages]);
            }
            _ if near <= 1 => chosen.extend(&row.table[..pages]),
            _ => {
                chosen.push(row.table[0]);
                self.best(k, row, 1..near, pages, chosen);
                chosen.extend(&row.table[near..pages]);
            }
        }
        chosen.len() * PAGE - (pages * PAGE - row.end)
    }

    /// Adds those of the `far` ones of `pages` pages that are read, in order of position.
    fn best(
        &self,
        k: &Kernels,
        row: &Sighted<'_>,
        far: std::ops::Range<usize>,
        pages: usize,
        chosen: &mut Vec<u32>,
    ) {
        let width = 2 * row.head_dim;
        let score = |page: u32| {
            let summary = &row.summaries[page as usize * width..][..width];
            (k.estimate)(row.queries, row.scale, summary)
        };
        let table = &row.table[far.clone()];
        let scores: Vec<f32> = table.iter().map(|&page| score(page)).collect();
        let others = pages - far.len();
        let least = match *self {
            Self::TopK(positions) => kth(&scores, positions.div_ceil(PAGE).saturating_sub(others)),
            Self::Threshold(share) => {
                scores.iter().copied().fold(f32::NEG_INFINITY, f32::max) + libm::logf(share)
            }
            Self::Dynamic { min, max } => {
                let share = min + (max - min) * evenness(&scores);
                let wanted = (share * pages as f32).ceil() as usize;
                kth(&scores, wanted.saturating_sub(others))
            }
            Self::Dense | Self::Window { .. } => unreachable!("they do not look at pages"),
        };
        // A page of which nothing is known, because a key is not finite, is read.
        let read =
            table.iter().zip(&scores).filter(|(_, score)| score.is_nan() || **score >= least);
        chosen.extend(read.map(|(page, _)| page));
    }
}

/// The score that `count` reach, or nearly so: more where some are equal.
fn kth(scores: &[f32], count: usize) -> f32 {
    if count == 0 {
        return f32::INFINITY;
    }
    if count > scores.len() {
        return f32::NEG_INFINITY;
    }
    let mut sorted = scores.to_vec();
    *sorted.select_nth_unstable_by(count - 1, |a, b| b.total_cmp(a)).1
}

/// Entropy of the pages' shares of the attention, as a share of the largest that so many can have.
fn evenness(scores: &[f32]) -> f32 {
    let top = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    // With w = exp(score − top): entropy = ln Σw − Σ w (score − top) / Σw.
    let (mut sum, mut mean) = (0.0, 0.0);
    for score in scores {
        let weight = libm::expf(score - top);
        sum += weight;
        mean += weight * (score - top);
    }
    let entropy = libm::logf(sum) - mean / sum;
    let largest = libm::logf(scores.len() as f32);
    if entropy < largest { (entropy / largest).max(0.0) } else { 1.0 }
}
