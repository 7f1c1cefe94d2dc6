//! Page selection (attention sparsity): a row reads all pages, or only those that matter most to it.
//!
//! The result of a row depends on its tokens alone, not on the chunks of a prompt or on shared pages:
//! only pages that are visible as a whole can be left out, and their summaries are up to date.
//!
//! The attention that a page gets is estimated from mean and variance of its keys. This was better than
//! Quest's bound from the smallest and largest keys (arXiv 2406.10774) at every number of pages
//! (`docs/kv-cache.md`).

use crate::kernel::{Kernels, PAGE};
use std::fmt;
use std::str::FromStr;

/// Rule for the pages that a row reads, of those that its attention mask shows.
///
/// Except with `Window`, a row always reads its own page, the one before it and those after it (of its
/// block). It also reads the first page, which gets much attention whatever it holds (attention sinks,
/// arXiv 2309.17453).
///
/// ```
/// use wrinklefree::cache::PageSelection;
/// let selection: PageSelection = "window:512,sinks:4".parse()?;
/// assert_eq!(selection, PageSelection::Window { window: 512, sinks: 4 });
/// assert_eq!(PageSelection::TopK(1024).to_string(), "topk:1024");
/// # Ok::<(), wrinklefree::cache::SelectionError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum PageSelection {
    /// All pages.
    #[default]
    Dense,
    /// A sliding window: the pages with the last `window` positions and with the first `sinks`
    /// positions. The others are never read again; a sequence that shares nothing frees them (see
    /// [`KvPool::open`](super::KvPool::open)).
    Window {
        /// Number of last positions, the row's own included.
        window: usize,
        /// Number of first positions; may be 0.
        sinks: usize,
    },
    /// The best pages, as many as hold this number of positions; at least those that are always read.
    TopK(usize),
    /// Pages with at least this share of the attention that the best page gets.
    Threshold(f32),
    /// A share of all pages that follows the entropy of their scores: `min` where few pages stand out,
    /// up to `max` where all are alike.
    Dynamic {
        /// Smallest share of the pages.
        min: f32,
        /// Largest share of the pages.
        max: f32,
    },
}

/// Error: a text that is no [`PageSelection`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a page selection: expected dense, window:W or window:W,sinks:S (positions), topk:K \
     (positions), threshold:T (above 0, at most 1), dynamic or dynamic:MIN,MAX (shares of the \
     context, 0 < MIN ≤ MAX ≤ 1)"
)]
pub struct SelectionError(String);

/// Default shares of [`PageSelection::Dynamic`].
const DYNAMIC: (f32, f32) = (0.1, 0.5);
/// Default number of first positions that a window keeps.
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

/// A row of a pass at one KV head: its queries, and the pages that it can read.
pub(crate) struct QueryContext<'a> {
    /// Position of the row.
    pub position: usize,
    /// End of the keys `0..end` that are visible to it.
    pub end: usize,
    /// Page table of its sequence.
    pub table: &'a [u32],
    /// Width of a head.
    pub head_dim: usize,
    /// Queries of the row that share the KV head, `[group][head_dim]`.
    pub queries: &'a [f32],
    /// Factor of attention scores.
    pub scale: f32,
    /// Summaries of the KV head, `[page][2 · head_dim]`; empty unless the selection needs them.
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
        selection.is_valid().then_some(selection)
    }

    /// Returns true if all numbers are in range; NaN is out of range.
    fn is_valid(&self) -> bool {
        match *self {
            Self::Dense => true,
            Self::Window { window, .. } => window > 0,
            Self::TopK(positions) => positions > 0,
            Self::Threshold(share) => share > 0.0 && share <= 1.0,
            Self::Dynamic { min, max } => min > 0.0 && min <= max && max <= 1.0,
        }
    }

    /// Returns true if the rule needs summaries of the pages.
    pub(crate) fn needs_summaries(&self) -> bool {
        !matches!(self, Self::Dense | Self::Window { .. })
    }

    /// Returns the range of pages that no row from `position` on reads: those between the sinks and the
    /// window.
    pub(super) fn pages_outside_window(&self, position: usize) -> std::ops::Range<usize> {
        let Self::Window { window, sinks } = *self else { return 0..0 };
        let from = sinks.div_ceil(PAGE);
        from..((position + 1).saturating_sub(window) / PAGE).max(from)
    }

    /// Writes the pages that a row reads to `chosen`, in order of position. Returns the number of keys
    /// in them that are visible to the row: of the last page, only those before `end`.
    pub(crate) fn choose(
        &self,
        kernels: &Kernels,
        row: &QueryContext<'_>,
        chosen: &mut Vec<u32>,
    ) -> usize {
        let pages = row.end.div_ceil(PAGE);
        chosen.clear();
        if let Self::Dense = self {
            chosen.extend_from_slice(row.table);
            return row.end;
        }
        // A row whose mask ends before its own position is treated as the last visible one.
        let position = row.position.min(row.end - 1);
        let near = (position / PAGE).saturating_sub(1);
        match *self {
            Self::Window { .. } => {
                let skipped = self.pages_outside_window(position);
                chosen.extend(&row.table[..skipped.start.min(pages)]);
                chosen.extend(&row.table[skipped.end.min(pages)..pages]);
            }
            _ if near <= 1 => chosen.extend(&row.table[..pages]),
            _ => {
                chosen.push(row.table[0]);
                self.best(kernels, row, 1..near, pages, chosen);
                chosen.extend(&row.table[near..pages]);
            }
        }
        chosen.len() * PAGE - (pages * PAGE - row.end)
    }

    /// Appends those of the pages `far` that are read, in order of position; `pages` is the number of
    /// visible pages.
    fn best(
        &self,
        kernels: &Kernels,
        row: &QueryContext<'_>,
        far: std::ops::Range<usize>,
        pages: usize,
        chosen: &mut Vec<u32>,
    ) {
        let width = 2 * row.head_dim;
        let score = |page: u32| {
            let summary = &row.summaries[page as usize * width..][..width];
            (kernels.estimate)(row.queries, row.scale, summary)
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
            Self::Dense | Self::Window { .. } => unreachable!("these rules have no scores"),
        };
        // A score is NaN if a key is not finite; such a page is read.
        let read =
            table.iter().zip(&scores).filter(|(_, score)| score.is_nan() || **score >= least);
        chosen.extend(read.map(|(page, _)| page));
    }
}

/// Returns the `count`-th highest score; more pages reach it where scores are equal.
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

/// Returns the entropy of the pages' shares of the attention, relative to the largest possible one.
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
