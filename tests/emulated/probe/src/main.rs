//! Checks the emulator itself: that it reports the CPU features that the kernels need, and that its
//! `vpdpbusd` computes what the manual says. `probe N vpdpbusd` and `probe N scalar` then run N million
//! rounds of a loop, for timing.

use std::arch::x86_64::*;

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
unsafe fn dot(acc: [i32; 16], a: [u8; 64], b: [i8; 64], rounds: u64) -> [i32; 16] {
    let (a, b) = (_mm512_loadu_si512(a.as_ptr().cast()), _mm512_loadu_si512(b.as_ptr().cast()));
    let mut sum = _mm512_loadu_si512(acc.as_ptr().cast());
    for _ in 0..rounds {
        sum = std::hint::black_box(_mm512_dpbusd_epi32(sum, a, b));
    }
    let mut out = [0; 16];
    _mm512_storeu_si512(out.as_mut_ptr().cast(), sum);
    out
}

fn main() {
    macro_rules! features { ($($name:tt)*) => { [$(($name, is_x86_feature_detected!($name))),*] } }
    let features = features!("avx2" "fma" "bmi2" "avx512f" "avx512bw" "avx512vl" "avx512dq" "avx512vnni" "avx512vbmi");
    println!("{features:?}");
    println!(
        "REQUIRE_ISA={:?} WF_ISA={:?}",
        std::env::var("REQUIRE_ISA").ok(),
        std::env::var("WF_ISA").ok()
    );
    assert!(features.iter().all(|f| f.1), "a feature is missing");

    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    };
    for _ in 0..100 {
        let a: [u8; 64] = std::array::from_fn(|_| next());
        let b: [i8; 64] = std::array::from_fn(|_| next() as i8);
        let acc: [i32; 16] = std::array::from_fn(|i| i as i32 - 8);
        let want: [i32; 16] = std::array::from_fn(|i| {
            acc[i] + (4 * i..4 * i + 4).map(|j| a[j] as i32 * b[j] as i32).sum::<i32>()
        });
        assert_eq!(unsafe { dot(acc, a, b, 1) }, want);
    }
    println!("vpdpbusd agrees with scalar");

    let mut args = std::env::args().skip(1);
    let millions = args.next().map_or(0, |n| n.parse::<u64>().expect("a number"));
    let start = std::time::Instant::now();
    match args.next().as_deref() {
        None => return,
        Some("vpdpbusd") => {
            std::hint::black_box(unsafe { dot([0; 16], [1; 64], [1; 64], millions * 1_000_000) });
        }
        Some("scalar") => {
            let mut x = 1u64;
            for i in 0..millions * 1_000_000 {
                x = std::hint::black_box(x.rotate_left(5) ^ i);
            }
        }
        Some(other) => panic!("no such loop: {other}"),
    }
    println!("{millions} million rounds in {:?} of guest time", start.elapsed());
}
