//! Multiplies a matrix several times, for a program that counts the instructions.
//!
//!     count two-bit|int8 ISA ROWS COLS BATCH TIMES

use wrinklefree_compute::kernel::{Isa, Kernels, Quantized};
use wrinklefree_compute::matrix::{Int8Matrix, Scales, TernaryMatrix};
use wrinklefree_compute::par::{Columns, Scratch};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, isa, numbers @ ..] = &arguments[..] else { panic!("count WHAT ISA NUMBERS…") };
    let numbers: Vec<usize> = numbers.iter().map(|n| n.parse().expect("a number")).collect();
    let [rows, cols, batch, times] = numbers[..] else { panic!("ROWS COLS BATCH TIMES") };
    let isa = Isa::parse(isa).expect("the name of an instruction set");
    let kernels = Kernels::for_isa(isa).expect("the machine has the instruction set");

    let stride = Quantized::stride_of(cols);
    let (values, sums, steps) = (vec![1; batch * stride], vec![0; batch], vec![1.0; batch]);
    let x = Quantized { values: &values, stride, sums: &sums, steps: &steps, planes: 1, groups: None };
    let (mut y, mut scratch) = (vec![0.0; batch * rows], Scratch::default());
    let (y, panels) = (&mut Columns::whole(&mut y, rows), 0..rows.div_ceil(16));
    if what == "int8" {
        let w = Int8Matrix::quantize_rows(rows, cols, |_, row| row.fill(1.0));
        let w = w.expect("a valid matrix");
        (0..times).for_each(|_| (kernels.int8)(w.view(), panels.clone(), &x, y, &mut scratch));
    } else {
        let w = TernaryMatrix::pack(rows, cols, Scales::Tensor(1.0), |_, codes| codes.fill(2));
        let w = w.expect("a valid matrix");
        (0..times).for_each(|_| kernels.ternary(&w, panels.clone(), &x, y, &mut scratch));
    }
}
