//! Calls that systems have in different forms, or not at all.

use std::io;
use std::path::{Path, PathBuf};

/// Raises the limit on open files to `wanted`, as far as that is allowed, and returns it; `None` if
/// there is no limit.
#[cfg(unix)]
pub fn raise_open_files(wanted: u64) -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let current = limit.current?;
    let raised = limit.maximum.map_or(wanted, |maximum| wanted.min(maximum));
    if raised <= current {
        return Some(current);
    }
    let set = setrlimit(Resource::Nofile, Rlimit { current: Some(raised), ..limit });
    Some(if set.is_ok() { raised } else { current })
}

/// Other systems have no such limit.
#[cfg(not(unix))]
pub fn raise_open_files(_: u64) -> Option<u64> {
    None
}

/// Limits the memory of this process to `bytes` of data, and yields the cores to other processes.
///
/// # Errors
/// If the system refuses.
#[cfg(target_os = "linux")]
pub fn restrict_process(bytes: u64) -> io::Result<()> {
    use rustix::process::{Resource, Rlimit, nice, setrlimit};
    let set =
        |resource, most| setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) });
    set(Resource::Data, bytes)?;
    set(Resource::Core, 0)?;
    nice(10)?;
    Ok(())
}

/// Other systems have no such limits.
#[cfg(not(target_os = "linux"))]
pub fn restrict_process(_: u64) -> io::Result<()> {
    Ok(())
}

/// Gives a temporary file or directory, which is private by default, the mode of a new one.
pub(crate) fn with_common_mode(builder: &mut tempfile::Builder<'_, '_>, is_directory: bool) {
    let mode = if is_directory { 0o777 } else { 0o666 };
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(mode));
    #[cfg(not(unix))]
    let _ = (builder, mode);
}

/// Makes a folder that only its owner may read, unless it exists: it will hold what users wrote.
///
/// # Errors
/// If it cannot be made.
pub fn create_private_dir(folder: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Returns true if a file that this process has locked can be read through another handle: on Windows it
/// cannot.
pub(crate) fn locked_files_are_readable() -> bool {
    cfg!(unix)
}

/// Returns this program's file, also after it has been replaced.
pub fn program() -> io::Result<PathBuf> {
    if cfg!(target_os = "linux") { Ok("/proc/self/exe".into()) } else { std::env::current_exe() }
}
