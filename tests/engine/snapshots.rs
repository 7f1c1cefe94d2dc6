//! Snapshots of outputs: the whole output so far, from the events of a request.

use wrinklefree::chat::tools::CallParser;
use wrinklefree::chat::{OutputParser, Snapshot, Snapshots};
use wrinklefree::decode::{DecodeMode, DraftCounts, FinishReason, Sampled, Slot, Unmask};
use wrinklefree::engine::{EventKind, Request};
use wrinklefree::text::{ReasoningMarkers, ReasoningParser, ReasoningStart};

fn token(text: &str) -> EventKind {
    let sampled = Sampled { token: 7, logprob: None, top: Vec::new() };
    EventKind::Token { sampled, text: text.into() }
}

fn end(text: &str) -> EventKind {
    let (reason, drafts) = (FinishReason::Length, DraftCounts::default());
    EventKind::Finished { reason, text: text.into(), passes: 1, cached: 0, drafts }
}

fn slots(places: &str) -> EventKind {
    let slot = |c: char| match c {
        'f' => Slot::Final(7, None),
        'e' => Slot::Final(2, None),
        'p' => Slot::Provisional(7, None),
        _ => Slot::Masked,
    };
    EventKind::Slots(places.chars().map(slot).collect())
}

fn diffusion(max_tokens: usize) -> Request {
    let mode = DecodeMode::Diffusion(crate::parameters::params(8, 8, Unmask::All));
    Request { mode, max_tokens, eos: vec![2], ..Request::default() }
}

#[test]
fn masks_stand_for_undecided_slots_within_the_output() {
    let shown = |places: &str, max_tokens: usize| {
        let mut all = Snapshots::new(&diffusion(max_tokens), OutputParser::default(), None);
        all.push(&token("a"));
        assert_eq!(all.take(), None, "the pass has not ended");
        all.push(&slots(places));
        all.take().expect("a snapshot").text
    };
    assert_eq!(shown("f___", 9), "a░░░");
    assert_eq!(shown("ffp_f_", 9), "a░░░");
    assert_eq!(shown("f___", 3), "a░░", "the output ends at max_tokens");
    assert_eq!(shown("f__e_", 9), "a░░", "the output ends at EOS");
    assert_eq!(shown("ffff", 9), "a");
}

#[test]
fn drafts_are_no_places_of_the_output() {
    let request = Request { mode: DecodeMode::Autoregressive, ..diffusion(9) };
    let mut all = Snapshots::new(&request, OutputParser::default(), None);
    all.push(&slots("pp"));
    assert_eq!(all.take(), None);
    all.push(&token("a"));
    all.push(&slots("fpp"));
    assert_eq!(all.take().expect("a snapshot").text, "a");
    all.push(&end("b"));
    assert_eq!(all.take().expect("the end").text, "ab");
    assert_eq!(all.take(), None);
}

#[test]
fn reasoning_is_apart_from_the_answer() {
    let markers = ReasoningMarkers { open: "<think>", close: "</think>" };
    let reasoning = ReasoningParser::new(markers, ReasoningStart::Optional);
    let parser = OutputParser::new(Some(reasoning), CallParser::Plain);
    let mut all = Snapshots::new(&diffusion(9), parser, None);
    all.push(&token("<think>Hm"));
    all.push(&slots("f__"));
    let Snapshot { text, reasoning } = all.take().expect("a snapshot");
    assert_eq!((text.as_str(), reasoning.as_str()), ("", "Hm░░"));
    all.push(&token("</think>So"));
    all.push(&slots("ff_"));
    let Snapshot { text, reasoning } = all.take().expect("a snapshot");
    assert_eq!((text.as_str(), reasoning.as_str()), ("So░", "Hm"));
}

#[test]
fn long_outputs_have_fewer_snapshots() {
    let mut all = Snapshots::new(&diffusion(usize::MAX), OutputParser::default(), None);
    let (passes, piece) = (2_000, "x".repeat(100));
    let mut bytes = 0;
    for _ in 0..passes {
        all.push(&token(&piece));
        all.push(&slots("f_"));
        bytes += all.take().map_or(0, |snapshot| snapshot.text.len());
    }
    // Without a bound these are 200 MB.
    assert!(bytes <= passes * ((16 << 10) + 200), "{bytes}");
    all.push(&end(""));
    assert_eq!(all.take().expect("the end").text.len(), passes * 100);
}
