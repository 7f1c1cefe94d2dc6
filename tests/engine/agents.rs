//! Long conversations of client programs that call tools, with a hybrid model: what the prefix cache keeps
//! of them in few recurrent states.

use crate::common::Noise;
use std::collections::BTreeMap;
use wrinklefree::cache::{KvConfig, PAGE, StateLimits};
use wrinklefree::engine::{
    Engine, EngineConfig, EventKind, FinishReason, MessageEnds, Request, SeqId, Step,
};
use wrinklefree::format::Spec;
use wrinklefree::kernel::Kernels;
use wrinklefree::model::{Model, Runtime};
use wrinklefree::par::ThreadPool;

const VOCAB: usize = 40;
/// Tokens that begin and end a message, and that begin thinking.
const BEGIN: u32 = 1;
const END: u32 = 2;
const THINK: u32 = 3;
/// Tokens of the roles.
const SYSTEM: u32 = 4;
const USER: u32 = 5;
const ASSISTANT: u32 = 6;
const TOOL: u32 = 7;
/// Number of tokens of an answer, and of the thinking at its beginning.
const ANSWER: usize = 60;
const THINKING: usize = 25;
/// Tokens that the next question may compute more than what the template has changed.
const ALLOWED: usize = 84;

/// An engine, and the texts that it has read and written.
struct Server {
    engine: Engine,
    texts: Vec<Vec<u32>>,
    tally: Tally,
}

/// Numbers of prompt tokens.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    all: usize,
    computed: usize,
    /// Tokens after the longest beginning in common with any earlier text.
    new: usize,
}

impl Server {
    fn new(snapshots: usize) -> Self {
        Self::with(snapshots, true, 4096)
    }

    fn with(snapshots: usize, prefix_cache: bool, kv_pages: usize) -> Self {
        let spec = Spec { vocab_size: VOCAB, ..crate::hybrid::rotated() };
        let weights = crate::hybrid::weights(&spec, crate::hybrid::Kind::Ternary, true, 12);
        let states = StateLimits { snapshots, ..StateLimits::default() };
        let config = EngineConfig {
            max_context: 16_384,
            kv_pages,
            prefix_cache,
            kv: KvConfig { states, ..KvConfig::default() },
            ..EngineConfig::default()
        };
        let runtime =
            Runtime { kernels: Kernels::best(), thread_pool: ThreadPool::new(1).unwrap() };
        let model = Model::new(spec, weights).unwrap();
        let engine = Engine::new(model, None, runtime, config).unwrap();
        Self { engine, texts: Vec::new(), tally: Tally::default() }
    }

    /// Answers prompts at the same time. Returns the outputs and the numbers of these requests.
    fn answer_all(&mut self, requests: Vec<Request>) -> (Vec<Vec<u32>>, Tally) {
        let mut prompts: BTreeMap<SeqId, (Vec<u32>, Vec<u32>, usize)> = BTreeMap::new();
        for request in requests {
            let prompt = request.tokens.clone();
            prompts.insert(self.engine.submit(request).unwrap(), (prompt, Vec::new(), 0));
        }
        while self.engine.step() != Step::Idle {}
        while let Some(event) = self.engine.poll() {
            let (_, output, found) = prompts.get_mut(&event.seq).unwrap();
            match event.kind {
                EventKind::Token { sampled, .. } => output.push(sampled.token),
                EventKind::Finished { cached, .. } => *found = cached,
                _ => {}
            }
        }
        let mut sum = Tally::default();
        let mut outputs = Vec::new();
        for (prompt, output, found) in prompts.into_values() {
            let common = |text: &Vec<u32>| {
                text.iter().zip(&prompt).take_while(|(a, b)| a == b).count().min(prompt.len())
            };
            sum.all += prompt.len();
            sum.computed += prompt.len() - found;
            sum.new += prompt.len() - self.texts.iter().map(common).max().unwrap_or(0);
            self.texts.push([prompt, output.clone()].concat());
            outputs.push(output);
        }
        self.tally.all += sum.all;
        self.tally.computed += sum.computed;
        self.tally.new += sum.new;
        (outputs, sum)
    }

    /// Answers a prompt. Returns the output and the numbers of this request.
    fn answer(&mut self, request: Request) -> (Vec<u32>, Tally) {
        let (mut outputs, tally) = self.answer_all(vec![request]);
        (outputs.remove(0), tally)
    }
}

/// A message of a conversation.
enum Message {
    Question(Vec<u32>),
    Answer(Vec<u32>),
    Result(Vec<u32>),
}

/// A client's conversation: a system text with tools, questions, calls and their results.
struct Agent {
    noise: Noise,
    system: Vec<u32>,
    messages: Vec<Message>,
    /// True if the template keeps the thinking of earlier questions.
    keeps_thinking: bool,
}

fn text(noise: &mut Noise, length: usize) -> Vec<u32> {
    (0..length).map(|_| 9 + (noise.bits() >> 20) as u32 % (VOCAB as u32 - 9)).collect()
}

fn message(role: u32, text: &[u32]) -> Vec<u32> {
    [&[BEGIN, role], text, &[END]].concat()
}

impl Agent {
    fn new(system: u64, length: usize, seed: u64) -> Self {
        let system = text(&mut Noise(0xabcd + (system << 20)), length);
        let noise = Noise(0x1234_5678 + (seed << 24));
        Self { noise, system, messages: Vec::new(), keeps_thinking: false }
    }

    /// The prompt, as a template renders it: thinking of answers before the last question is dropped.
    fn request(&self) -> Request {
        let mut tokens = message(SYSTEM, &self.system);
        let mut message_ends = MessageEnds { system: Some(tokens.len()), question: None };
        let is_question = |message: &Message| matches!(message, Message::Question(_));
        let last = self.messages.iter().rposition(is_question).unwrap();
        for (index, said) in self.messages.iter().enumerate() {
            tokens.extend(match said {
                Message::Question(text) => message(USER, text),
                Message::Result(text) => message(TOOL, text),
                Message::Answer(text) if index > last || self.keeps_thinking => {
                    message(ASSISTANT, &[&[THINK], &text[..]].concat())
                }
                Message::Answer(text) => message(ASSISTANT, &text[THINKING..]),
            });
            if index == last {
                message_ends.question = Some(tokens.len());
            }
        }
        let stable_prefix = Some(tokens.len());
        tokens.extend([BEGIN, ASSISTANT, THINK]);
        Request { tokens, stable_prefix, message_ends, max_tokens: ANSWER, ..Request::default() }
    }

    /// Says something, and lets the model answer. Returns the numbers of the request.
    fn say(&mut self, server: &mut Server, said: Message) -> Tally {
        self.messages.push(said);
        let (output, tally) = server.answer(self.request());
        self.messages.push(Message::Answer(output));
        tally
    }

    fn ask(&mut self, server: &mut Server) -> Tally {
        let question = text(&mut self.noise, 70);
        self.say(server, Message::Question(question))
    }

    fn call(&mut self, server: &mut Server) -> Tally {
        let result = text(&mut self.noise, 110);
        self.say(server, Message::Result(result))
    }
}

/// After many calls, the next question continues from the last one: the state at its end has stayed.
#[test]
fn the_next_question_reads_what_the_template_changed() {
    for (calls, states) in [(20, 32), (8, 6), (20, 4)] {
        let mut server = Server::new(states);
        let mut agent = Agent::new(0, 1000, 1);
        agent.ask(&mut server);
        for question in 0..3 {
            for _ in 0..calls {
                let tally = agent.call(&mut server);
                assert!(tally.computed <= tally.new + PAGE, "a call: {tally:?}");
            }
            let tally = agent.ask(&mut server);
            let text = format!("question {question} after {calls} calls, {states} states");
            assert!(tally.computed <= tally.new + ALLOWED, "{text}: {tally:?}");
        }
        assert!(server.engine.stats().snapshots <= states);
    }
}

/// A template that keeps thinking changes nothing, so all but a page is cached.
#[test]
fn kept_thinking_is_cached() {
    let mut server = Server::new(6);
    let mut agent = Agent::new(0, 1000, 1);
    agent.keeps_thinking = true;
    agent.ask(&mut server);
    for _ in 0..3 {
        for _ in 0..8 {
            agent.call(&mut server);
        }
        let tally = agent.ask(&mut server);
        assert!(tally.computed <= tally.new + PAGE, "{tally:?}");
    }
}

/// Another chat begins with the same system text and tools, long after the first one did.
#[test]
fn a_second_chat_has_the_system_text() {
    for states in [4, 6, 32] {
        let mut server = Server::new(states);
        let mut first = Agent::new(0, 1500, 1);
        first.ask(&mut server);
        for _ in 0..12 {
            first.call(&mut server);
        }
        let mut second = Agent::new(0, 1500, 2);
        let tally = second.ask(&mut server);
        // The beginning of the question is the same, too.
        assert!(tally.computed <= tally.new + PAGE + 2, "{states} states: {tally:?}");
        // The first one lost nothing.
        let tally = first.call(&mut server);
        assert!(tally.computed <= tally.new + PAGE, "{states} states: {tally:?}");
    }
}

/// Eight agents in turn, with one system text and with one each, and with a template that drops or keeps
/// thinking: at most so many percent are computed.
#[test]
fn agents_in_turn_keep_their_states() {
    for (systems, keeps_thinking, most) in
        [(1, false, 16), (8, false, 16), (1, true, 10), (8, true, 10)]
    {
        let mut server = Server::new(20);
        let agent = |i: u64| Agent { keeps_thinking, ..Agent::new(i % systems, 1000, i) };
        let mut agents: Vec<Agent> = (0..8).map(agent).collect();
        for question in 0..3 {
            agents.iter_mut().for_each(|agent| _ = agent.ask(&mut server));
            if question == 0 {
                // What each must read at first is the same with any cache.
                server.tally = Tally::default();
            }
            for _ in 0..6 {
                agents.iter_mut().for_each(|agent| _ = agent.call(&mut server));
            }
        }
        let Tally { all, computed, new } = server.tally;
        let requests = 8 * (3 * 7 - 1);
        let text =
            format!("{systems} systems, keeps thinking: {keeps_thinking}: {:?}", server.tally);
        println!("{text}");
        assert!(computed <= new + requests * PAGE, "{text}");
        assert!(computed * 100 <= all * most, "{text}");
    }
}

/// Some conversations keep their states where there are too few for all, instead of all losing them in turn.
#[test]
fn too_few_states_are_of_use() {
    let mut server = Server::new(8);
    let mut agents: Vec<Agent> = (0..8).map(|i| Agent::new(0, 1000, i)).collect();
    agents.iter_mut().for_each(|agent| _ = agent.ask(&mut server));
    server.tally = Tally::default();
    for _ in 0..10 {
        agents.iter_mut().for_each(|agent| _ = agent.call(&mut server));
    }
    let Tally { all, computed, .. } = server.tally;
    println!("8 states: {:?}", server.tally);
    assert!(computed * 100 <= all * 30, "{:?}", server.tally);
}

/// One-off requests with a system text of their own displace no conversation that lives.
#[test]
fn titles_between_the_calls_displace_nothing() {
    let mut server = Server::new(8);
    let mut agent = Agent::new(0, 1000, 1);
    agent.ask(&mut server);
    for i in 0..30 {
        let mut title = Agent::new(1, 200, 100 + i);
        title.ask(&mut server);
        let tally = agent.call(&mut server);
        assert!(tally.computed <= tally.new + PAGE, "call {i}: {tally:?}");
    }
    let tally = agent.ask(&mut server);
    assert!(tally.computed <= tally.new + ALLOWED, "{tally:?}");
}

/// Requests at the same time that begin alike compute their beginning once.
#[test]
fn prompts_in_flight_share_their_beginning() {
    let mut server = Server::new(16);
    let mut agents: Vec<Agent> = (0..3).map(|i| Agent::new(0, 3000, i)).collect();
    for agent in &mut agents {
        let question = text(&mut agent.noise, 70);
        agent.messages.push(Message::Question(question));
    }
    let (_, tally) = server.answer_all(agents.iter().map(Agent::request).collect());
    assert_eq!(server.texts.len(), 3);
    assert!(tally.computed <= tally.new + 2 * (PAGE + 2), "{tally:?}");
    // The system text once, three questions, and a page each.
    assert!(tally.computed <= 3002 + 3 * (75 + PAGE), "{tally:?}");
    // Outputs of one prompt read it once, without known messages, too.
    let prompt = text(&mut Noise(77), 2000);
    let request = Request { tokens: prompt, max_tokens: 4, ..Request::default() };
    let (_, tally) = server.answer_all(vec![request; 4]);
    assert!(tally.computed <= 2000 + 3 * PAGE, "{tally:?}");
}

/// A sequence that waits for another's text goes on when that is cancelled or taken out of the queue, and
/// others pass it meanwhile.
#[test]
fn nobody_waits_for_what_is_cancelled() {
    for park in [false, true] {
        let mut server = Server::new(16);
        let agents: Vec<Agent> = (0..2).map(|i| Agent::new(0, 3000, i)).collect();
        let ids: Vec<SeqId> = agents
            .into_iter()
            .map(|mut agent| {
                agent.messages.push(Message::Question(text(&mut agent.noise, 70)));
                server.engine.submit(agent.request()).unwrap()
            })
            .collect();
        let other = Request { tokens: vec![9; 40], max_tokens: 2, ..Request::default() };
        let other = server.engine.submit(other).unwrap();
        server.engine.step();
        let stats = server.engine.stats();
        assert_eq!((stats.running, stats.waiting), (2, 1), "the second agent waits");
        if park {
            server.engine.park(ids[0])
        } else {
            server.engine.cancel(ids[0])
        }
        let mut ended = BTreeMap::new();
        while server.engine.step() != Step::Idle {}
        if park {
            server.engine.resume(ids[0]);
            while server.engine.step() != Step::Idle {}
        }
        while let Some(event) = server.engine.poll() {
            if let EventKind::Finished { reason, .. } = event.kind {
                ended.insert(event.seq, reason);
            }
        }
        let first = if park { FinishReason::Length } else { FinishReason::Cancelled };
        let want = [(ids[0], first), (ids[1], FinishReason::Length), (other, FinishReason::Length)];
        assert_eq!(ended, BTreeMap::from(want));
    }
}

/// Whatever states are dropped, restored or shared, and whatever is read ahead or preempted: conversations
/// get the texts that an engine without a prefix cache gives.
#[test]
fn random_schedules_change_no_text() {
    let mut noise = Noise(0x5eed_a9e7);
    let mut below = |n: usize| (noise.bits() >> 20) as usize % n;
    let mut restored = 0;
    for _ in 0..8 {
        let (states, pages) = (below(9), 60 + below(80));
        let mut server = Server::with(states, true, pages);
        let mut plain = Server::with(0, false, 4096);
        let mut agents: Vec<Agent> =
            (0..3).map(|i| Agent::new(i % 2, 100 + 150 * below(2), i)).collect();
        for turn in 0..12 {
            let mut requests = Vec::new();
            let mut asked = Vec::new();
            for (index, agent) in agents.iter_mut().enumerate() {
                if turn > 0 && below(3) == 0 {
                    continue;
                }
                let (question, result) = (text(&mut agent.noise, 40), text(&mut agent.noise, 60));
                agent.messages.push(if turn > 0 && below(4) > 0 {
                    Message::Result(result)
                } else {
                    Message::Question(question)
                });
                let mut request = agent.request();
                if below(4) == 0 {
                    request.message_ends = MessageEnds::default();
                }
                (request.sampling.temperature, request.sampling.seed) = (1.0, turn as u64);
                requests.push(request);
                asked.push(index);
            }
            if below(3) == 0
                && let Some(request) = requests.first().cloned()
            {
                // A beginning that is read ahead in passes of few rows, until the requests come.
                let tokens = request.tokens[..=below(request.tokens.len())].to_vec();
                let rest = Request { max_tokens: 1, ..Request::default() };
                let ahead = Request { tokens, mode: request.mode, ..rest };
                server.engine.set_lone_prompt_rows(1 + below(64));
                let id = server.engine.submit(ahead).unwrap();
                (0..below(8)).for_each(|_| _ = server.engine.step());
                server.engine.cancel(id);
                server.engine.set_lone_prompt_rows(usize::MAX);
                while server.engine.poll().is_some() {}
            }
            if below(4) == 0
                && let Some(request) = requests.last()
            {
                // The server starts again, with one conversation of what it held.
                let saved = server.engine.save_prefix(("", 1), &request.tokens);
                server = Server::with(states, true, pages);
                let put = server.engine.restore_prefix(
                    ("", 1),
                    &request.tokens[..saved.positions],
                    &saved,
                );
                restored += put.expect("an empty cache has room");
            }
            let (want, _) = plain.answer_all(requests.clone());
            let (got, _) = server.answer_all(requests);
            assert!(got == want, "{states} states, {pages} pages, turn {turn}");
            for (index, output) in asked.into_iter().zip(got) {
                agents[index].messages.push(Message::Answer(output));
            }
            assert!(server.engine.stats().snapshots <= states);
        }
    }
    assert!(restored > 20 * PAGE, "{restored} positions came from saved prefixes");
}
