//! Automatic checks of the coherence of stories, the same as in
//! `models/train/coherence.py`.

use super::prompts::Story;
use anyhow::Context;
use serde::Deserialize;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;

/// Vocabulary that the embedded model was trained on.
static TAUGHT: &str = wrinklefree_model::VOCABULARY;

/// Largest distance in words between a species and its name, if the name is repeated and if not.
const NEAR: usize = 5;
const NEXT: usize = 2;

/// Words of stories.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vocabulary {
    /// All words.
    words: HashSet<String>,
    /// Names of characters.
    names: HashSet<String>,
    /// Species of characters.
    species: HashSet<String>,
    /// Colors of things.
    colors: HashSet<String>,
    /// Things that can be lost and found.
    things: HashSet<String>,
}

/// Checks that a story passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checks {
    /// Every word is a word.
    pub spelled: bool,
    /// All that the request names is there.
    pub asked: bool,
    /// Every name has its bearer.
    pub named: bool,
    /// True if the lost thing is the found thing; `None` if nothing is lost.
    pub found: Option<bool>,
}

/// Number of stories that pass each check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coherence {
    /// Stories.
    pub stories: usize,
    /// Those without a broken word.
    pub spelled: usize,
    /// Those with all that was asked for.
    pub asked: usize,
    /// Those whose names stay the same.
    pub named: usize,
    /// Those in which the lost thing is the found thing.
    pub found: usize,
    /// Those in which something is lost.
    pub lost: usize,
    /// Those that pass all checks.
    pub coherent: usize,
}

impl Coherence {
    /// Counts a story.
    pub fn add(&mut self, checks: Checks) {
        let Checks { spelled, asked, named, found } = checks;
        self.stories += 1;
        self.spelled += usize::from(spelled);
        self.asked += usize::from(asked);
        self.named += usize::from(named);
        self.lost += usize::from(found.is_some());
        self.found += usize::from(found == Some(true));
        self.coherent += usize::from(spelled && asked && named && found != Some(false));
    }
}

/// The words of a text: runs of letters.
fn words(text: &str) -> Vec<&str> {
    text.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| !word.is_empty()).collect()
}

/// The share of different n-grams among all.
pub fn distinct<'a>(texts: impl IntoIterator<Item = &'a str>, n: usize) -> f64 {
    let (mut different, mut all) = (HashSet::new(), 0);
    for text in texts {
        for gram in words(text).windows(n) {
            different.insert(gram.to_vec());
            all += 1;
        }
    }
    different.len() as f64 / all.max(1) as f64
}

impl Vocabulary {
    /// Reads the vocabulary of a file, or of the model inside this program.
    ///
    /// # Errors
    /// Names the file.
    pub fn read(path: Option<&Path>) -> anyhow::Result<Self> {
        let Some(path) = path else { return Ok(serde_json::from_str(TAUGHT)?) };
        let name = path.display();
        let text = fs::read_to_string(path);
        let text = text.with_context(|| format!("cannot read the vocabulary {name}"))?;
        serde_json::from_str(&text).with_context(|| format!("{name}: not a vocabulary"))
    }

    /// Checks a story against what was asked for.
    pub fn check(&self, text: &str, story: &Story) -> Checks {
        let words = words(text);
        let asked = |word: &String| words.contains(&word.as_str());
        Checks {
            spelled: words.iter().all(|word| self.knows(word)),
            asked: story.asked.iter().all(asked),
            named: self.named(&words, story),
            found: story.thing.as_deref().map(|thing| self.found(&words, thing)),
        }
    }

    /// Returns true if it is a word of the vocabulary, apart from a capital at its beginning.
    fn knows(&self, word: &str) -> bool {
        let lower = || word[..1].to_ascii_lowercase() + &word[1..];
        self.words.contains(word) || self.words.contains(&lower())
    }

    /// Returns true if a species is near one occurrence of each name, and next to a name that
    /// occurs only once. A name that the request has said already need only be said again, twice.
    fn named(&self, words: &[&str], story: &Story) -> bool {
        let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
        for (i, word) in words.iter().enumerate().filter(|(_, word)| self.names.contains(**word)) {
            places.entry(word).or_default().push(i);
        }
        places.iter().all(|(name, places)| {
            let again = places.len() > 1;
            let far = if again { NEAR } else { NEXT };
            let borne = |&i: &usize| {
                let near = &words[i.saturating_sub(far)..words.len().min(i + far + 1)];
                near.iter().any(|word| self.species.contains(*word))
            };
            again && story.asked.iter().any(|asked| asked == name) || places.iter().any(borne)
        })
    }

    /// Returns true if a thing stays the same: it occurs at least twice, always in the same color,
    /// and nothing else is lost or found in its place.
    fn found(&self, words: &[&str], thing: &str) -> bool {
        let twice = words.iter().filter(|word| **word == thing).count() >= 2;
        let before = words.windows(2).filter(|pair| pair[1] == thing).map(|pair| pair[0]);
        let colors: HashSet<&str> = before.filter(|word| self.colors.contains(*word)).collect();
        let other = words.iter().any(|word| *word != thing && self.things.contains(*word));
        twice && colors.len() <= 1 && !other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_words_strange_names_and_other_things_are_seen() {
        let vocabulary = Vocabulary::read(None).expect("valid");
        let good =
            "Mia was a small fox. Mia lost a red kite. Then Pip the bear found the red kite.";
        let asked = ["Mia", "fox"].map(String::from).to_vec();
        let story = Story { asked, thing: Some("kite".into()) };
        let all = Checks { spelled: true, asked: true, named: true, found: Some(true) };
        let check = |from: &str, to: &str| vocabulary.check(&good.replace(from, to), &story);
        assert_eq!(check("", ""), all);
        assert_eq!(check("small", "smalle"), Checks { spelled: false, ..all });
        assert_eq!(check("fox", "hen"), Checks { asked: false, ..all });
        assert_eq!(check("Mia lost", "Maya lost"), Checks { named: false, ..all });
        for other in ["the red ball", "the blue kite"] {
            assert_eq!(check("the red kite", other), Checks { found: Some(false), ..all });
        }
        let mut counts = Coherence::default();
        counts.add(all);
        counts.add(check("fox", "hen"));
        counts.add(Checks { found: None, ..all });
        let want = Coherence {
            stories: 3,
            spelled: 3,
            asked: 2,
            named: 3,
            found: 2,
            lost: 2,
            coherent: 2,
        };
        assert_eq!(counts, want);
    }

    #[test]
    fn distinct_counts_grams_within_texts() {
        let texts = ["a b a b", "a b."];
        assert!((distinct(texts, 1) - 2.0 / 6.0).abs() < 1e-9);
        assert!((distinct(texts, 2) - 2.0 / 4.0).abs() < 1e-9);
        assert!(distinct(["a"], 2).abs() < 1e-9);
    }
}
