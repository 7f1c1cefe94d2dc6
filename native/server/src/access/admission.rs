//! Admission of requests: how many bytes of bodies are in memory, and how many requests are parsed and
//! tokenized at the same time. Both are shared fairly between clients.

use super::client::Client;
use crate::error::ApiError;
use axum::http::StatusCode;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;

/// Smallest budget for the bytes of all bodies.
const MIN_BUDGET: usize = 32 << 20;
/// Bodies of the largest size that the budget holds at least.
const LARGEST_BODIES: usize = 4;
/// Maximum number of requests that are prepared at the same time.
const MAX_PREPARING: usize = 4;

/// The budgets of all requests.
#[derive(Debug)]
pub struct Admission {
    bytes: Arc<Semaphore>,
    preparing: Arc<Semaphore>,
    /// Bytes that one client may have in flight.
    share: usize,
    clients: Mutex<HashMap<Client, Weak<ClientShare>>>,
}

/// The part of the budgets that one client may use.
#[derive(Debug)]
struct ClientShare {
    bytes: Arc<Semaphore>,
    /// One request at a time is prepared, so a client delays others by at most one.
    turn: Arc<Semaphore>,
}

/// The bytes of a body that are in memory. Dropping it returns them to the budget.
#[derive(Debug)]
pub struct BodyPermit {
    client: Arc<ClientShare>,
    held: Vec<OwnedSemaphorePermit>,
}

impl Admission {
    /// Creates the budgets for bodies of at most `max_body` bytes.
    pub fn new(max_body: usize) -> Self {
        let budget = max_body.saturating_mul(LARGEST_BODIES).max(MIN_BUDGET);
        let budget = budget.min(Semaphore::MAX_PERMITS);
        // The other cores compute.
        let cores = thread::available_parallelism().map_or(1, |n| n.get() / 2);
        Self {
            bytes: Arc::new(Semaphore::new(budget)),
            preparing: Arc::new(Semaphore::new(cores.clamp(1, MAX_PREPARING))),
            share: budget / 2,
            clients: Mutex::default(),
        }
    }

    /// Returns a permit of zero bytes for a client.
    pub fn permit(&self, client: Client) -> BodyPermit {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let known = clients.get(&client).and_then(Weak::upgrade);
        let client = known.unwrap_or_else(|| {
            clients.retain(|_, share| share.strong_count() > 0);
            let bytes = Arc::new(Semaphore::new(self.share));
            let share = Arc::new(ClientShare { bytes, turn: Arc::new(Semaphore::new(1)) });
            clients.insert(client, Arc::downgrade(&share));
            share
        });
        BodyPermit { client, held: Vec::new() }
    }

    /// Adds `bytes` to a permit.
    ///
    /// # Errors
    /// 429 if the budget of the client or of the server is used up.
    pub fn grow(&self, permit: &mut BodyPermit, bytes: usize) -> Result<(), ApiError> {
        for budget in [&permit.client.bytes, &self.bytes] {
            let count = u32::try_from(bytes).map_err(|_| busy())?;
            let more = budget.clone().try_acquire_many_owned(count).map_err(|_| busy())?;
            permit.held.push(more);
        }
        // A body arrives in many pieces: two permits are enough for it.
        if permit.held.len() > 2 {
            let (total, client) = (permit.held.pop(), permit.held.pop());
            permit.held[0].merge(client.expect("there are four"));
            permit.held[1].merge(total.expect("there are four"));
        }
        Ok(())
    }

    /// Runs `work`, which parses and tokenizes, on a thread that may block. Waits until it is the
    /// client's turn; dropping the future before gives the turn to the next one. The permit is held
    /// until the work ends.
    ///
    /// # Errors
    /// If the work fails or panics.
    pub async fn prepare<T: Send + 'static>(
        &self,
        permit: Arc<BodyPermit>,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let turn = permit.client.turn.clone().acquire_owned().await;
        let slot = self.preparing.clone().acquire_owned().await;
        let prepared = spawn_blocking(move || {
            let _held = (turn, slot, permit);
            work()
        });
        prepared.await.map_err(ApiError::internal)?
    }
}

fn busy() -> ApiError {
    ApiError::new(
        StatusCode::TOO_MANY_REQUESTS,
        "too_many_bytes",
        "the bodies of other requests fill the memory that this server has for them: try again \
         later, or send shorter ones",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn address(last: u8) -> Client {
        Client::Address(Ipv4Addr::new(127, 0, 0, last).into())
    }

    #[test]
    fn one_client_gets_half_of_the_budget() {
        let admission = Admission::new(1 << 20);
        let mut greedy = admission.permit(address(2));
        for _ in 0..16 {
            admission.grow(&mut greedy, 1 << 20).expect("half of 32 MiB");
        }
        assert_eq!(greedy.held.len(), 2);
        let mut second = admission.permit(address(2));
        let error = admission.grow(&mut second, 1).expect_err("the share is used up");
        assert_eq!(error.status, StatusCode::TOO_MANY_REQUESTS);
        let mut honest = admission.permit(address(1));
        admission.grow(&mut honest, 4 << 20).expect("another client's share");
        drop(greedy);
        admission.grow(&mut second, 16 << 20).expect("returned");
        drop((second, honest));
        assert_eq!(admission.bytes.available_permits(), 32 << 20);
        let _ = admission.permit(address(3));
        assert_eq!(
            admission.clients.lock().expect("unlocked").len(),
            1,
            "gone clients are dropped"
        );
    }

    #[tokio::test]
    async fn a_client_with_many_requests_delays_others_by_one() {
        let admission = Arc::new(Admission::new(1));
        let order = Arc::new(Mutex::new(Vec::new()));
        let tasks = [2, 2, 2, 2, 1].map(|last| {
            let (admission, order) = (admission.clone(), order.clone());
            async move {
                let permit = Arc::new(admission.permit(address(last)));
                let work = move || {
                    order.lock().expect("unlocked").push(last);
                    thread::sleep(std::time::Duration::from_millis(20));
                    Ok(())
                };
                admission.prepare(permit, work).await
            }
        });
        for done in futures_util::future::join_all(tasks).await {
            done.expect("it runs");
        }
        let order = order.lock().expect("unlocked");
        assert!(order[..2].contains(&1), "{order:?}");
    }
}
