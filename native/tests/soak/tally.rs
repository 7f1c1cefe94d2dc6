//! Compares the clients' observations with the server's metrics.

use crate::asks::{Ask, Kind};
use crate::common::server::Reply;
use std::collections::BTreeMap;
use std::fmt;

/// Observations of some clients.
#[derive(Default)]
pub struct Tally {
    requests: usize,
    /// Number of replies by status.
    statuses: BTreeMap<u16, usize>,
    /// Number of replies of the server's handlers by status. The HTTP parser gives the others.
    own: BTreeMap<u16, usize>,
    /// Number of outputs read to their end.
    answers: usize,
    /// Number of requests whose replies were not or only partly read.
    unread: usize,
    /// Maximum number of outputs that these requests and partly refused ones may have started.
    begun: usize,
    /// Texts that an idle server must repeat, with the number of their request.
    pub samples: Vec<(u64, Vec<String>)>,
}

impl Tally {
    /// Records a client that disconnected.
    pub fn unread(&mut self, ask: &Ask) {
        self.requests += 1;
        self.unread += 1;
        self.begun += ask.choices;
    }

    /// Records replies to a malformed request: any number, but no server error.
    pub fn strange(&mut self, ask: &Ask, replies: &[Reply]) {
        self.requests += 1;
        // There are at most two requests.
        self.unread += 2_usize.saturating_sub(replies.len());
        self.begun += 2 * ask.choices;
        for reply in replies {
            self.reply(reply);
            if reply.status == 200 && ask.kind == Kind::Generation && reply.body.is_empty() {
                panic!("an empty answer: {}", reply.head);
            }
        }
    }

    /// Records the reply to a well-formed request.
    pub fn read(&mut self, ask: &Ask, replies: &[Reply]) {
        self.requests += 1;
        let Some(reply) = replies.first() else {
            // The server does not read oversized bodies to the end, so the reply may get lost.
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

    /// Adds the observations of `other`.
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

    /// Asserts that the metrics of the idle server account for every request.
    pub fn check(&self, metrics: &str) {
        let value = |name: &str| sum(metrics, name) as usize;
        let finished =
            |reason: &str| value(&format!("wf_requests_finished_total{{reason=\"{reason}\"}}"));
        let (taken, ended) = (value("wf_requests_total"), value("wf_requests_finished_total"));
        let cancelled = finished("cancelled");
        println!("the server accepted {taken} requests, {cancelled} were cancelled");
        assert_eq!(taken, ended, "every accepted request has finished");
        assert_eq!(ended, cancelled + finished("stop") + finished("length"));
        assert!(ended - cancelled >= self.answers, "every output read to its end was counted");
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

/// Returns the number of outputs in a reply, all of which must be complete.
fn whole(reply: &Reply, ask: &Ask) -> usize {
    let streamed = reply.head.contains("text/event-stream");
    let chunks = if streamed { reply.chunks() } else { vec![reply.json()] };
    let choices = chunks.iter().flat_map(|c| c["choices"].as_array().into_iter().flatten());
    let ended = choices.filter(|choice| choice["finish_reason"].is_string()).count();
    assert!(ended > 0 && ended <= ask.choices, "{}: {}", ask.choices, reply.body);
    ended
}

/// Returns the sum of a metric over its labels, or the value for given labels.
fn sum(metrics: &str, name: &str) -> f64 {
    let value = |line: &str| {
        let rest = line.strip_prefix(name)?;
        let rest = rest.strip_prefix('{').and_then(|r| r.split_once('}')).map_or(rest, |(_, r)| r);
        rest.strip_prefix(' ')?.trim().parse::<f64>().ok()
    };
    metrics.lines().filter_map(value).sum()
}
