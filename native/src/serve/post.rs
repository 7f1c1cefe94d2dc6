//! The way of updates from the engine's thread to the requests' tasks.
//!
//! Every message to a sleeping task wakes a thread, which takes the sender as long as a third of a
//! small model's forward pass, and every write of a response's task a good part of one. So what steps
//! give leaves as one message, at most once in four milliseconds, and a task hands it out.

use super::worker::Update;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// How long an update may wait for others. Nobody sees it: a screen shows a picture every 16 ms.
const PATIENCE: Duration = Duration::from_millis(4);

/// Updates with whom they are for.
type Mail = Vec<(UnboundedSender<Update>, Update)>;

/// What waits to be sent, and where it goes.
pub struct Post {
    mail: Mail,
    urgent: bool,
    sent: Instant,
    to: UnboundedSender<Mail>,
}

impl Post {
    /// Hands out in a task of this runtime.
    pub fn start(tasks: &Handle) -> Self {
        let (to, mail) = unbounded_channel();
        tasks.spawn(hand_out(mail));
        Self { mail: Vec::new(), urgent: false, sent: Instant::now(), to }
    }

    /// Takes an update; an urgent one waits for nothing but the end of the step.
    pub fn add(&mut self, to: UnboundedSender<Update>, update: Update, urgent: bool) {
        self.mail.push((to, update));
        self.urgent |= urgent;
    }

    /// After a step: sends what has waited long enough, or everything.
    pub fn send(&mut self, everything: bool) {
        let due = everything || self.urgent || self.sent.elapsed() >= PATIENCE;
        if self.mail.is_empty() || !due {
            return;
        }
        // A server that hears nothing any more has ended.
        let _ = self.to.send(std::mem::take(&mut self.mail));
        (self.urgent, self.sent) = (false, Instant::now());
    }
}

/// Hands out what comes, in its order.
async fn hand_out(mut mail: UnboundedReceiver<Mail>) {
    while let Some(mail) = mail.recv().await {
        for (updates, update) in mail {
            // Of a closed channel the engine's thread learns before its next step.
            let _ = updates.send(update);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn updates_wait_for_each_other_but_not_for_long() {
        let mut post = Post::start(&Handle::current());
        let (to, mut updates) = unbounded_channel();
        let mut arrived = async |post: &mut Post, everything| {
            post.send(everything);
            tokio::time::timeout(Duration::from_millis(50), updates.recv())
                .await
                .is_ok_and(|got| got.is_some())
        };
        post.sent = Instant::now() + Duration::from_secs(1);
        post.add(to.clone(), Update::Embedded(Vec::new()), false);
        assert!(!arrived(&mut post, false).await, "it has not waited yet");
        assert!(arrived(&mut post, true).await);
        post.sent = Instant::now() + Duration::from_secs(1);
        post.add(to.clone(), Update::Embedded(Vec::new()), true);
        assert!(arrived(&mut post, false).await, "it is urgent");
        post.add(to, Update::Embedded(Vec::new()), false);
        std::thread::sleep(PATIENCE);
        assert!(arrived(&mut post, false).await, "it has waited");
    }
}
