//! Carries events from the engine's thread to the tasks of requests, in batches.
//!
//! Waking a sleeping task costs the sender up to a third of a small model's forward pass, and each
//! write of a response costs a good part of one. So the events of several steps leave as one message,
//! at most every [`FLUSH_INTERVAL`], and a task delivers them.

use super::event::{EventSender, RequestEvent};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Longest time an event waits for others. It is invisible: a display refreshes every 16 ms.
const FLUSH_INTERVAL: Duration = Duration::from_millis(4);

/// Events with their receivers, in order.
type EventBatch = Vec<(EventSender, RequestEvent)>;

/// Collects events and sends them in batches.
pub struct EventBatcher {
    batch: EventBatch,
    urgent: bool,
    last_flush: Instant,
    batches: UnboundedSender<EventBatch>,
}

impl EventBatcher {
    /// Spawns the delivery task on `runtime`.
    pub fn start(runtime: &Handle) -> Self {
        let (batches, receiver) = unbounded_channel();
        runtime.spawn(deliver_loop(receiver));
        Self { batch: Vec::new(), urgent: false, last_flush: Instant::now(), batches }
    }

    /// Adds an event. An urgent one makes the next [`flush`](Self::flush) send the batch.
    pub fn push(&mut self, to: EventSender, event: RequestEvent, urgent: bool) {
        self.batch.push((to, event));
        self.urgent |= urgent;
    }

    /// Called after each step: sends the batch if it is urgent or old enough, or if `force` is set.
    pub fn flush(&mut self, force: bool) {
        let due = force || self.urgent || self.last_flush.elapsed() >= FLUSH_INTERVAL;
        if self.batch.is_empty() || !due {
            return;
        }
        // Fails only after the server has shut down.
        let _ = self.batches.send(std::mem::take(&mut self.batch));
        (self.urgent, self.last_flush) = (false, Instant::now());
    }
}

/// Delivers batches in order.
async fn deliver_loop(mut batches: UnboundedReceiver<EventBatch>) {
    while let Some(batch) = batches.recv().await {
        for (events, event) in batch {
            // The engine's thread notices closed channels before its next step.
            events.send(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::event;
    use crate::engine::event::RequestTimes;
    use futures_util::StreamExt;
    use wrinklefree::engine::EventKind;

    fn an_event() -> RequestEvent {
        RequestEvent { kind: EventKind::Embedded(Vec::new()), times: RequestTimes::default() }
    }

    #[tokio::test]
    async fn events_are_batched_for_a_short_time() {
        let mut batcher = EventBatcher::start(&Handle::current());
        let (to, mut events) = event::channel();
        let mut arrived = async |batcher: &mut EventBatcher, force| {
            batcher.flush(force);
            tokio::time::timeout(Duration::from_millis(50), events.next())
                .await
                .is_ok_and(|got| got.is_some())
        };
        batcher.last_flush = Instant::now() + Duration::from_secs(1);
        batcher.push(to.clone(), an_event(), false);
        assert!(!arrived(&mut batcher, false).await, "the interval has not passed");
        assert!(arrived(&mut batcher, true).await, "the flush is forced");
        batcher.last_flush = Instant::now() + Duration::from_secs(1);
        batcher.push(to.clone(), an_event(), true);
        assert!(arrived(&mut batcher, false).await, "the event is urgent");
        batcher.push(to, an_event(), false);
        std::thread::sleep(FLUSH_INTERVAL);
        assert!(arrived(&mut batcher, false).await, "the interval has passed");
    }
}
