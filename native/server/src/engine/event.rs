//! Events of a request: what the engine's thread sends to the task that answers it.

use futures_util::Stream;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use wrinklefree::engine::EventKind;

/// Most events of an output that its client has not read, some 10 MiB. An output that has more ends: only
/// a client that reads much slower than the model writes lets so many wait.
pub const MAX_UNREAD: usize = 32_768;
/// Most events that wait when the slots of a pass are sent: they are for display, and only the newest matter.
const MAX_UNREAD_SLOTS: usize = 64;

/// An event of a request, and the request's times until then. There is at most one for each token of
/// prompt and output, and [`MAX_UNREAD`] that nobody has read.
#[derive(Clone, Debug)]
pub struct RequestEvent {
    /// The event, as the engine reported it.
    pub kind: EventKind,
    /// Times until then.
    pub times: RequestTimes,
}

/// Times of a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestTimes {
    /// From arrival to the first token.
    pub first_token: Duration,
    /// From the first token to the last.
    pub decode: Duration,
}

/// Returns both ends of the channel of one output.
pub fn channel() -> (EventSender, EventReceiver) {
    let (events, receiver) = unbounded_channel();
    let unread = Arc::new(AtomicUsize::new(0));
    (EventSender { events, unread: unread.clone() }, EventReceiver { receiver, unread })
}

/// Sends the events of one output.
#[derive(Clone, Debug)]
pub struct EventSender {
    events: UnboundedSender<RequestEvent>,
    unread: Arc<AtomicUsize>,
}

impl EventSender {
    /// Sends an event, unless the receiver is gone. Leaves slots out where the receiver reads slowly.
    pub fn send(&self, event: RequestEvent) {
        let slow = self.unread.load(Ordering::Relaxed) >= MAX_UNREAD_SLOTS;
        if slow && matches!(event.kind, EventKind::Slots(_)) {
            return;
        }
        self.unread.fetch_add(1, Ordering::Relaxed);
        let _ = self.events.send(event);
    }

    /// Returns true if the receiver is gone, or has left too many events unread.
    pub fn is_abandoned(&self) -> bool {
        self.events.is_closed() || self.unread.load(Ordering::Relaxed) > MAX_UNREAD
    }
}

/// Receives the events of one output. Dropping it cancels the output.
#[derive(Debug)]
pub struct EventReceiver {
    receiver: UnboundedReceiver<RequestEvent>,
    unread: Arc<AtomicUsize>,
}

impl Stream for EventReceiver {
    type Item = RequestEvent;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<RequestEvent>> {
        let event = self.receiver.poll_recv(context);
        if let Poll::Ready(Some(_)) = &event {
            self.unread.fetch_sub(1, Ordering::Relaxed);
        }
        event
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::StreamExt;

    #[tokio::test]
    async fn slots_do_not_wait_for_a_slow_receiver() {
        let (events, mut receiver) = channel();
        let event =
            || RequestEvent { kind: EventKind::Slots(Vec::new()), times: RequestTimes::default() };
        (0..1000).for_each(|_| events.send(event()));
        for _ in 0..MAX_UNREAD_SLOTS {
            receiver.next().await.expect("an event");
        }
        events.send(RequestEvent { kind: EventKind::Embedded(Vec::new()), ..event() });
        let next = receiver.next().await.expect("an event").kind;
        assert_eq!(next, EventKind::Embedded(Vec::new()));
    }

    #[tokio::test]
    async fn a_receiver_that_reads_too_little_is_abandoned() {
        let (events, mut receiver) = channel();
        let event = || RequestEvent {
            kind: EventKind::Embedded(Vec::new()),
            times: RequestTimes::default(),
        };
        (0..=MAX_UNREAD).for_each(|_| events.send(event()));
        assert!(events.is_abandoned());
        receiver.next().await.expect("an event");
        assert!(!events.is_abandoned(), "it reads on");
        drop(receiver);
        assert!(events.is_abandoned());
    }
}
