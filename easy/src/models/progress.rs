//! Slow steps of opening a model.

/// Told about downloads and loading while a model is opened. Every method does nothing by default;
/// `()` ignores all of them.
pub trait Progress {
    /// The download of a file starts; called again for each attempt.
    fn download_started(&mut self, _file: &str, _bytes: u64) {}

    /// More bytes of that file have arrived.
    fn downloaded(&mut self, _bytes: u64) {}

    /// Returns true if nobody waits for the download any more. What has arrived is kept for the next one.
    fn is_cancelled(&self) -> bool {
        false
    }

    /// The connection broke; another attempt follows.
    fn download_interrupted(&mut self, _file: &str, _reason: &str) {}

    /// The file is complete.
    fn download_finished(&mut self) {}

    /// Reading the files of a model starts.
    fn loading(&mut self, _name: &str) {}

    /// The files were read.
    fn loaded(&mut self) {}
}

impl Progress for () {}
