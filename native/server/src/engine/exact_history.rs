//! Tokens that a model generated, for later prompts that show the same texts.
//!
//! An answer is remembered by the prompt that it follows. Where a later prompt of the same tenant begins with
//! that prompt and goes on with the answer's text, it gets the answer's tokens, so the prefix cache continues.
//! Parts of an answer that clients change (they drop thinking, or spell arguments anew) are remembered by the
//! messages up to the answer.

use crate::access::keys::Tenant;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wrinklefree::text::{GeneratedAnswer, LocatedPrompt, Tokenizer};

/// Most bytes of the answers of a model, and of those of one tenant.
const BYTES: usize = 16 << 20;
const TENANT_BYTES: usize = 4 << 20;
/// Memory of an answer without its tokens.
const ENTRY: usize = 256;

/// The last answers of a model. Those that no prompt has shown for the longest time go when there are too
/// many.
#[derive(Default)]
pub struct ExactHistory {
    secret: RandomState,
    answers: Mutex<Answers>,
}

/// Key of a remembered answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// The number of bytes of its prompt, and their hash.
    Prompt(usize, u64),
    /// The hash of the messages that end with it.
    Messages(u64),
}

/// An answer that is remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Remembered {
    Tokens(Arc<[u32]>),
    /// The message as the model wrote it, as JSON.
    Message(Arc<str>),
}

#[derive(Default)]
struct Answers {
    tenants: HashMap<Arc<str>, TenantAnswers>,
    /// Answers of all tenants by the time of their last use.
    used: BTreeMap<u64, (Arc<str>, Place)>,
    bytes: usize,
    /// Number of uses so far.
    time: u64,
}

#[derive(Default)]
struct TenantAnswers {
    by_place: BTreeMap<Place, Answer>,
    /// The same by the time of their last use.
    used: BTreeMap<u64, Place>,
    bytes: usize,
}

struct Answer {
    content: Remembered,
    used: u64,
}

impl Answer {
    fn bytes(&self) -> usize {
        ENTRY
            + match &self.content {
                Remembered::Tokens(tokens) => size_of_val(&**tokens),
                Remembered::Message(json) => json.len(),
            }
    }
}

/// A tenant's answers within a scope of the prefix cache.
#[derive(Clone)]
pub struct TenantHistory {
    history: Arc<ExactHistory>,
    tenant: Arc<str>,
    key: u64,
}

/// The place of an answer that is being generated.
#[derive(Clone)]
pub struct AnswerPlace {
    /// The history.
    pub of: TenantHistory,
    place: Place,
    /// Ids that end an answer and are not part of it.
    eos: Vec<u32>,
}

impl TenantHistory {
    /// Returns the history of a tenant. Other salts have other histories.
    pub fn new(history: &Arc<ExactHistory>, tenant: &Tenant, salt: &str) -> Self {
        let key = history.secret.hash_one(salt);
        Self { history: history.clone(), tenant: tenant.0.as_str().into(), key }
    }

    /// Returns the answers that a prompt shows.
    pub fn find(&self, prompt: &LocatedPrompt, tokenizer: &Tokenizer) -> Vec<GeneratedAnswer> {
        let lengths = self.history.lock().lengths(&self.tenant, prompt.len());
        let hashes = prompt.hashes(self.key, &lengths);
        let places = lengths.into_iter().zip(hashes);
        let places: Vec<Place> = places.map(|(length, hash)| Place::Prompt(length, hash)).collect();
        let known = self.history.lock().known(&self.tenant, &places);
        let (mut answers, mut shown) = (Vec::<GeneratedAnswer>::new(), Vec::new());
        for (place, content) in known {
            let done = answers.last().map_or(0, |answer| answer.range.end);
            if let (Place::Prompt(begin, _), Remembered::Tokens(tokens)) = (place, content)
                && begin >= done
                && let Some(answer) = prompt.answer(begin, &tokens, tokenizer)
            {
                answers.push(answer);
                shown.push(place);
            }
        }
        self.history.lock().touch(&self.tenant, &shown);
        answers
    }

    /// Returns the place of the answer to a prompt. `eos` are the ids that end it.
    pub fn place(self, prompt: &LocatedPrompt, eos: Vec<u32>) -> AnswerPlace {
        let length = prompt.len();
        let place = Place::Prompt(length, prompt.hashes(self.key, &[length])[0]);
        AnswerPlace { of: self, place, eos }
    }

    /// Returns the hash of messages: of those before the last one, `None` for none, and of its text.
    pub fn message_key(&self, before: Option<u64>, message: &str) -> u64 {
        self.history.secret.hash_one((before.unwrap_or(self.key), message))
    }

    /// Returns those of these hashes of messages that end with an answer, with the answer.
    pub fn messages(&self, keys: &[u64]) -> Vec<(u64, Arc<str>)> {
        let places: Vec<Place> = keys.iter().map(|key| Place::Messages(*key)).collect();
        let mut answers = self.history.lock();
        let known = answers.known(&self.tenant, &places);
        let places: Vec<Place> = known.iter().map(|(place, _)| *place).collect();
        answers.touch(&self.tenant, &places);
        let message = |(place, content)| match (place, content) {
            (Place::Messages(key), Remembered::Message(json)) => Some((key, json)),
            _ => None,
        };
        known.into_iter().filter_map(message).collect()
    }

    /// Remembers the answer, as JSON, at the end of messages with this hash.
    pub fn remember_message(&self, key: u64, json: &str) {
        let message = Remembered::Message(json.into());
        self.history.lock().insert(&self.tenant, Place::Messages(key), message);
    }
}

impl AnswerPlace {
    /// Returns the tokens of an answer without the one that ends it.
    pub fn without_end<'a>(&self, tokens: &'a [u32]) -> &'a [u32] {
        match tokens.split_last() {
            Some((last, rest)) if self.eos.contains(last) => rest,
            _ => tokens,
        }
    }

    /// Remembers the answer.
    pub fn remember(&self, tokens: &[u32]) {
        if !tokens.is_empty() {
            let tokens = Remembered::Tokens(tokens.into());
            self.of.history.lock().insert(&self.of.tenant, self.place, tokens);
        }
    }
}

impl ExactHistory {
    fn lock(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Answers {
    /// Returns the numbers of bytes, up to `most`, after which a tenant's answers begin, in ascending order.
    fn lengths(&self, tenant: &str, most: usize) -> Vec<usize> {
        let Some(own) = self.tenants.get(tenant) else { return Vec::new() };
        let length = |place: &Place| match place {
            Place::Prompt(length, _) => Some(*length),
            Place::Messages(_) => None,
        };
        let places = own.by_place.range(..=Place::Prompt(most, u64::MAX));
        let mut lengths: Vec<usize> = places.filter_map(|(place, _)| length(place)).collect();
        lengths.dedup();
        lengths
    }

    /// Returns what is remembered at those of these places that have an answer.
    fn known(&self, tenant: &str, places: &[Place]) -> Vec<(Place, Remembered)> {
        let Some(own) = self.tenants.get(tenant) else { return Vec::new() };
        let known = |place: &Place| Some((*place, own.by_place.get(place)?.content.clone()));
        places.iter().filter_map(known).collect()
    }

    /// Marks answers as used now.
    fn touch(&mut self, tenant: &str, places: &[Place]) {
        for place in places {
            if let Some(content) = self.remove(tenant, *place) {
                self.insert(tenant, *place, content);
            }
        }
    }

    /// Stores an answer. The tenant's oldest ones, then those of all, make room for it.
    fn insert(&mut self, tenant: &str, place: Place, content: Remembered) {
        self.time += 1;
        let answer = Answer { content, used: self.time };
        let bytes = answer.bytes();
        if bytes > TENANT_BYTES {
            return;
        }
        self.remove(tenant, place);
        while let Some(own) = self.tenants.get(tenant)
            && own.bytes + bytes > TENANT_BYTES
            && let Some((_, &oldest)) = own.used.first_key_value()
        {
            self.remove(tenant, oldest);
        }
        while self.bytes + bytes > BYTES
            && let Some((_, (owner, oldest))) = self.used.first_key_value()
        {
            let (owner, oldest) = (owner.clone(), *oldest);
            self.remove(&owner, oldest);
        }
        let known = self.tenants.get_key_value(tenant).map(|(name, _)| name.clone());
        let tenant = known.unwrap_or_else(|| tenant.into());
        self.used.insert(self.time, (tenant.clone(), place));
        self.bytes += bytes;
        let own = self.tenants.entry(tenant).or_default();
        own.used.insert(self.time, place);
        own.by_place.insert(place, answer);
        own.bytes += bytes;
    }

    /// Removes an answer and returns it.
    fn remove(&mut self, tenant: &str, place: Place) -> Option<Remembered> {
        let own = self.tenants.get_mut(tenant)?;
        let answer = own.by_place.remove(&place)?;
        own.used.remove(&answer.used);
        own.bytes -= answer.bytes();
        self.used.remove(&answer.used);
        self.bytes -= answer.bytes();
        if own.by_place.is_empty() {
            self.tenants.remove(tenant);
        }
        Some(answer.content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Place::{Messages, Prompt};

    fn tokens(count: usize) -> Remembered {
        Remembered::Tokens(vec![7; count].into())
    }

    #[test]
    fn tenants_have_their_own_answers() {
        let mut answers = Answers::default();
        answers.insert("1", Prompt(5, 50), tokens(3));
        answers.insert("1", Prompt(9, 90), tokens(4));
        answers.insert("1", Prompt(9, 91), tokens(4));
        answers.insert("1", Messages(9), Remembered::Message("{}".into()));
        assert_eq!(answers.lengths("1", 9), [5, 9]);
        assert_eq!(answers.lengths("1", usize::MAX), [5, 9]);
        assert_eq!(answers.lengths("1", 8), [5]);
        let (known, unknown) = (Prompt(5, 50), Prompt(5, 51));
        assert_eq!(answers.known("1", &[known, unknown]), [(known, tokens(3))]);
        assert!(answers.lengths("2", 9).is_empty() && answers.known("2", &[known]).is_empty());
        answers.insert("1", known, tokens(8));
        assert_eq!(answers.known("1", &[known]), [(known, tokens(8))], "the latest stays");
        assert_eq!(answers.bytes, 4 * ENTRY + 4 * (8 + 4 + 4) + 2);
    }

    #[test]
    fn memory_is_bounded_and_what_is_used_stays() {
        let mut answers = Answers::default();
        let first = Prompt(0, 0);
        answers.insert("1", first, tokens(1));
        let many = (1 << 20) / 4;
        for i in 1..=100 {
            answers.insert("1", Prompt(i, 0), tokens(many));
            answers.touch("1", &[first]);
            assert!(answers.bytes <= TENANT_BYTES);
        }
        assert_eq!(answers.lengths("1", 200), [0, 98, 99, 100]);
        answers.insert("1", Prompt(500, 0), tokens(TENANT_BYTES / 4));
        assert!(answers.known("1", &[Prompt(500, 0)]).is_empty(), "it is too long");
        for tenant in 2..10 {
            for i in 0..20 {
                answers.insert(&tenant.to_string(), Prompt(i, 0), tokens(many));
                assert!(answers.bytes <= BYTES);
            }
        }
        assert!(answers.lengths("1", 200).is_empty(), "nobody used them for the longest time");
        assert!(answers.lengths("9", 200).len() > 2, "the last ones stay");
        let held: usize = answers.tenants.values().map(|own| own.bytes).sum();
        assert_eq!((held, answers.used.len()), (answers.bytes, held / (ENTRY + (1 << 20))));
    }
}
