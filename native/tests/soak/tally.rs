//! What clients saw, against what the server counted.

use crate::asks::{Ask, Kind};
use crate::common::server::Reply;
use std::collections::BTreeMap;
use std::fmt;

/// What some clients saw.
#[derive(Default)]
pub struct Tally {
    requests: usize,
    /// Replies read by status.
    statuses: BTreeMap<u16, usize>,
    /// Replies that the server's own handlers gave, by status; others are those of the HTTP parser.
    own: BTreeMap<u16, usize>,
    /// Answers that were read to their end.
    answers: usize,
    /// Requests whose replies nobody read, or not all.
    unread: usize,
    /// Answers that these, and requests refused in part, may have begun.
    begun: usize,
    /// Texts that a quiet server must repeat, by the number of their request.
    pub samples: Vec<(u64, Vec<String>)>,
}

impl Tally {
    /// A client left.
    pub fn unread(&mut self, ask: &Ask) {
        self.requests += 1;
        self.unread += 1;
        self.begun += ask.choices;
    }

    /// Replies to something strange: any, or none, but no failure of the server.
    pub fn strange(&mut self, ask: &Ask, replies: &[Reply]) {
        self.requests += 1;
        // Two requests at most.
        self.unread += 2_usize.saturating_sub(replies.len());
        self.begun += 2 * ask.choices;
        for reply in replies {
            self.reply(reply);
            if reply.status == 200 && ask.kind == Kind::Generation && reply.body.is_empty() {
                panic!("an empty answer: {}", reply.head);
            }
        }
    }

    /// The reply to a request that was sent as it should be.
    pub fn read(&mut self, ask: &Ask, replies: &[Reply]) {
        self.requests += 1;
        let Some(reply) = replies.first() else {
            // Bodies that are too large are not read to the end, and the reply may get lost.
            assert!(ask.kind == Kind::Bad, "no reply to {}", String::from_utf8_lossy(&ask.body));
            self.unread += 1;
            return;
        };
        self.reply(reply);
        match (reply.status, ask.kind) {
            (200, Kind::Generation) => self.answers += whole(reply, ask),
            (200, _) => {}
            (429, Kind::Generation | Kind::Bad) => self.begun += ask.choices,
            (400..500, Kind::Bad) => {}
            _ => panic!("{}: {}", String::from_utf8_lossy(&ask.body), reply.body),
        }
    }

    fn reply(&mut self, reply: &Reply) {
        assert!(matches!(reply.status, 200 | 400..500), "{}\n{}", reply.head, reply.body);
        *self.statuses.entry(reply.status).or_default() += 1;
        if reply.head.contains("x-request-id: ") {
            *self.own.entry(reply.status).or_default() += 1;
            if reply.status != 200 {
                let error = &reply.json()["error"];
                assert!(error["message"].as_str().is_some_and(|m| !m.is_empty()), "{error}");
            }
        }
    }

    /// Both together.
    pub fn and(mut self, other: Self) -> Self {
        self.requests += other.requests;
        self.answers += other.answers;
        self.unread += other.unread;
        self.begun += other.begun;
        self.samples.extend(other.samples);
        for (mine, theirs) in [(&mut self.statuses, other.statuses), (&mut self.own, other.own)] {
            for (status, count) in theirs {
                *mine.entry(status).or_default() += count;
            }
        }
        self
    }

    /// Fails unless every request is accounted for in the server's metrics, when it is idle.
    pub fn check(&self, metrics: &str) {
        let value = |name: &str| sum(metrics, name) as usize;
        let finished =
            |reason: &str| value(&format!("wf_requests_finished_total{{reason=\"{reason}\"}}"));
        let (taken, ended) = (value("wf_requests_total"), value("wf_requests_finished_total"));
        let cancelled = finished("cancelled");
        println!("the server took {taken}, of which {cancelled} were cancelled");
        assert_eq!(taken, ended, "whatever was taken has ended");
        assert_eq!(ended, cancelled + finished("stop") + finished("length"));
        assert!(ended - cancelled >= self.answers, "who read to the end was answered");
        assert!(cancelled <= self.begun, "{cancelled} cancelled, {} left", self.begun);
        for (&status, &seen) in self.own.iter().filter(|(status, _)| **status >= 400) {
            let counted = value(&format!("wf_requests_refused_total{{status=\"{status}\"}}"));
            assert!(counted >= seen, "{status}: {counted} counted, {seen} seen");
        }
        let seen: usize = self.own.range(400..).map(|(_, seen)| seen).sum();
        let counted = value("wf_requests_refused_total");
        assert!(counted <= seen + self.unread, "{counted} refused, {seen} seen");
        for gauge in ["wf_num_requests_running", "wf_num_requests_waiting"] {
            assert_eq!(value(gauge), 0, "{gauge}");
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requests, statuses, answers, unread, samples, .. } = self;
        writeln!(f, "{requests} requests: {answers} answers read to the end, {unread} unread")?;
        let statuses: Vec<_> = statuses.iter().map(|(s, n)| format!("{s}: {n}")).collect();
        writeln!(f, "statuses: {}; {} samples", statuses.join(", "), samples.len())
    }
}

/// The answers in a reply, all of which must be whole.
fn whole(reply: &Reply, ask: &Ask) -> usize {
    let streamed = reply.head.contains("text/event-stream");
    let chunks = if streamed { reply.chunks() } else { vec![reply.json()] };
    let choices = chunks.iter().flat_map(|c| c["choices"].as_array().into_iter().flatten());
    let ended = choices.filter(|choice| choice["finish_reason"].is_string()).count();
    assert!(ended > 0 && ended <= ask.choices, "{}: {}", ask.choices, reply.body);
    ended
}

/// The sum of a metric over its labels, or of one with these labels.
fn sum(metrics: &str, name: &str) -> f64 {
    let value = |line: &str| {
        let rest = line.strip_prefix(name)?;
        let rest = rest.strip_prefix('{').and_then(|r| r.split_once('}')).map_or(rest, |(_, r)| r);
        rest.strip_prefix(' ')?.trim().parse::<f64>().ok()
    };
    metrics.lines().filter_map(value).sum()
}
