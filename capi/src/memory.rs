//! Memory of the caller. The functions of this module are as unsafe as the pointers that they get.

use crate::error::{Failure, wf_status};
use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;
use std::{ptr, slice};

/// Returns the text of a C string.
///
/// # Safety
/// `text` is NULL or points to a NUL-terminated string that lives as long as the result.
pub unsafe fn text<'a>(name: &str, text: *const c_char) -> Result<&'a str, Failure> {
    // SAFETY: the caller promises a string.
    let text = unsafe { optional_text(name, text) }?;
    text.ok_or_else(|| Failure::argument(format!("{name} is NULL: pass a string")))
}

/// Returns the text of a C string; `None` for NULL.
///
/// # Safety
/// As [`text`].
pub unsafe fn optional_text<'a>(
    name: &str,
    text: *const c_char,
) -> Result<Option<&'a str>, Failure> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: it is not NULL, so the caller promises a string.
    let text = unsafe { CStr::from_ptr(text) };
    let text = text.to_str().map_err(|error| Failure::argument(format!("{name}: {error}")));
    text.map(Some)
}

/// Returns `count` token ids.
///
/// # Safety
/// `tokens` is NULL or points to `count` numbers that live as long as the result.
pub unsafe fn tokens<'a>(tokens: *const u32, count: usize) -> Result<&'a [u32], Failure> {
    match (tokens.is_null(), count) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Failure::argument("tokens is NULL: pass an array, or a count of 0")),
        // SAFETY: it is not NULL, so the caller promises the numbers.
        (false, _) => Ok(unsafe { slice::from_raw_parts(tokens, count) }),
    }
}

/// A buffer of the caller for an array, and the place of its length.
pub struct Buffer<'a, T> {
    items: *mut T,
    capacity: usize,
    count: Option<&'a mut MaybeUninit<usize>>,
}

impl<'a, T: Copy> Buffer<'a, T> {
    /// Wraps a buffer.
    ///
    /// # Safety
    /// `items` is NULL or has room for `capacity` items while the buffer is in use.
    pub unsafe fn new(
        items: *mut T,
        capacity: usize,
        count: Option<&'a mut MaybeUninit<usize>>,
    ) -> Self {
        Self { items, capacity: if items.is_null() { 0 } else { capacity }, count }
    }

    /// Writes `items` one after the other, and writes `count` in any case.
    pub fn fill(self, items: &[T], count: usize) -> Result<wf_status, Failure> {
        if let Some(place) = self.count {
            place.write(count);
        }
        if items.len() > self.capacity {
            let (has, needs) = (self.capacity, items.len());
            let message = format!("the buffer has room for {has} items, but needs {needs}");
            return Err(Failure { status: wf_status::BufferTooSmall, message });
        }
        // SAFETY: there is room for `capacity` items, which no reference of Rust covers.
        unsafe { ptr::copy_nonoverlapping(items.as_ptr(), self.items, items.len()) };
        Ok(wf_status::Ok)
    }
}

/// Writes a new handle to the place of the caller.
pub fn hand_out<T>(place: &mut MaybeUninit<*mut T>, handle: T) -> wf_status {
    place.write(Box::into_raw(Box::new(handle)));
    wf_status::Ok
}

/// Takes a handle back and drops it; does nothing for NULL.
///
/// # Safety
/// `handle` is NULL or comes from [`hand_out`], and nothing uses it now or later.
pub unsafe fn take_back<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: it comes from `Box::into_raw`, and is taken back once.
        drop(unsafe { Box::from_raw(handle) });
    }
}
