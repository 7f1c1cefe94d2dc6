//! Cores as Linux lists them in `/sys`.

use super::Cpus;
use std::fs;
use std::path::Path;

/// Lists of an Intel processor's CPUs by kind of core, and relative speeds of the kinds.
const INTEL: [(&str, u32); 3] = [("cpu_core", 1024), ("cpu_atom", 512), ("cpu_lowpower", 256)];

/// Sorts these CPUs of the machine whose files are below `root`.
pub(super) fn cpus(root: &Path, allowed: &[usize]) -> Cpus {
    let speeds = speeds(root, allowed);
    let mut all: Vec<(usize, u32)> = allowed.iter().copied().zip(speeds).collect();
    all.sort_by_key(|&(cpu, speed)| (std::cmp::Reverse(speed), cpu));
    let top = all.first().map_or(1, |&(_, speed)| speed);
    let first = |cpu: usize| siblings(root, cpu).into_iter().filter(|s| allowed.contains(s)).min();
    let (cores, siblings): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|&(cpu, _)| first(cpu) == Some(cpu));
    Cpus {
        performance: cores.iter().filter(|&&(_, speed)| is_fast(speed, top)).count(),
        speeds: cores.iter().chain(&siblings).map(|&(_, speed)| speed).collect(),
        cores: cores.into_iter().map(|(cpu, _)| cpu).collect(),
        siblings: siblings.into_iter().map(|(cpu, _)| cpu).collect(),
    }
}

/// Says if a core counts as a performance core: it has at least 60 % of the fastest core's speed. The
/// second kind of a phone's three and AMD's compact cores do, the slow kinds of ARM and Intel do not.
fn is_fast(speed: u32, top: u32) -> bool {
    u64::from(speed) * 5 >= u64::from(top) * 3
}

/// Relative speeds of these CPUs; all alike if the system does not say.
fn speeds(root: &Path, cpus: &[usize]) -> Vec<u32> {
    by_device(root, cpus).or_else(|| by_capacity(root, cpus)).unwrap_or_else(|| vec![1; cpus.len()])
}

/// Speeds by the lists that Intel's hybrid processors have, one for each kind of core.
fn by_device(root: &Path, cpus: &[usize]) -> Option<Vec<u32>> {
    let kinds = INTEL.map(|(name, speed)| {
        let listed = fs::read_to_string(root.join("sys/devices").join(name).join("cpus"));
        (listed.ok().and_then(|text| list(text.trim())).unwrap_or_default(), speed)
    });
    let speed = |cpu| kinds.iter().find(|(cpus, _)| cpus.contains(cpu)).map(|&(_, speed)| speed);
    cpus.iter().map(speed).collect()
}

/// Speeds that the kernel measured or read from the firmware, up to 1024. ARM and RISC-V have them.
fn by_capacity(root: &Path, cpus: &[usize]) -> Option<Vec<u32>> {
    let capacity = |cpu: &usize| {
        let file = root.join(format!("sys/devices/system/cpu/cpu{cpu}/cpu_capacity"));
        fs::read_to_string(file).ok()?.trim().parse().ok().filter(|&speed: &u32| speed > 0)
    };
    cpus.iter().map(capacity).collect()
}

/// Returns the CPUs on the core of `cpu`, including itself.
fn siblings(root: &Path, cpu: usize) -> Vec<usize> {
    let file = root.join(format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"));
    let listed = fs::read_to_string(file).ok().and_then(|text| list(text.trim()));
    listed.unwrap_or_else(|| vec![cpu])
}

/// Largest number of CPUs that a list may name: more than Linux supports.
const MOST: usize = 1 << 16;

/// Parses a list such as `0-2,8`.
pub(super) fn list(text: &str) -> Option<Vec<usize>> {
    let mut numbers = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if last >= MOST {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::Range;

    /// A machine's files. Neighbors on `smt` CPUs share a core; the others have one of their own.
    fn machine(smt: Range<usize>, files: &[(String, String)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a directory");
        let pairs = smt.map(|cpu| {
            let first = cpu / 2 * 2;
            let file = format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
            (file, format!("{first}-{}", first + 1))
        });
        for (path, text) in pairs.chain(files.iter().cloned()) {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("it has one")).expect("made");
            fs::write(path, text + "\n").expect("written");
        }
        root
    }

    fn read(root: &tempfile::TempDir, cpus: Range<usize>) -> Cpus {
        super::cpus(root.path(), &cpus.collect::<Vec<_>>())
    }

    fn device(name: &str, cpus: &str) -> (String, String) {
        (format!("sys/devices/{name}/cpus"), cpus.into())
    }

    fn capacities(all: &[u32]) -> Vec<(String, String)> {
        let file = |(cpu, capacity): (usize, &u32)| {
            (format!("sys/devices/system/cpu/cpu{cpu}/cpu_capacity"), capacity.to_string())
        };
        all.iter().enumerate().map(file).collect()
    }

    #[test]
    fn alder_lake_has_eight_fast_cores_of_two_threads_and_eight_slow_ones() {
        let devices = [device("cpu_core", "0-15"), device("cpu_atom", "16-23")];
        let cpus = read(&machine(0..16, &devices), 0..24);
        let cores = (0..16).step_by(2).chain(16..24).collect::<Vec<_>>();
        assert_eq!((&cpus.cores, cpus.performance), (&cores, 8));
        assert_eq!(cpus.siblings, (0..16).skip(1).step_by(2).collect::<Vec<_>>());
        let speeds = [[1024; 8], [512; 8], [1024; 8]].concat();
        assert_eq!(cpus.speeds, speeds);
        // A process that may use slow cores alone uses all of them.
        let slow = read(&machine(0..16, &devices), 16..24);
        assert_eq!((slow.cores.len(), slow.performance), (8, 8));
    }

    #[test]
    fn meteor_lake_has_a_third_kind() {
        let devices = [
            device("cpu_core", "0-11"),
            device("cpu_atom", "12-19"),
            device("cpu_lowpower", "20-21"),
        ];
        let cpus = read(&machine(0..12, &devices), 0..22);
        assert_eq!((cpus.cores.len(), cpus.performance), (16, 6));
        assert_eq!(cpus.cores[14..], [20, 21]);
    }

    #[test]
    fn snapdragons_have_three_kinds_of_which_two_are_fast() {
        let capacities = capacities(&[325, 325, 325, 828, 828, 828, 828, 1024]);
        let cpus = read(&machine(0..0, &capacities), 0..8);
        assert_eq!((cpus.cores, cpus.performance), (vec![7, 3, 4, 5, 6, 0, 1, 2], 5));
        assert_eq!(cpus.speeds, [1024, 828, 828, 828, 828, 325, 325, 325]);
    }

    #[test]
    fn genoa_has_one_kind() {
        let cpus = read(&machine(0..8, &[]), 0..8);
        assert_eq!((cpus.cores, cpus.performance), (vec![0, 2, 4, 6], 4));
        assert_eq!((cpus.siblings, cpus.speeds), (vec![1, 3, 5, 7], vec![1; 8]));
        let alike = read(&machine(0..0, &capacities(&[1024; 4])), 0..4);
        assert_eq!((alike.cores, alike.performance), (vec![0, 1, 2, 3], 4));
    }

    #[test]
    fn files_that_do_not_list_all_cpus_say_nothing() {
        let partly = machine(0..0, &[device("cpu_core", "0-1"), device("cpu_atom", "x")]);
        assert_eq!(read(&partly, 0..4).speeds, [1; 4]);
        let missing = machine(0..0, &capacities(&[1024, 0]));
        assert_eq!(read(&missing, 0..2).performance, 2);
        assert_eq!(super::cpus(Path::new("/nowhere"), &[]), Cpus::default());
    }

    #[test]
    fn lists_of_cpus() {
        assert_eq!(list("0"), Some(vec![0]));
        assert_eq!(list("0-2,8,10-11"), Some(vec![0, 1, 2, 8, 10, 11]));
        assert_eq!((list(""), list("0-x"), list("0-99999999999")), (None, None, None));
    }
}
