//! Slots, as llama-server calls the places of requests that run at the same time: which are busy, and the
//! texts of the last requests in them. The prefix cache holds the texts' keys and values; a slot only
//! names them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wrinklefree::engine::Request;

/// The slots of a model.
#[derive(Debug)]
pub struct Slots(Mutex<Vec<Slot>>);

/// A slot.
#[derive(Clone, Debug, Default)]
struct Slot {
    /// Number of requests that run in it.
    running: usize,
    text: SlotText,
}

/// The text of the last request in a slot.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SlotText {
    /// Tokens of prompt and output.
    pub tokens: Vec<u32>,
    /// Salt of the prefix cache.
    pub salt: String,
    /// Positions of a block of finished tokens.
    pub block: usize,
}

impl Slots {
    /// Makes so many empty slots.
    pub fn new(count: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(vec![Slot::default(); count])))
    }

    /// Returns the number of slots.
    pub fn count(&self) -> usize {
        self.lock().len()
    }

    /// Returns for each slot whether a request runs in it, and the length of the last text if it has this
    /// salt.
    pub fn states(&self, salt: &str) -> Vec<(bool, usize)> {
        let state = |slot: &Slot| {
            let length = if slot.text.salt == salt { slot.text.tokens.len() } else { 0 };
            (slot.running > 0, length)
        };
        self.lock().iter().map(state).collect()
    }

    /// Returns a number for each slot's text with this salt; 0 for others.
    pub fn of_texts(&self, salt: &str, number: impl Fn(&SlotText) -> usize) -> Vec<usize> {
        let of = |slot: &Slot| if slot.text.salt == salt { number(&slot.text) } else { 0 };
        self.lock().iter().map(of).collect()
    }

    /// Returns the text of a slot; `None` if there is no such slot.
    pub fn text(&self, id: usize) -> Option<SlotText> {
        self.lock().get(id).map(|slot| slot.text.clone())
    }

    /// Replaces the text of a slot, if there is such a slot.
    pub fn set_text(&self, id: usize, text: SlotText) {
        if let Some(slot) = self.lock().get_mut(id) {
            slot.text = text;
        }
    }

    /// Puts a request into the slot `wanted`, or into the least busy one, of those the one whose text has
    /// the most tokens at its beginning.
    pub fn enter(self: &Arc<Self>, wanted: Option<usize>, request: &Request) -> SlotGuard {
        let mut slots = self.lock();
        let common = |slot: &Slot| {
            let pairs = slot.text.tokens.iter().zip(&request.tokens);
            pairs.take_while(|(a, b)| a == b).count()
        };
        let best = slots
            .iter()
            .enumerate()
            .min_by_key(|(id, slot)| (slot.running, std::cmp::Reverse(common(slot)), *id));
        let id = wanted.unwrap_or_else(|| best.map_or(0, |(id, _)| id));
        if let Some(slot) = slots.get_mut(id) {
            slot.running += 1;
        }
        let text = SlotText {
            tokens: request.tokens.clone(),
            salt: request.cache_salt.clone(),
            block: request.mode.clean_block(),
        };
        SlotGuard { slots: self.clone(), id, text }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Slot>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request in a slot. It leaves the slot when it is dropped.
#[derive(Debug)]
pub struct SlotGuard {
    slots: Arc<Slots>,
    /// Number of the slot.
    pub id: usize,
    text: SlotText,
}

impl SlotGuard {
    /// Returns the text so far.
    pub fn text(&self) -> &SlotText {
        &self.text
    }

    /// Adds a token to the text.
    pub fn push(&mut self, token: u32) {
        self.text.tokens.push(token);
    }
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        let text = std::mem::take(&mut self.text);
        if let Some(slot) = self.slots.lock().get_mut(self.id) {
            slot.running -= 1;
            slot.text = text;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(tokens: &[u32]) -> Request {
        Request { tokens: tokens.to_vec(), ..Request::default() }
    }

    #[test]
    fn requests_get_idle_slots_with_their_beginning() {
        let slots = Slots::new(2);
        let (mut first, second) =
            (slots.enter(None, &request(&[1, 2])), slots.enter(None, &request(&[5, 6])));
        assert_eq!((first.id, second.id), (0, 1));
        first.push(3);
        drop((first, second));
        assert_eq!(slots.states(""), [(false, 3), (false, 2)]);
        assert_eq!(slots.states("1 "), [(false, 0), (false, 0)], "texts of others");
        assert_eq!(slots.text(0).unwrap().tokens, [1, 2, 3]);
        let again = slots.enter(None, &request(&[5, 6, 7]));
        assert_eq!(again.id, 1, "it begins with the text of slot 1");
        assert_eq!(slots.enter(Some(1), &request(&[9])).id, 1, "slots are names, not limits");
        assert_eq!(slots.states("")[0], (false, 3));
        assert!(slots.text(2).is_none());
    }
}
