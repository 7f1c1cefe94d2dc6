//! Timing helpers of the benchmarks.
#![allow(dead_code, reason = "every bench uses its own part")]

/// Returns a configuration with many short runs, which noise affects less than a few long ones.
pub fn criterion() -> criterion::Criterion {
    use std::time::Duration;
    criterion::Criterion::default()
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_secs(1))
        .sample_size(20)
        .configure_from_args()
}

/// Returns the median ratio of the time of `a` to that of `b`, which alternate.
pub fn ratio(mut a: impl FnMut(), mut b: impl FnMut(), turns: usize) -> f64 {
    let time = |f: &mut dyn FnMut()| {
        let start = std::time::Instant::now();
        f();
        start.elapsed().as_secs_f64()
    };
    let mut ratios: Vec<f64> = (0..turns).map(|_| time(&mut a) / time(&mut b)).collect();
    ratios.sort_by(f64::total_cmp);
    ratios[turns / 2]
}
