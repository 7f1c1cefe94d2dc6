//! Cores as Windows lists them.

use super::windows_cpu_sets;
use windows_sys::Win32::System::SystemInformation::GetSystemCpuSetInformation;

/// Returns the number of performance cores; `None` if the system does not say.
pub(super) fn performance_cores() -> Option<usize> {
    let (mut length, this) = (0, std::ptr::null_mut());
    // SAFETY: with no buffer the call only writes the length that it needs.
    unsafe { GetSystemCpuSetInformation(std::ptr::null_mut(), 0, &raw mut length, this, 0) };
    // Words, because records are aligned as these.
    let mut records = vec![0u64; (length as usize).div_ceil(size_of::<u64>())];
    let to = records.as_mut_ptr().cast();
    // SAFETY: `to` points to at least `length` bytes, and any bytes are valid words.
    let read = unsafe { GetSystemCpuSetInformation(to, length, &raw mut length, this, 0) };
    let bytes: Vec<u8> = records.into_iter().flat_map(u64::to_ne_bytes).collect();
    let filled = bytes.get(..length as usize).filter(|_| read != 0)?;
    windows_cpu_sets::performance_cores(filled)
}
