//! The store suite: the clauses of the [`Store`](onlyonce_core::Store) contract as tests that any store can run.
//!
//! A clause is an `async fn cN_…` over a [`Fixture`]; N is its number in the contract. Every clause is listed in
//! [`for_each_clause!`](crate::for_each_clause), from which [`store_suite!`](crate::store_suite) and [`clauses`] are
//! made; `cargo xtask tidy` checks that none is left out.

mod operators;
mod outcome;
mod ownership;
mod robustness;
mod time;
mod unknown;

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

pub use operators::*;
pub use outcome::*;
pub use ownership::*;
pub use robustness::*;
pub use time::*;
pub use unknown::*;

use crate::fixture::Fixture;
use crate::model;
use crate::soak::Soak;

/// Hands the names of all clauses to a macro.
#[macro_export]
macro_rules! for_each_clause {
    ([$($then:tt)*] $($args:tt)*) => {
        $($then)*! { $($args)*;
            c1_the_first_claim_is_granted_with_attempt_one,
            c1_a_second_claim_is_busy_while_the_lease_lasts,
            c1_of_many_concurrent_claims_one_is_granted,
            c1_of_claims_on_many_threads_one_is_granted,
            c1_waiting_claims_leave_the_record_alone,
            c2_a_stale_owner_cannot_complete_after_takeover,
            c2_a_stale_owner_cannot_release_renew_or_abandon_after_takeover,
            c2_a_wrong_owner_or_fence_changes_nothing,
            c2_nothing_can_be_written_to_an_absent_record,
            c2_a_lost_grant_answers_fenced_to_its_last_owner,
            c3_a_completed_record_replays_the_same_bytes,
            c3_another_outcome_under_the_same_fence_is_an_alarm,
            c3_a_completed_record_is_never_granted_before_expiry,
            c3_large_and_empty_outcomes_come_back_whole,
            c3_tombstones_are_replayed,
            c4_answered_commands_survive_what_is_promised,
            c4_a_grant_does_not_outlive_its_holder_unseen,
            c5_a_repeated_claim_gets_the_same_grant,
            c5_a_repeated_completion_is_already_done,
            c5_an_owner_is_granted_once,
            c6_fences_grow_across_release_rerun_expiry_and_sweep,
            c6_fences_grow_across_restart,
            c7_the_lease_ends_on_the_stores_clock,
            c7_a_renewed_lease_lasts_from_the_renewal,
            c7_renewals_end_at_the_maximum_run_time,
            c7_retention_counts_from_completion,
            c7_a_completion_may_bring_its_own_retention,
            c7_released_and_unknown_records_expire_by_their_own_retention,
            c8_another_fingerprint_is_refused_in_every_state,
            c8_a_mismatch_names_the_stored_rules_only_when_they_differ,
            c9_hold_refuses_and_seals_after_hold_for,
            c9_seal_answers_the_sealed_outcome,
            c9_rerun_grants_up_to_attempts_max,
            c9_query_gives_one_recovery_at_a_time,
            c9_a_late_completion_by_the_same_fence_is_welcome,
            c9_a_late_completion_of_a_sealed_record_is_kept_aside,
            c9_an_abandoned_record_is_unknown,
            c10_a_released_key_runs_again_with_the_next_attempt,
            c10_a_release_keeps_or_forgets_the_fingerprint,
            c10_a_lapsed_owner_cannot_release,
            c11_resolve_executed_completes_and_not_executed_releases,
            c11_resolve_needs_the_fence_and_an_unknown_record,
            c11_not_executed_waits_until_the_attempt_can_no_longer_run,
            c11_a_sealed_record_can_be_resolved,
            c11_erase_drops_the_body_and_keeps_the_key_used,
            c11_erase_refuses_what_is_in_flight,
            c12_sweep_removes_only_what_has_expired,
            c12_sweep_never_removes_in_flight,
            c12_sweep_keeps_to_its_budget,
            c13_lookup_shows_what_commands_would_read,
            c13_list_goes_through_every_record_once,
            c13_list_keeps_to_what_was_asked_for,
            c13_a_page_of_large_records_ends_where_its_bytes_do,
            c13_stats_count_what_is_stored,
            c14_a_batch_answers_as_its_items_would,
            c14_every_part_of_an_item_counts_in_a_batch,
            c14_a_batch_may_name_a_record_twice,
            c14_a_batch_that_is_too_long_is_refused,
            c15_a_watch_wakes_after_every_kind_of_change,
            c15_a_watch_that_ends_keeps_no_other_from_waking,
            c16_damage_is_an_error_and_never_absence,
            c17_a_step_is_recorded_once_and_read_back,
            c17_steps_need_a_live_grant_and_are_bounded,
            c17_a_corrected_request_starts_without_steps,
            c18_the_first_secret_is_kept,
            c19_an_imported_record_answers_as_it_did,
            c19_an_import_leaves_what_is_in_use_alone,
            c19_grants_after_an_import_have_higher_fences,
            model_random_commands_answer_as_transition_does,
            model_soak,
        }
    };
}

/// Makes one named `#[test]` for every clause of the contract, on fresh fixtures from the given future.
///
/// See the crate documentation for an example.
#[macro_export]
macro_rules! store_suite {
    ($make:expr) => { $crate::for_each_clause!([$crate::__store_suite] $make); };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __store_suite {
    ($make:expr; $($clause:ident),* $(,)?) => {
        $(
            #[test]
            fn $clause() {
                $crate::run(async { $crate::suite::$clause(&$make.await).await });
            }
        )*
    };
}

/// A clause that has not been run yet.
pub type Clause<'f> = Pin<Box<dyn Future<Output = ()> + Send + 'f>>;

macro_rules! clause_table {
    ($fixture:ident; $($clause:ident),* $(,)?) => {
        vec![$((stringify!($clause), (|fixture| Box::pin($clause(fixture))) as fn(&$fixture) -> Clause<'_>)),*]
    };
}

/// Every clause with its name, to be run one by one: this is how the suite's teeth are shown.
#[expect(clippy::type_complexity, reason = "a name and a function")]
pub fn clauses<F: Fixture>() -> Vec<(&'static str, fn(&F) -> Clause<'_>)> {
    crate::for_each_clause!([clause_table] F)
}

/// How many clauses run at a time: most of them wait for a server.
const AT_A_TIME: usize = 4;

/// Runs every clause against what they share, which takes longer to start than most clauses to run, and names all that
/// failed. Those that come first start first: put the longest there.
pub fn run_all<C: Fn() + Sync>(clauses: &[(&str, C)]) {
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let Some((name, clause)) = clauses.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // What a clause has to say of its failure was printed by its panic.
                    if catch_unwind(AssertUnwindSafe(clause)).is_err() {
                        failed.lock().unwrap().push(*name);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{} of {} clauses failed: {failed:?}", failed.len(), clauses.len());
}

/// Not a clause of its own: all of them at once, by comparison with the state machine.
pub async fn model_random_commands_answer_as_transition_does<F: Fixture>(fixture: &F) {
    for seed in 0..20 {
        model::compare(fixture, seed, 150).await;
    }
}

/// The same over more seeds; as many as fit into `ONLYONCE_SOAK_SECONDS` when that is set.
pub async fn model_soak<F: Fixture>(fixture: &F) {
    let mut soak = Soak::new("model", 40);
    let mut commands = 0;
    while let Some((seed, _)) = soak.next_round() {
        commands += model::compare(fixture, seed, 400).await;
    }
    soak.report(commands, "commands answered as transition does");
}
