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
#[cfg(feature = "postgres")]
mod transactional;
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
#[cfg(feature = "postgres")]
pub use transactional::{Database, Transactional, connect};
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

    /// How many kills [`k_killed_again_and_again`] makes, unless `ONLYONCE_KILLS` says otherwise. Fewer where a broker
    /// takes long to notice each.
    fn kills(&self) -> u64 {
        KILLS
    }

    /// Called again and again while the suite waits. Lets a little time pass if nothing but that is waited for: where
    /// time is moved by hand it must not run away from a handler at work.
    fn idle(&self) -> impl Future<Output = ()> + Send;
}

/// How many kills there are where nobody says otherwise.
const KILLS: u64 = 40;
/// How long a clause or a window may take on the most loaded machine. What takes longer hangs.
const RUN_MAX: Duration = Duration::from_mins(5);

/// Runs one clause or window on a runtime of its own.
pub fn run<F: Fixture, T: Future<Output = ()>>(
    make: impl Future<Output = F>,
    window: impl FnOnce(Arc<F>) -> T,
) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime can be started");
    runtime.block_on(in_time("this test", async { window(Arc::new(make.await)).await }));
    // Servers that a fixture holds are ended by its drop; what still waits for them is not waited for.
    runtime.shutdown_background();
}

/// Does `what`, and panics when it hangs.
pub async fn in_time<T>(what: &str, work: impl Future<Output = T>) -> T {
    // As many kills, or as long a soak, as somebody asks for take as long as they take.
    let is_long =
        ["ONLYONCE_KILLS", "ONLYONCE_SOAK_SECONDS"].iter().any(|name| std::env::var_os(name).is_some());
    let longest = if is_long { Duration::from_hours(24) } else { RUN_MAX };
    let mut work = std::pin::pin!(work);
    let done = tokio::time::timeout(longest, work.as_mut()).await;
    // ORDER: what hangs is dropped by the panic, not before: a runtime cannot be dropped among tasks otherwise.
    assert!(done.is_ok(), "{what} is not done after {longest:?}: it hangs");
    done.expect("it is done")
}

/// Makes one named `#[test]` for every clause of the [`Source`] contract: `source_suite!(future of a fixture)`.
#[macro_export]
macro_rules! source_suite {
    ($make:expr) => {
        $crate::each_clause! { [$crate::__source_suite] $make }
    };
}

/// Hands every clause to a macro, after what is for itself: `each_clause!([path::of::macro] …)` calls
/// `path::of::macro!(…; s1_…, s3_…)`. For brokers that take long to start: then all clauses can share one.
#[macro_export]
macro_rules! each_clause {
    ([$($to:tt)*] $($own:tt)*) => {
        $($to)*! { $($own)*;
            s1_fetch_waits_and_keeps_to_its_bound,
            s3_what_a_killed_process_had_comes_again,
            s4_what_is_acknowledged_does_not_come_again,
            s4_a_later_acknowledgement_does_not_take_an_earlier_message_along,
            s5_a_retried_message_comes_again_as_it_was,
            s6_a_dead_letter_is_kept_and_does_not_come_again,
            s7_a_batch_is_answered_item_by_item,
            s8_a_settled_delivery_is_gone,
            s8_a_delivery_that_was_taken_away_is_gone,
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
        $crate::each_window! { [$crate::__crash_suite] $make, $effect }
    };
}

/// Hands every window to a macro, as [`each_clause!`](crate::each_clause) does.
#[macro_export]
macro_rules! each_window {
    ([$($to:tt)*] $($own:tt)*) => {
        $($to)*! { $($own)*;
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
