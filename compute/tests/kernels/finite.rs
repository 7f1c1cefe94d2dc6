//! Numbers that are not finite reach the output of every kernel.

use super::attention::attend;
use super::{Noise, sets};
use wrinklefree_compute::kernel::{Kernels, KvType, PAGE, PageLayout};
use wrinklefree_compute::mem::AlignedVec;

const BROKEN: [f32; 3] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY];

pub fn bounds_hold_for_every_number() {
    let mut noise = Noise(0x5a5a_1234_9876_abcd);
    for k in sets("within") {
        for n in [0, 1, 3, 4, 15, 16, 17, 63, 64, 100] {
            let x = noise.floats(n);
            assert!((k.within)(&x, f32::INFINITY) && (k.within)(&x, 1e17), "{:?} {n}", k.isa());
            for (at, broken) in (0..n).zip(BROKEN.iter().chain(&[1e17, -2e17, -1e17]).cycle()) {
                let mut x = x.clone();
                x[at] = *broken;
                assert!(!(k.within)(&x, 1e17), "{:?} {broken} at {at} of {n}", k.isa());
                assert_eq!((k.within)(&x, f32::INFINITY), broken.is_finite(), "{:?}", k.isa());
            }
        }
    }
}

pub fn norms_and_gates_pass_on_what_is_not_finite() {
    let mut noise = Noise(0x5a5a_4321_6789_dcba);
    for k in Kernels::all().chain(sets("norms and gates")) {
        for n in [1, 5, 16, 37, 64, 100] {
            let (x, weight) = (noise.floats(n), vec![1.0; n]);
            // The square of the last one is not finite.
            for (at, broken) in (0..n).zip(BROKEN.iter().chain(&[1e20]).cycle()) {
                let (mut x, mut out) = (x.clone(), vec![0.0; n]);
                x[at] = *broken;
                (k.rms_norm)(&x, &weight, 1e-5, &mut out);
                assert!(out.iter().all(|x| x.is_nan()), "{:?} {broken} {n}: {out:?}", k.isa());
            }
            for at in 0..n {
                let mut gate = x.clone();
                gate[at] = if at % 2 == 0 { f32::NAN } else { -f32::NAN };
                let mut silu = gate.clone();
                (k.relu2_mul)(&mut gate, &weight);
                (k.silu_mul)(&mut silu, &weight);
                for (i, (relu, silu)) in gate.iter().zip(&silu).enumerate() {
                    assert_eq!((relu.is_nan(), silu.is_nan()), (i == at, i == at), "{:?}", k.isa());
                }
            }
        }
    }
}

pub fn rows_that_see_a_value_that_is_no_number_are_none() {
    let (dim, count) = (32, PAGE + 5);
    let mut noise = Noise(0x5a5a_1111_2222_3333);
    for k in Kernels::all().chain(sets("values that are no numbers")) {
        for dtype in KvType::ALL {
            let layout = PageLayout { head_dim: dim, keys: dtype, values: dtype };
            let mut pages = AlignedVec::<u8>::zeroed(2 * layout.bytes());
            for slot in 0..count {
                let page = &mut pages[slot / PAGE * layout.bytes()..][..layout.bytes()];
                let x = if slot == 7 { vec![f32::NAN; dim] } else { noise.floats(dim) };
                layout.write(&k.kv, page, slot % PAGE, (&x, &x));
            }
            let ends = [5, 7, 8, 20, count];
            let queries = noise.floats(ends.len() * 2 * dim);
            let out = attend(&k, &queries, layout, (&pages, &[0, 1]), &ends);
            for (row, (out, end)) in out.chunks(2 * dim).zip(ends).enumerate() {
                let sees = end > 7;
                assert!(
                    out.iter().all(|x| x.is_nan() == sees && (sees || x.is_finite())),
                    "{:?} {dtype:?} row {row}: {out:?}",
                    k.isa()
                );
            }
        }
    }
}
