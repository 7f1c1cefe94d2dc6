//! Memory-mapped files: the only place where this crate is `unsafe`.
//!
//! A mapped file that another program cuts short has no bytes to read any more, and the system sends
//! SIGBUS. [`report_lost_files`] turns that into a message with the file's name.

use crate::machine::cores;
use anyhow::{Context, ensure};
use bytes::Bytes;
use memmap2::Mmap;
use std::fs::{File, FileType};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use wrinklefree::loader::WeightSource;

/// First bytes of a GGUF file.
const BLOCK_FORMAT: &[u8] = b"GGUF";

/// Maps a whole file, read-only.
pub fn map(path: &Path) -> anyhow::Result<Bytes> {
    Ok(Mapped::open(path)?.0)
}

/// A file that stays mapped as long as some of its bytes are in use.
pub struct Mapped {
    file: File,
    map: Weak<Mapping>,
    /// True if weights are copied out of it although they could be used in place.
    pub must_copy: bool,
}

/// Owns a mapping for [`Bytes`].
struct Owner(Arc<Mapping>);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0.0
    }
}

/// A mapping that is listed in [`MAPPED`].
struct Mapping(Mmap);

/// A range of addresses, and the message if its file is lost.
struct Listed {
    start: usize,
    end: usize,
    message: Vec<u8>,
}

/// All mappings of this process.
static MAPPED: Mutex<Vec<Listed>> = Mutex::new(Vec::new());

fn mapped() -> MutexGuard<'static, Vec<Listed>> {
    MAPPED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Mapping {
    fn new(map: Mmap, path: &Path) -> Self {
        let start = map.as_ptr().addr();
        let name: String = path.display().to_string().replace(char::is_control, "\u{fffd}");
        let message = format!(
            "error: {name} was cut short or cannot be read any more while it was in use: restore \
             the file and start again. Replace a file in use by renaming another one to its name\n"
        );
        mapped().push(Listed { start, end: start + map.len(), message: message.into_bytes() });
        Self(map)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let start = self.0.as_ptr().addr();
        mapped().retain(|listed| listed.start != start);
    }
}

/// Opens a regular file. Others are refused by name: a pipe would wait for a writer, and a device has
/// no length.
fn open_regular(path: &Path) -> anyhow::Result<File> {
    let kind = path.metadata().map(|metadata| metadata.file_type());
    let kind = kind.with_context(|| format!("cannot read {}", path.display()))?;
    ensure!(
        kind.is_file(),
        "cannot read {}: it is {}, and a model is a regular file or a directory of regular files",
        path.display(),
        kind_name(kind)
    );
    File::open(path).with_context(|| format!("cannot read {}", path.display()))
}

fn kind_name(kind: FileType) -> &'static str {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        if kind.is_fifo() {
            return "a pipe (FIFO)";
        }
        if kind.is_socket() {
            return "a socket";
        }
        if kind.is_char_device() || kind.is_block_device() {
            return "a device";
        }
    }
    if kind.is_dir() { "a directory" } else { "no regular file" }
}

/// From now on, a mapped file that was cut short ends the program with a message that names it, with
/// exit code 1, instead of with SIGBUS. `before` runs first, for example to remove temporary files.
/// It must not wait for locks that code which reads mapped bytes may hold.
///
/// This is for programs, as it changes what a signal does. Systems without SIGBUS end a program that
/// reads such a file anyway.
pub fn report_lost_files(before: fn()) {
    #[cfg(unix)]
    lost::install(before);
    #[cfg(not(unix))]
    let _ = before;
}

/// The handler of SIGBUS.
#[cfg(unix)]
mod lost {
    use super::mapped;
    use std::mem::MaybeUninit;
    use std::ptr;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// The earlier action, and the function that runs before the program ends.
    struct Installed {
        before: fn(),
        earlier: libc::sigaction,
    }

    static INSTALLED: OnceLock<Installed> = OnceLock::new();
    static ENDING: AtomicBool = AtomicBool::new(false);

    pub fn install(before: fn()) {
        INSTALLED.get_or_init(|| {
            let mut earlier = MaybeUninit::uninit();
            // SAFETY: both actions are complete: zeros are an empty mask, and the handler has the
            // signature that SA_SIGINFO asks for. SIGBUS has no earlier action that fails to be
            // read, so `earlier` is written.
            let earlier = unsafe {
                let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
                action.sa_sigaction = handle as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
                let done = libc::sigaction(libc::SIGBUS, &action, earlier.as_mut_ptr());
                assert_eq!(done, 0, "SIGBUS is a signal that can be handled");
                earlier.assume_init()
            };
            Installed { before, earlier }
        });
    }

    extern "C" fn handle(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        // SAFETY: the system passes a valid description of the signal.
        let (code, address) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
        // The thread was stopped where it read mapped bytes, so it holds no lock that is taken here:
        // neither this one nor those of the allocator.
        let listed = mapped();
        let file = listed.iter().find(|file| (file.start..file.end).contains(&address));
        match file.filter(|_| code > 0) {
            Some(file) => end(&file.message),
            None => pass_on(code),
        }
    }

    /// Ends the program, once.
    fn end(message: &[u8]) -> ! {
        if ENDING.swap(true, Ordering::SeqCst) {
            loop {
                // SAFETY: waits for a signal; another thread ends the program.
                unsafe { libc::pause() };
            }
        }
        if let Some(installed) = INSTALLED.get() {
            (installed.before)();
        }
        // SAFETY: the bytes are valid, and `_exit` runs nothing of this program.
        unsafe {
            libc::write(libc::STDERR_FILENO, message.as_ptr().cast(), message.len());
            libc::_exit(1)
        }
    }

    /// Leaves the signal to the earlier action.
    fn pass_on(code: libc::c_int) {
        let Some(installed) = INSTALLED.get() else { return };
        // SAFETY: the action is what `sigaction` returned. A fault comes again when this function
        // returns, and a signal that somebody sent is sent again.
        unsafe {
            libc::sigaction(libc::SIGBUS, &installed.earlier, ptr::null_mut());
            if code <= 0 {
                libc::raise(libc::SIGBUS);
            }
        }
    }
}

impl Mapped {
    /// Maps a whole file, read-only.
    ///
    /// # Errors
    /// If the path names no regular file, or one that cannot be read.
    pub fn open(path: &Path) -> anyhow::Result<(Bytes, Self)> {
        let file = open_regular(path)?;
        let map = |file: File| {
            if file.metadata()?.len() == 0 {
                return Ok((Bytes::new(), Self { file, map: Weak::new(), must_copy: false }));
            }
            // SAFETY: the mapping is read-only and owned by the returned bytes. Like every program
            // that maps model files, it relies on the file not being changed while it is in use. One
            // that is cut short ends the program (see the module), and cannot give other bytes.
            let map = Arc::new(Mapping::new(unsafe { Mmap::map(&file)? }, path));
            let mapped = Self { file, map: Arc::downgrade(&map), must_copy: false };
            Ok((Bytes::from_owner(Owner(map)), mapped))
        };
        map(file)
            .map_err(|e: io::Error| e)
            .with_context(|| format!("cannot read {}", path.display()))
    }

    /// Returns the offset of these bytes in the file, if they belong to it.
    fn place(&self, bytes: &[u8]) -> Option<u64> {
        let map = self.map.upgrade()?;
        let start = bytes.as_ptr().addr().checked_sub(map.0.as_ptr().addr())?;
        (start + bytes.len() <= map.0.len()).then_some(start as u64)
    }

    /// Reads from an offset through the file, so that no page of the mapping becomes resident.
    #[cfg(unix)]
    fn read(&self, place: u64, to: &mut [u8]) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(&self.file, to, place)
    }

    /// See above.
    #[cfg(windows)]
    fn read(&self, mut place: u64, mut to: &mut [u8]) -> io::Result<()> {
        use std::os::windows::fs::FileExt;
        while !to.is_empty() {
            let read = self.file.seek_read(to, place)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            to = &mut to[read..];
            place += read as u64;
        }
        Ok(())
    }

    /// Other systems read through the mapping.
    #[cfg(not(any(unix, windows)))]
    fn read(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// The mapped files of a model, as the source of its weights.
pub struct Files {
    mapped: Vec<Mapped>,
    /// True if weights that are in memory of this process are copied too.
    moves: bool,
}

impl Files {
    /// Wraps these files. On a machine with several NUMA nodes, weights that one thread has packed
    /// into memory are copied too: they all lie on the node of that thread, not of those that read
    /// them.
    pub fn new(mapped: Vec<Mapped>) -> Self {
        Self { mapped, moves: cores::memory_nodes() > 1 }
    }
}

impl Files {
    /// Returns the bytes of the files whose weights get memory of this process: those that are copied, and
    /// those of block formats, which are repacked to about the same size. Other files stay mapped, or
    /// become much smaller.
    pub fn copied(&self, files: &[wrinklefree::format::File]) -> u64 {
        let copied = |file: &&wrinklefree::format::File| {
            let first = file.bytes.first();
            first.starts_with(BLOCK_FORMAT)
                || self.mapped.iter().any(|m| m.must_copy && m.place(&first).is_some())
        };
        files.iter().filter(copied).map(|file| file.bytes.len() as u64).sum()
    }
}

impl WeightSource for Files {
    fn must_copy(&self, bytes: &[u8]) -> bool {
        let file = self.mapped.iter().find(|file| file.place(bytes).is_some());
        file.map_or(self.moves, |file| file.must_copy)
    }

    fn read(&self, bytes: &[u8], to: &mut [u8]) {
        let read =
            self.mapped.iter().find_map(|file| Some(file.read(file.place(bytes)?, to).is_ok()));
        if read != Some(true) {
            to.copy_from_slice(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_return_the_mapped_bytes() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut files = Files::new(Vec::new());
        files.moves = false;
        let mut all = Vec::new();
        for length in [100_003, 1, 0] {
            let path = directory.path().join(length.to_string());
            let bytes: Vec<u8> = (0..length).map(|i| (i % 251) as u8).collect();
            std::fs::write(&path, &bytes).expect("written");
            let (mapped, mut file) = Mapped::open(&path).expect("there");
            assert_eq!(mapped, bytes);
            file.must_copy = length == 1;
            files.mapped.push(file);
            all.push(mapped);
        }
        let memory = Bytes::from_static(b"of no file");
        for (bytes, must_copy) in all.iter().chain([&memory]).zip([false, true, false, false]) {
            let part = &bytes[bytes.len() / 3..];
            let mut read = vec![0; part.len()];
            files.read(part, &mut read);
            assert_eq!(read, part);
            assert_eq!(files.must_copy(part), must_copy);
        }
        files.moves = true;
        assert!(files.must_copy(&memory) && !files.must_copy(&all[0]));
        all.clear();
        assert!(
            files.mapped.iter().all(|file| file.map.upgrade().is_none()),
            "no bytes are in use"
        );
        let error = map(&directory.path().join("none")).expect_err("not there");
        assert!(format!("{error:#}").contains("none"), "{error:#}");
    }
}
