//! Records of CPUs as Windows writes them (`SYSTEM_CPU_SET_INFORMATION`).

/// Offsets of a record's fields.
const TYPE: usize = 4;
const GROUP: usize = 12;
const CORE: usize = 15;
const EFFICIENCY_CLASS: usize = 18;
/// Type of records that describe CPUs.
const CPU_SET: u32 = 0;

/// Returns the number of cores of the highest efficiency class, which is the fastest; `None` if the
/// records name no core.
pub(super) fn performance_cores(mut records: &[u8]) -> Option<usize> {
    let mut cores = Vec::new();
    while let Some((record, rest)) = split(records) {
        if let (Some(&kind), Some(&class)) =
            (record[TYPE..].first_chunk(), record.get(EFFICIENCY_CLASS))
            && u32::from_le_bytes(kind) == CPU_SET
        {
            cores.push((class, record[GROUP], record[GROUP + 1], record[CORE]));
        }
        records = rest;
    }
    let top = cores.iter().map(|core| core.0).max()?;
    cores.retain(|core| core.0 == top);
    cores.sort_unstable();
    cores.dedup();
    Some(cores.len())
}

/// Splits off the first record, which begins with its size.
fn split(records: &[u8]) -> Option<(&[u8], &[u8])> {
    let size = u32::from_le_bytes(*records.first_chunk()?) as usize;
    (size >= TYPE).then(|| records.split_at_checked(size)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record of 32 bytes, as Windows 10 and 11 write it.
    fn record(kind: u32, cpu: u8, core: u8, class: u8) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[0] = 32;
        bytes[TYPE..][..4].copy_from_slice(&kind.to_le_bytes());
        (bytes[14], bytes[CORE], bytes[EFFICIENCY_CLASS]) = (cpu, core, class);
        bytes
    }

    #[test]
    fn cores_of_the_highest_class_count_once() {
        // Two fast cores of two threads, two slow ones of one thread, and a record of another type.
        let cpus = [(0, 0, 1), (1, 0, 1), (2, 2, 1), (3, 2, 1), (4, 4, 0), (5, 5, 0)];
        let mut records = cpus.map(|(cpu, core, class)| record(CPU_SET, cpu, core, class)).concat();
        records.extend(record(1, 6, 6, 9));
        assert_eq!(performance_cores(&records), Some(2));
        let alike = [0, 1, 2].map(|cpu| record(CPU_SET, cpu, cpu, 0)).concat();
        assert_eq!(performance_cores(&alike), Some(3));
    }

    #[test]
    fn broken_records_end_the_list() {
        let whole = record(CPU_SET, 0, 0, 0);
        assert_eq!(performance_cores(&[]), None);
        assert_eq!(performance_cores(&[0; 32]), None);
        assert_eq!(performance_cores(&[&whole[..], &whole[..20]].concat()), Some(1));
        let mut short = whole;
        short[0] = 5;
        assert_eq!(performance_cores(&short[..5]), None);
    }
}
