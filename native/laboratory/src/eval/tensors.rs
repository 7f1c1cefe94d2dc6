//! Comparison of the weights of two models, tensor by tensor.

use serde::Serialize;
use wrinklefree::format::{LayerWeights, Linear, MtpWeights, Weights};
use wrinklefree::matrix::Matrix;
use wrinklefree_easy::models::weight_sizes::{linears, norms};

/// Two tensors of one place.
#[derive(Debug, Serialize)]
pub struct Compared {
    /// The place: `embedding`, `layer 3, ffn down`.
    pub name: String,
    /// Kinds of both: `ternary`, `f16`…
    pub kinds: [String; 2],
    /// Difference, if there is any.
    pub difference: Option<Difference>,
}

impl Compared {
    /// The place and the difference, if there is any.
    pub fn changed(&self) -> Option<(&str, &Difference)> {
        Some((&self.name, self.difference.as_ref()?))
    }
}

/// Difference of two tensors.
#[derive(Debug, Serialize)]
pub struct Difference {
    /// The difference in words.
    pub what: String,
    /// Largest difference of two values, relative to the largest value; infinite for other shapes.
    pub largest: f32,
}

/// Compares all tensors of two models, in the order of a forward pass. Equal tensors hold the same
/// numbers, in whatever kind.
pub fn compare(a: &Weights, b: &Weights) -> Vec<Compared> {
    let mut all = Vec::new();
    let mut embed = matrix("embedding", &a.embed, &b.embed);
    if a.embed_rotation != b.embed_rotation {
        embed.difference = Some(other("another rotation"));
    }
    all.push(embed);
    for (i, (a, b)) in a.layers.iter().zip(&b.layers).enumerate() {
        layer(&format!("layer {i}"), a, b, &mut all);
    }
    all.push(vector("final_norm".into(), &a.final_norm, &b.final_norm));
    own_linear("head", a.head.as_ref(), b.head.as_ref(), &mut all);
    match (&a.mtp, &b.mtp) {
        (None, None) => {}
        (Some(a), Some(b)) => mtp(a, b, &mut all),
        (a, b) => {
            let kind = |mtp: &Option<_>| if mtp.is_some() { "there" } else { "none" };
            let kinds = [kind(a), kind(b)].map(Into::into);
            let difference = Some(other("only one has a drafting block"));
            all.push(Compared { name: "drafting block".into(), kinds, difference });
        }
    }
    if a.layers.len() != b.layers.len() {
        let kinds = [a, b].map(|w| format!("{} layers", w.layers.len()));
        let difference = Some(other("another number of layers"));
        all.push(Compared { name: "layers".into(), kinds, difference });
    }
    all
}

fn layer(name: &str, a: &LayerWeights, b: &LayerWeights, all: &mut Vec<Compared>) {
    for ((role, a), (_, b)) in linears(a).into_iter().zip(linears(b)) {
        linear(&format!("{name}, {role}"), a, b, all);
    }
    for ((role, a), (_, b)) in norms(a).zip(norms(b)) {
        all.push(vector(format!("{name}, {role}"), a, b));
    }
}

/// Compares the blocks for multi-token prediction.
fn mtp(a: &MtpWeights, b: &MtpWeights, all: &mut Vec<Compared>) {
    let at = |part: &str| format!("drafting block, {part}");
    linear(&at("input"), &a.input, &b.input, all);
    layer("drafting block", &a.layer, &b.layer, all);
    let norms = |w: &MtpWeights| {
        let head = w.head_norm.clone().unwrap_or_default();
        [
            ("embed_norm", w.embed_norm.clone()),
            ("hidden_norm", w.hidden_norm.clone()),
            ("head_norm", head),
        ]
    };
    for ((role, a), (_, b)) in norms(a).into_iter().zip(norms(b)) {
        all.push(vector(at(role), &a, &b));
    }
    let embed = |w: &MtpWeights| w.embed.clone().map(|matrix| Linear::new(matrix, None));
    own_linear(&at("embedding"), embed(a).as_ref(), embed(b).as_ref(), all);
    own_linear(&at("head"), a.head.as_ref(), b.head.as_ref(), all);
}

/// Compares matrices that a model may lack and take others for.
fn own_linear(name: &str, a: Option<&Linear>, b: Option<&Linear>, all: &mut Vec<Compared>) {
    match (a, b) {
        (None, None) => {}
        (Some(a), Some(b)) => linear(name, a, b, all),
        (a, b) => {
            let kind = |own: Option<&Linear>| own.map_or("tied".into(), |own| own.weight.kind());
            let kinds = [kind(a), kind(b)];
            let difference = Some(other("only one has its own"));
            all.push(Compared { name: name.into(), kinds, difference });
        }
    }
}

fn other(what: impl Into<String>) -> Difference {
    Difference { what: what.into(), largest: f32::INFINITY }
}

fn linear(name: &str, a: &Linear, b: &Linear, all: &mut Vec<Compared>) {
    let mut weight = matrix(name, &a.weight, &b.weight);
    if a.rotation != b.rotation {
        weight.difference = Some(other("another rotation"));
    }
    all.push(weight);
    if a.bias.is_some() || b.bias.is_some() {
        let values = |linear: &Linear| linear.bias.clone().unwrap_or_default();
        all.push(vector(format!("{name}, bias"), &values(a), &values(b)));
    }
}

fn vector(name: String, a: &[f32], b: &[f32]) -> Compared {
    let kinds = ["f32".into(), "f32".into()];
    let mut largest = Largest::default();
    let difference = if a.len() == b.len() {
        largest.row(0, a, b);
        largest.difference()
    } else {
        Some(other(format!("{} numbers and {}", a.len(), b.len())))
    };
    Compared { name, kinds, difference }
}

/// Equal bytes are equal weights, in another layout too; other bytes may still be, so rows are compared.
fn matrix(name: &str, a: &Matrix, b: &Matrix) -> Compared {
    let difference = if a == b {
        None
    } else if (a.rows(), a.cols()) != (b.rows(), b.cols()) {
        Some(other(format!("{} × {} and {} × {}", a.rows(), a.cols(), b.rows(), b.cols())))
    } else if let (Matrix::Ternary(a), Matrix::Ternary(b)) = (a, b)
        && b.in_layout(a.layout()).as_ref() == Some(a)
    {
        None
    } else {
        let mut largest = Largest::default();
        let mut rows = (vec![0.0; a.cols()], vec![0.0; b.cols()]);
        for row in 0..a.rows() {
            a.row_f32(row, &mut rows.0);
            b.row_f32(row, &mut rows.1);
            largest.row(row, &rows.0, &rows.1);
        }
        largest.difference()
    };
    Compared { name: name.into(), kinds: [a.kind(), b.kind()], difference }
}

/// The largest difference so far.
#[derive(Default)]
struct Largest {
    value: f32,
    difference: f32,
    first: Option<String>,
}

impl Largest {
    fn row(&mut self, row: usize, a: &[f32], b: &[f32]) {
        self.value = a.iter().fold(self.value, |most, x| most.max(x.abs()));
        for (column, (x, y)) in a.iter().zip(b).enumerate().filter(|(_, (x, y))| x != y) {
            self.difference = self.difference.max((x - y).abs());
            self.first
                .get_or_insert_with(|| format!("row {row}, column {column}: {x:?} and {y:?}"));
        }
    }

    fn difference(self) -> Option<Difference> {
        let largest = self.difference / self.value.max(f32::MIN_POSITIVE);
        self.first.map(|what| Difference { what, largest })
    }
}
