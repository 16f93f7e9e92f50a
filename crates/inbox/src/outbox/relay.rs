//! The relay: leases open events, hands them to the broker, and marks what arrived. As many relays as you like.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{BoxError, Clock, SystemClock};
use tokio_postgres::Client;

use super::Outbox;
use super::publish::{Outgoing, PublishError, Published, Publisher};
use super::rows::{Leased, Undelivered};
use crate::decision::Backoff;
use crate::transactional::InboxError;

/// How soon a database that is away is asked again.
const AWAY: Backoff = Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(5) };
/// How many steps are made between two looks for a table to empty.
const STEPS_PER_ROTATION: u32 = 1000;

/// How a relay works. Start from the default and change what differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RelayOptions {
    /// How many events are leased and published together. Default 500.
    pub batch_max: u16,
    /// How long they may take before another relay tries. Default 30 s.
    pub lease: Duration,
    /// How often an event may be refused before it is parked with its key. Default 10.
    pub refusals_max: u32,
    /// How soon an event is tried again.
    pub backoff: Backoff,
    /// How often is looked for new events when there are none. Default 200 ms.
    pub poll: Duration,
}

impl Default for RelayOptions {
    fn default() -> Self {
        Self {
            batch_max: 500,
            lease: Duration::from_secs(30),
            refusals_max: 10,
            backoff: Backoff::default(),
            poll: Duration::from_millis(200),
        }
    }
}

/// What one step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stepped {
    /// Events that were leased.
    pub leased: usize,
    /// Events that are delivered now.
    pub delivered: usize,
    /// Of those, how many the broker had already.
    pub duplicates: usize,
    /// Events that will be tried again.
    pub again: usize,
    /// Events that are parked now.
    pub parked: usize,
    /// Events that another relay took over meanwhile. Nothing of theirs was changed.
    pub fenced: usize,
}

/// Publishes the events of an outbox.
pub struct Relay {
    outbox: Outbox,
    publisher: Arc<dyn Publisher>,
    options: RelayOptions,
    clock: Arc<dyn Clock>,
}

impl Relay {
    /// A relay from `outbox` to `publisher`.
    pub fn new(outbox: Outbox, publisher: Arc<dyn Publisher>) -> Self {
        Self { outbox, publisher, options: RelayOptions::default(), clock: Arc::new(SystemClock::new()) }
    }

    /// How it works.
    pub fn with_options(mut self, options: RelayOptions) -> Result<Self, InboxError> {
        if options.batch_max == 0 || options.lease < Duration::from_secs(1) || options.refusals_max == 0 {
            return Err(InboxError::misuse(
                "a relay takes at least one event, for at least a second, and one refusal",
            ));
        }
        self.options = options;
        Ok(self)
    }

    /// Where its own time comes from. Leases are the server's.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Leases, publishes and marks once.
    pub async fn step(&self, client: &Client) -> Result<Stepped, InboxError> {
        let RelayOptions { batch_max, lease, .. } = self.options;
        let leased = self.outbox.lease(client, i64::from(batch_max), lease).await?;
        if leased.is_empty() {
            return Ok(Stepped::default());
        }
        let events: Vec<Outgoing> = leased.iter().map(|leased| leased.outgoing.clone()).collect();
        let results = tokio::select! {
            results = self.publisher.publish(&events) => results,
            // Past the lease another relay may be at it: what becomes of this try no longer counts.
            () = self.clock.sleep(lease) => Vec::new(),
        };
        self.mark(client, &leased, results).await
    }

    async fn mark(
        &self,
        client: &Client,
        leased: &[Leased],
        results: Vec<Result<Published, PublishError>>,
    ) -> Result<Stepped, InboxError> {
        let mut stepped = Stepped { leased: leased.len(), ..Stepped::default() };
        let (mut delivered, mut undelivered) = (Vec::new(), Vec::new());
        // What got no result stays leased, and is sent again under the same id when that ends.
        for (leased, result) in leased.iter().zip(results) {
            match result {
                Ok(published) => {
                    stepped.duplicates += usize::from(published == Published::Duplicate);
                    delivered.push(leased);
                }
                Err(error) => {
                    let judged = self.judge(leased, &error);
                    stepped.parked += usize::from(judged.parked.is_some());
                    stepped.again += usize::from(judged.parked.is_none());
                    undelivered.push((leased, judged));
                }
            }
        }
        if !delivered.is_empty() {
            let ours = self.outbox.delivered(client, &delivered).await?;
            stepped.delivered = usize::try_from(ours).unwrap_or(usize::MAX);
            stepped.fenced = delivered.len() - stepped.delivered;
        }
        if !undelivered.is_empty() {
            self.outbox.undelivered(client, &undelivered).await?;
        }
        Ok(stepped)
    }

    fn judge(&self, leased: &Leased, error: &PublishError) -> Undelivered {
        let attempt = leased.outgoing.attempt.unsigned_abs();
        let why = std::error::Error::source(error).map_or_else(String::new, ToString::to_string);
        tracing::warn!(id = leased.outgoing.id, attempt, %error, why, "an event was not published");
        // An outage before it says nothing about the event.
        let refusals = leased.refusals.saturating_add(i32::from(error.is_refused()));
        let is_over = error.is_refused() && refusals.unsigned_abs() >= self.options.refusals_max;
        Undelivered {
            again_in: self.options.backoff.after(attempt),
            refusals,
            parked: is_over.then(|| format!("{error}: {why}")),
        }
    }

    /// Publishes until `stop` resolves, on connections from `connect`. A database or a broker that is away is waited for.
    pub async fn run<C, F, E>(&self, connect: C, stop: impl Future<Output = ()> + Send)
    where
        C: Fn() -> F + Send,
        F: Future<Output = Result<Client, E>> + Send,
        E: Into<BoxError>,
    {
        let publishing = async {
            let mut failures = 0;
            loop {
                let error: BoxError = match connect().await {
                    Ok(mut client) => match self.run_on(&mut client, &mut failures).await {
                        Ok(()) => continue,
                        Err(error) => error.into(),
                    },
                    Err(error) => error.into(),
                };
                failures += 1;
                tracing::warn!(%error, source = ?error.source(), "the outbox cannot be read");
                self.clock.sleep(AWAY.after(failures)).await;
            }
        };
        tokio::select! {
            biased;
            () = stop => {}
            () = publishing => {}
        }
    }

    async fn run_on(&self, client: &mut Client, failures: &mut u32) -> Result<(), InboxError> {
        let mut steps = 0_u32;
        loop {
            let stepped = self.step(client).await?;
            *failures = 0;
            steps = steps.wrapping_add(1);
            if steps.is_multiple_of(STEPS_PER_ROTATION) {
                self.outbox.rotate(client).await?;
            }
            if stepped.delivered == 0 {
                self.clock.sleep(self.options.poll).await;
            }
        }
    }
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay")
            .field("outbox", &self.outbox)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
