//! Two suites for any [`Source`]: the clauses of its contract ([`source_suite!`](crate::source_suite)), and the crash
//! windows ([`crash_suite!`](crate::crash_suite)): kills, pauses and outages at every point between a delivery and its acknowledgement, for any
//! store and either way of having an effect.
//!
//! | window | what happens | transactional effect | leased claim, effect elsewhere |
//! |---|---|---|---|
//! | W0 | killed after the fetch, before the claim | once | once |
//! | W1 | killed after the claim, before the effect | once | once, second attempt counted |
//! | W2 | killed after the effect, before the mark | once (rolled back, then done) | again, under the same downstream key; parked under `hold` |
//! | W3 | killed after the mark, before the acknowledgement | once | once |
//! | Z | paused past its lease, replaced, then continued | once: its transaction is refused | its completion is refused |
//! | F | the handler fails | once, after a retry | once, after a retry |
//! | X | the store is away | nothing runs, nothing is acknowledged, then once | the same |
//! | P | the message kills every process that takes it | parked after its attempts | the same |
//! | K | many kills at random windows | none lost, none twice | none lost |
//!
//! ```text
//! onlyonce_inbox::crash_suite!(async { MyFixture::start() }, |fixture| onlyonce_inbox::suite::Ledger::default());
//! ```
//!
//! A process is a runtime of its own that is torn down without warning: nothing of it runs again, and its connections
//! break. Not part of the stable API.
#![expect(clippy::missing_panics_doc, reason = "a failed check panics")]

mod away;
mod contract;
mod effect;
mod process;
mod stops;
mod windows;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{Clock, Lease, Store};

use crate::message::Message;
use crate::source::Source;

pub use contract::*;
pub use effect::{Effect, Ledger};
pub use stops::{Stops, Window};
pub use windows::*;

/// What the suite runs on: a broker, a store, and the time they go by.
pub trait Fixture: Send + Sync + 'static {
    /// One more consumer of the group, as a new process would open it. Called on that process's own runtime.
    fn open(&self) -> impl Future<Output = Arc<dyn Source>> + Send;

    /// The store, as a new process would open it. Called on that process's own runtime.
    fn store(&self) -> impl Future<Output = Arc<dyn Store>> + Send;

    /// Publishes a message, and returns when the broker has it.
    fn publish(&self, message: Message) -> impl Future<Output = ()> + Send;

    /// The messages among the dead letters.
    fn dead_letters(&self) -> impl Future<Output = Vec<Message>> + Send;

    /// Has the broker take deliveries away from the consumers that are alive, as a rebalance or the end of an ack wait
    /// does.
    fn take_away(&self) -> impl Future<Output = ()> + Send;

    /// The clock that consumers go by.
    fn clock(&self) -> Arc<dyn Clock>;

    /// The lease of claims: long enough that a loaded machine does not lose one by accident.
    fn lease(&self) -> Lease;

    /// Lets `time` pass for the store, the broker and the consumers.
    fn pass(&self, time: Duration) -> impl Future<Output = ()> + Send;

    /// Called again and again while the suite waits. Lets a little time pass if nothing but that is waited for: where
    /// time is moved by hand it must not run away from a handler at work.
    fn idle(&self) -> impl Future<Output = ()> + Send;
}

/// Runs one window on a runtime of its own.
pub fn run<F: Fixture, T: Future<Output = ()>>(
    make: impl Future<Output = F>,
    window: impl FnOnce(Arc<F>) -> T,
) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime can be started");
    runtime.block_on(async { window(Arc::new(make.await)).await });
    // Servers that a fixture holds are ended by its drop; what still waits for them is not waited for.
    runtime.shutdown_background();
}

/// Makes one named `#[test]` for every clause of the [`Source`] contract: `source_suite!(future of a fixture)`.
#[macro_export]
macro_rules! source_suite {
    ($make:expr) => {
        $crate::__source_suite! { $make;
            s1_fetch_waits_and_keeps_to_its_bound,
            s3_what_a_killed_process_had_comes_again,
            s4_what_is_acknowledged_does_not_come_again,
            s4_a_later_acknowledgement_does_not_take_an_earlier_message_along,
            s5_a_retried_message_comes_again_as_it_was,
            s6_a_dead_letter_is_kept_and_does_not_come_again,
            s8_a_settled_delivery_is_gone,
            s9_a_delivery_in_progress_can_be_extended,
            s10_two_messages_never_share_a_position,
            s12_a_closed_source_fetches_nothing_and_gives_back,
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __source_suite {
    ($make:expr; $($clause:ident),* $(,)?) => {
        $(
            #[test]
            fn $clause() {
                $crate::suite::run($make, |fixture| $crate::suite::$clause(fixture));
            }
        )*
    };
}

/// Makes one named `#[test]` for every window: `crash_suite!(future of a fixture, |&fixture| effect)`.
#[macro_export]
macro_rules! crash_suite {
    ($make:expr, $effect:expr) => {
        $crate::__crash_suite! { $make, $effect;
            w0_killed_before_the_claim,
            w1_killed_before_the_effect,
            w2_killed_before_the_mark,
            w2_killed_before_the_mark_under_hold,
            w3_killed_before_the_acknowledgement,
            z_paused_past_its_lease,
            f_failed_and_tried_again,
            x_the_store_is_away,
            p_kills_every_process,
            d_published_twice,
            k_killed_again_and_again,
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __crash_suite {
    ($make:expr, $effect:expr; $($window:ident),* $(,)?) => {
        $(
            #[test]
            fn $window() {
                $crate::suite::run($make, |fixture| async move {
                    let effect = ($effect)(&*fixture);
                    $crate::suite::$window(fixture, effect).await;
                });
            }
        )*
    };
}
