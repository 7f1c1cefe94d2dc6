//! Limits that a container or the shell sets: control groups (cgroups) of both versions, and `ulimit -v`.

use std::fs;
use std::path::{Path, PathBuf};

/// A limit of memory, and how much of it is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// Bytes that may be used.
    pub total: u64,
    /// Bytes that can still be used; the page cache counts as free.
    pub free: u64,
}

/// Version 1 has no limit of memory if the number is at least this.
const UNLIMITED: u64 = 1 << 60;

/// Returns the tightest limit of memory on the path from this process's control group to the root.
pub fn memory(root: &Path) -> Option<MemoryLimit> {
    groups(root, "memory")
        .into_iter()
        .filter_map(|group| group_memory(&group))
        .min_by_key(|l| l.free)
}

/// Returns the number of whole CPUs that the quotas on that path allow, at least 1.
pub fn cpus(root: &Path) -> Option<usize> {
    groups(root, "cpu").into_iter().filter_map(|group| group_cpus(&group)).min()
}

/// The limit of one group.
fn group_memory(group: &Path) -> Option<MemoryLimit> {
    let [(total, used), old] =
        [("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")]
            .map(|(total, used)| (number(&group.join(total)), number(&group.join(used))));
    let (total, used) = if total.is_some() { (total, used) } else { old };
    let total = total.filter(|&total| total < UNLIMITED)?;
    let used = used.unwrap_or(0).saturating_sub(cached(&group.join("memory.stat")));
    Some(MemoryLimit { total, free: total.saturating_sub(used) })
}

/// Bytes of the page cache, which the system frees when they are needed. Version 1 lists those of
/// subgroups, too, under other names.
fn cached(stat: &Path) -> u64 {
    let text = fs::read_to_string(stat).unwrap_or_default();
    let of = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.and_then(|value| value.trim().parse::<u64>().ok())
    };
    ["active_file", "inactive_file"]
        .iter()
        .filter_map(|name| of(&format!("total_{name}")).or_else(|| of(name)))
        .sum()
}

/// The CPU quota of one group: microseconds of CPU time in each period.
fn group_cpus(group: &Path) -> Option<usize> {
    let (quota, period) = match fs::read_to_string(group.join("cpu.max")) {
        Ok(text) => {
            let (quota, period) = text.trim().split_once(' ')?;
            (quota.parse().ok()?, period.parse().ok()?)
        }
        Err(_) => {
            let quota = number(&group.join("cpu.cfs_quota_us"))?;
            (quota, number(&group.join("cpu.cfs_period_us"))?)
        }
    };
    usize::try_from(quota.checked_div(period)?).ok().map(|whole: usize| whole.max(1))
}

/// Reads a file with one number; `None` without a number, which means no limit.
fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// Returns the directories of this process's control group and the groups around it, for a controller of
/// version 1 or for version 2.
fn groups(root: &Path, controller: &str) -> Vec<PathBuf> {
    let read = |file: &str| fs::read_to_string(root.join(file)).unwrap_or_default();
    let (own, mounts) = (read("proc/self/cgroup"), read("proc/self/mountinfo"));
    let mut groups = Vec::new();
    for mount in mounts.lines().filter_map(Mount::parse) {
        // `id:controllers:path`; version 2 has no controllers.
        let path = own.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            let fits = match mount.options {
                None => controllers.is_empty(),
                Some(options) => {
                    let has = |list: &str| list.split(',').any(|name| name == controller);
                    has(controllers) && has(options)
                }
            };
            fits.then_some(path)
        });
        let Some(path) = path else { continue };
        let top = root.join(mount.point.trim_start_matches('/'));
        // A container may see the path outside of it; then its own group is the mounted one.
        let below = Path::new(path).strip_prefix(mount.root).unwrap_or(Path::new(""));
        let inside = below.components().all(|part| matches!(part, std::path::Component::Normal(_)));
        let own = if inside { top.join(below) } else { top.clone() };
        groups.extend(own.ancestors().take_while(|group| group.starts_with(&top)).map(Into::into));
    }
    groups
}

/// A mounted hierarchy of control groups.
struct Mount<'a> {
    /// The group that is mounted.
    root: &'a str,
    /// The directory.
    point: &'a str,
    /// Controllers and other options of version 1; `None` for version 2.
    options: Option<&'a str>,
}

impl<'a> Mount<'a> {
    /// Parses a line of `mountinfo`.
    fn parse(line: &'a str) -> Option<Self> {
        let (mount, system) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let mut fields = system.split(' ');
        let options = match fields.next()? {
            "cgroup2" => None,
            "cgroup" => Some(fields.nth(1)?),
            _ => return None,
        };
        Some(Self { root, point, options })
    }
}

/// Returns the limit of address space (`ulimit -v`).
#[cfg(target_os = "linux")]
pub fn address_space() -> Option<MemoryLimit> {
    use rustix::process::{Resource, getrlimit};
    let total = getrlimit(Resource::As).current?;
    let used = super::memory::status("VmSize:").unwrap_or(0);
    Some(MemoryLimit { total, free: total.saturating_sub(used) })
}

/// Other systems are not asked.
#[cfg(not(target_os = "linux"))]
pub fn address_space() -> Option<MemoryLimit> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes files, `path: text`, into a new directory.
    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a directory");
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("it has one")).expect("made");
            fs::write(path, text).expect("written");
        }
        root
    }

    const V2: (&str, &str) = (
        "proc/self/mountinfo",
        "25 30 0:23 / /sys rw - sysfs sysfs rw\n\
         35 25 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n",
    );

    #[test]
    fn the_tightest_group_of_version_2_counts() {
        let root = tree(&[
            V2,
            ("proc/self/cgroup", "0::/a/b/c\n"),
            ("sys/fs/cgroup/memory.stat", "anon 5\n"),
            ("sys/fs/cgroup/a/memory.max", "1000\n"),
            ("sys/fs/cgroup/a/memory.current", "700\n"),
            ("sys/fs/cgroup/a/memory.stat", "anon 5\nactive_file 100\ninactive_file 50\n"),
            ("sys/fs/cgroup/a/b/memory.max", "500\n"),
            ("sys/fs/cgroup/a/b/memory.current", "20\n"),
            ("sys/fs/cgroup/a/b/c/memory.max", "max\n"),
            ("sys/fs/cgroup/a/b/c/memory.current", "20\n"),
            ("sys/fs/cgroup/a/cpu.max", "250000 100000\n"),
            ("sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
            // Of another process.
            ("sys/fs/cgroup/a/x/memory.max", "1\n"),
        ]);
        // 700 are used, of which the page cache has 150.
        assert_eq!(memory(root.path()), Some(MemoryLimit { total: 1000, free: 450 }));
        assert_eq!(cpus(root.path()), Some(2));
        fs::write(root.path().join("sys/fs/cgroup/a/b/c/cpu.max"), "50000 100000")
            .expect("written");
        assert_eq!(cpus(root.path()), Some(1), "at least one");
        fs::write(root.path().join("sys/fs/cgroup/a/b/memory.current"), "480").expect("written");
        assert_eq!(memory(root.path()), Some(MemoryLimit { total: 500, free: 20 }));
    }

    #[test]
    fn a_namespace_shows_the_own_group_as_the_root() {
        let root = tree(&[
            V2,
            ("proc/self/cgroup", "0::/\n"),
            ("sys/fs/cgroup/memory.max", "300\n"),
            ("sys/fs/cgroup/memory.current", "400\n"),
            ("sys/fs/cgroup/cpu.max", "400000 100000\n"),
        ]);
        assert_eq!(memory(root.path()), Some(MemoryLimit { total: 300, free: 0 }));
        assert_eq!(cpus(root.path()), Some(4));
        for outside in ["0::/../../x\n", "0::/../x\n"] {
            fs::write(root.path().join("proc/self/cgroup"), outside).expect("written");
            assert_eq!(cpus(root.path()), Some(4), "{outside}");
        }
    }

    #[test]
    fn groups_of_version_1_have_a_hierarchy_for_each_controller() {
        let root = tree(&[
            (
                "proc/self/mountinfo",
                "31 25 0:26 /docker/1f /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                 32 25 0:27 /docker/1f /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                 33 25 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
            ),
            ("proc/self/cgroup", "4:memory:/docker/1f/in\n3:cpu,cpuacct:/docker/1f\n0::/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/in/memory.limit_in_bytes", "2000\n"),
            ("sys/fs/cgroup/memory/in/memory.usage_in_bytes", "900\n"),
            (
                "sys/fs/cgroup/memory/in/memory.stat",
                "active_file 1\ntotal_active_file 200\ntotal_inactive_file 100\n",
            ),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "150000\n"),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
        ]);
        assert_eq!(memory(root.path()), Some(MemoryLimit { total: 2000, free: 1400 }));
        assert_eq!(cpus(root.path()), Some(1));
        fs::write(root.path().join("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us"), "-1\n")
            .expect("written");
        assert_eq!(cpus(root.path()), None);
    }

    #[test]
    fn without_groups_there_is_no_limit() {
        let root =
            tree(&[("proc/self/cgroup", "garbage\n0::\n"), ("proc/self/mountinfo", "x - y\n")]);
        assert_eq!((memory(root.path()), cpus(root.path())), (None, None));
        let none = tree(&[]);
        assert_eq!((memory(none.path()), cpus(none.path())), (None, None));
    }
}
