//! Attention of a few rows to many keys, which workers share.

use super::forward::PARTS;
use super::heads::Heads;
use crate::cache::PageSelection;
use crate::kernel::{Attention, merge_part};
use crate::mem::AlignedVec;
use crate::par::{Columns, PoolScope, Scratch};
use std::ops::Range;

impl Heads<'_> {
    /// Returns true if the groups of rows and heads are too few to keep the workers equally busy, and the
    /// keys many enough to be cut. The result is the same, bit for bit.
    pub fn need_parts(&self, workers: usize) -> bool {
        let groups = (self.batch.bounds.len() - 1) * self.spec.kv_heads;
        workers > 1
            && groups < workers * PARTS
            && self.parts() > 1
            && *self.tables.selection() == PageSelection::Dense
    }

    /// Number of parts of the keys that some row sees.
    fn parts(&self) -> usize {
        self.batch.ends.iter().max().map_or(0, |end| end.div_ceil(Attention::PART))
    }

    /// Width of one KV head's part in a row.
    fn part_width(&self) -> usize {
        self.group() * (self.spec.head_dim + 2)
    }
}

/// Attention to each part of the keys.
pub(super) struct KeyParts<'a> {
    /// `[parts][rows][kv_heads]` of [`Attention::part_width`].
    pub all: &'a mut AlignedVec<f32>,
    /// Bounds of the groups of rows in `all`.
    pub bounds: &'a mut Vec<usize>,
}

impl KeyParts<'_> {
    /// Computes the attention of all groups of rows to all parts. `pages` are those of all heads.
    pub fn attend(&mut self, scope: &mut PoolScope<'_>, heads: &Heads<'_>, pages: &[u8]) {
        let (of_rows, rows) = (&heads.batch.bounds, heads.batch.rows.len());
        let (parts, groups, width) = (heads.parts(), of_rows.len() - 1, heads.part_width());
        let kv_heads = heads.spec.kv_heads;
        let (bytes, row) = (pages.len() / kv_heads, kv_heads * width);
        self.bounds.clear();
        let first = |part: usize| of_rows[..groups].iter().map(move |bound| part * rows + bound);
        self.bounds.extend((0..parts).flat_map(first));
        self.bounds.push(parts * rows);
        self.all.grow(parts * rows * row);
        let out = &mut self.all[..parts * rows * row];
        scope.tiles(
            out,
            row,
            self.bounds,
            (0..=row).step_by(width),
            |(i, head), mut out, scratch| {
                let rows = of_rows[i % groups]..of_rows[i % groups + 1];
                let pages = &pages[head * bytes..][..bytes];
                heads.attend_part(rows, (head, i / groups), pages, &mut out, scratch);
            },
        );
    }

    /// Merges the parts of some rows and one KV head into `out`, `[rows][group · head_dim]`.
    pub fn merge(
        &self,
        heads: &Heads<'_>,
        rows: Range<usize>,
        head: usize,
        out: &mut Columns<'_>,
        scratch: &mut Scratch,
    ) {
        let (width, all_rows) = (heads.part_width(), heads.batch.rows.len());
        let place = |part: usize, row: usize| {
            let from = (part * all_rows + row) * heads.spec.kv_heads + head;
            &self.all[from * width..][..width]
        };
        scratch.parts.grow(width);
        let all = &mut scratch.parts[..width];
        for (i, row) in rows.enumerate() {
            all.copy_from_slice(place(0, row));
            for part in 1..heads.batch.ends[row].div_ceil(Attention::PART) {
                merge_part(all, place(part, row), heads.group());
            }
            let out = out.row(i);
            out.copy_from_slice(&all[..out.len()]);
        }
    }
}
