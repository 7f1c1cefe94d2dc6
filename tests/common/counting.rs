//! An allocator that counts each thread's memory.
#![allow(dead_code, reason = "no test uses all of it")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Counts the current thread's allocated bytes and their peak.
struct Counting;

thread_local! {
    pub static HELD: Cell<usize> = const { Cell::new(0) };
    pub static PEAK: Cell<usize> = const { Cell::new(0) };
}

fn grow(n: usize) {
    HELD.set(HELD.get() + n);
    PEAK.set(PEAK.get().max(HELD.get()));
}

fn shrink(n: usize) {
    HELD.set(HELD.get().saturating_sub(n));
}

// SAFETY: every call is passed to the system allocator unchanged; the counters are plain numbers.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        shrink(layout.size());
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
