//! Standard error of the log. A reader that stops reading blocks who writes, so one thread writes, and
//! requests only hand it their lines. Lines that find no room are counted.

use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};
use tracing_subscriber::fmt::MakeWriter;

/// Lines that wait for the reader, and their bytes.
const LINES: usize = 4096;
const BYTES: usize = 1 << 20;
/// Longest time that the end of the program waits for the reader.
const FLUSH: Duration = Duration::from_secs(1);

/// The writer of this process, for [`flush`].
static WRITER: OnceLock<LogWriter> = OnceLock::new();

/// Hands lines to the thread that writes them.
#[derive(Clone, Debug)]
pub struct LogWriter {
    lines: SyncSender<Vec<u8>>,
    waiting: Arc<Waiting>,
}

/// Lines that are not written.
#[derive(Debug, Default)]
struct Waiting {
    bytes: AtomicUsize,
    /// Number of lines that found no room since the last line that did.
    lost: AtomicUsize,
}

impl LogWriter {
    /// Starts the thread that writes to standard error.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start() -> io::Result<Self> {
        let writer = Self::with_output(io::stderr())?;
        Ok(WRITER.get_or_init(|| writer).clone())
    }

    fn with_output(output: impl Write + Send + 'static) -> io::Result<Self> {
        let (lines, receiver) = sync_channel(LINES);
        let waiting = Arc::new(Waiting::default());
        let own = waiting.clone();
        thread::Builder::new()
            .name("log".into())
            .spawn(move || write_all(receiver, &own, output))?;
        Ok(Self { lines, waiting })
    }

    /// Waits until all lines are written, for at most [`FLUSH`].
    fn flush_lines(&self) {
        let begin = Instant::now();
        while self.waiting.bytes.load(Ordering::Acquire) > 0 && begin.elapsed() < FLUSH {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Waits until the lines of the log are written, at the end of the program.
pub fn flush() {
    if let Some(writer) = WRITER.get() {
        writer.flush_lines();
    }
}

/// Writes lines until nobody is left to hand any over.
fn write_all(lines: Receiver<Vec<u8>>, waiting: &Waiting, mut output: impl Write) {
    for line in lines {
        // Nobody is there to be told of a failure.
        let _ = output.write_all(&line);
        let lost = waiting.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let _ = writeln!(output, "{lost} lines of the log were lost: nobody read them");
        }
        waiting.bytes.fetch_sub(line.len(), Ordering::Release);
    }
}

impl Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let Waiting { bytes, lost } = &*self.waiting;
        let before = bytes.fetch_add(line.len(), Ordering::Relaxed);
        if before + line.len() > BYTES || self.lines.try_send(line.to_vec()).is_err() {
            bytes.fetch_sub(line.len(), Ordering::Relaxed);
            lost.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for LogWriter {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// An output that writes when it is let to.
    #[derive(Clone, Default)]
    struct Gate(Arc<Mutex<Vec<u8>>>);

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("unlocked").extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_stops_blocks_nobody_and_lost_lines_are_counted() {
        let gate = Gate::default();
        let mut writer = LogWriter::with_output(gate.clone()).expect("a thread");
        let closed = gate.0.lock().expect("unlocked");
        let line = [b'x'; 1000];
        for _ in 0..5000 {
            writer.write_all(&line).expect("never waits");
        }
        assert!(writer.waiting.bytes.load(Ordering::Relaxed) <= BYTES);
        drop(closed);
        writer.flush_lines();
        let written = String::from_utf8(gate.0.lock().expect("unlocked").clone()).expect("text");
        let lost = written.split_once(" lines of the log were lost").expect("a note").0;
        let lost: usize = lost.trim_start_matches('x').parse().expect("a number");
        let kept = written.bytes().filter(|&byte| byte == b'x').count() / 1000;
        assert_eq!(kept + lost, 5000);
    }
}
