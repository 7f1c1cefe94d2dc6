//! Paths as users know them.

use std::io;
use std::path::{Path, PathBuf};

/// Returns the absolute path without links, in the form that users know.
///
/// # Errors
/// If nothing is there.
pub fn canonicalize(path: &Path) -> io::Result<PathBuf> {
    // Windows' own canonical form (`\\?\C:\…`) is not what other programs accept.
    if cfg!(windows) {
        return path.metadata().and_then(|_| std::path::absolute(path));
    }
    path.canonicalize()
}
