//! The suite has teeth: stores with real defects of real peers, each caught by a named clause.
//!
//! Each defect is one that was shipped: see "seeded bugs" in the failure study this project started from. A suite that
//! lets one through proves nothing about the stores that pass it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use onlyonce_core::Outcome;
use onlyonce_core::outcome::Body;
use onlyonce_core::record::{Completed, Record, State};
use onlyonce_core::transition::{
    AbandonAnswer, Answer, Busy, Change, Claim, ClaimAnswer, Command, CompleteAnswer, EraseAnswer, Grant,
    Moment, ReleaseAnswer, SweepAnswer, Token, transition,
};
use onlyonce_testkit::reference::{Defect, Flaw, Reference};
use onlyonce_testkit::suite::clauses;

type Decided = (Change, Answer);

/// Two callers at once both run: look up, run, save.
fn no_claim_at_all(stored: Option<&Record>, command: &Command, moment: Moment) -> Decided {
    match (command, transition(stored, command, moment)) {
        (Command::Claim(claim), (_, Answer::Claim(ClaimAnswer::Busy(_)))) => {
            let stored = stored.expect("busy records exist");
            let grant = Grant { fence: stored.fence, attempt: stored.attempt, steps: Vec::new() };
            (
                Change::Put(Record { owner: claim.owner, ..stored.clone() }),
                Answer::Claim(ClaimAnswer::Granted(grant)),
            )
        }
        (_, decided) => decided,
    }
}

/// A duplicate that runs out of patience deletes the record of the one that runs.
fn waiter_deletes_the_record(stored: Option<&Record>, command: &Command, moment: Moment) -> Decided {
    match transition(stored, command, moment) {
        (_, answer @ Answer::Claim(ClaimAnswer::Busy(_))) => (Change::Remove, answer),
        decided => decided,
    }
}

/// Runs a token's command as if the token were the right one.
fn with_the_right_token(stored: Option<&Record>, command: &Command, moment: Moment) -> Decided {
    let right = |token: &Token| match stored {
        Some(record) => Token { id: token.id, owner: record.owner, fence: record.fence },
        None => *token,
    };
    let mut command = command.clone();
    match &mut command {
        Command::Complete(command) => command.token = right(&command.token),
        Command::Release(command) => command.token = right(&command.token),
        _ => {}
    }
    transition(stored, &command, moment)
}

/// Whoever reports an outcome is believed.
fn unconditional_complete(stored: Option<&Record>, command: &Command, moment: Moment) -> Decided {
    match command {
        Command::Complete(_) => with_the_right_token(stored, command, moment),
        _ => transition(stored, command, moment),
    }
}

/// Whoever wants the record gone is obeyed.
fn unconditional_release(stored: Option<&Record>, command: &Command, moment: Moment) -> Decided {
    match command {
        Command::Release(_) => with_the_right_token(stored, command, moment),
        _ => transition(stored, command, moment),
    }
}

/// A dropped guard, a panic or a time-out frees the key although the effect may have happened.
fn abandon_releases(stored: Option<&Record>, command: &Command, moment: Moment) -> Decided {
    match (command, transition(stored, command, moment)) {
        (Command::Abandon(_), (Change::Put(record), _)) => {
            let state = State::Released { expires_at: moment.now + record.retention.get() };
            (Change::Put(Record { state, ..record }), Answer::Abandon(AbandonAnswer::Abandoned))
        }
        (_, decided) => decided,
    }
}

/// After a timer the work silently runs again, whatever the policy.
fn lapsed_is_absent(stored: Option<&Record>, command: &Command, moment: Moment) -> Decided {
    let lapsed = stored.is_some_and(|record| record.is_lapsed(moment.now));
    match command {
        Command::Claim(_) if lapsed => transition(None, command, moment),
        _ => transition(stored, command, moment),
    }
}

/// Changes what a completion writes; `None` writes nothing and forgets the record.
fn completing(decided: Decided, change: impl FnOnce(&Record, Completed) -> Option<Completed>) -> Decided {
    match decided {
        (Change::Put(record), answer @ Answer::Complete(CompleteAnswer::Completed)) => {
            let State::Completed(completed) = record.state.clone() else { unreachable!("just completed") };
            match change(&record, completed) {
                Some(completed) => {
                    (Change::Put(Record { state: State::Completed(completed), ..record }), answer)
                }
                None => (Change::Remove, answer),
            }
        }
        decided => decided,
    }
}

fn kept_bytes(outcome: &Outcome) -> usize {
    if let Body::Kept(bytes) = outcome.body() { bytes.len() } else { 0 }
}

/// An answer that is too large is not stored, and the key is free again.
fn oversize_is_not_stored(stored: Option<&Record>, command: &Command, moment: Moment) -> Decided {
    let decided = transition(stored, command, moment);
    completing(decided, |_, completed| (kept_bytes(&completed.outcome) <= 65_536).then_some(completed))
}

/// Half an answer is stored as if it were the whole.
fn truncated_body_is_stored(stored: Option<&Record>, command: &Command, moment: Moment) -> Decided {
    completing(transition(stored, command, moment), |_, mut completed| {
        if let Body::Kept(bytes) = completed.outcome.body() {
            let half = bytes.slice(..bytes.len().min(65_536));
            completed.outcome = Outcome::kept(completed.outcome.content_version(), half)
                .with_head(completed.outcome.head().clone())
                .expect("the head it had");
        }
        Some(completed)
    })
}

/// Retention is counted from when the request came, so slow work is forgotten early.
fn retention_from_arrival(stored: Option<&Record>, command: &Command, moment: Moment) -> Decided {
    completing(transition(stored, command, moment), |record, completed| {
        Some(Completed { expires_at: record.created_at + record.retention.get(), ..completed })
    })
}

/// Clean-up goes by age and does not look at the state.
fn sweep_ignores_the_state(stored: Option<&Record>, command: &Command, moment: Moment) -> Decided {
    match (command, stored) {
        (Command::Sweep(_), Some(record)) if record.due_at() <= moment.now => {
            (Change::Remove, Answer::Sweep(SweepAnswer::Removed))
        }
        _ => transition(stored, command, moment),
    }
}

/// The request is not looked at: any body under the same key gets the first one's answer.
fn no_fingerprint(stored: Option<&Record>, command: &Command, moment: Moment) -> Decided {
    match (command, stored.and_then(|record| record.fingerprint.clone())) {
        (Command::Claim(claim), Some(fingerprint)) => {
            transition(stored, &Command::Claim(Claim { fingerprint, ..claim.clone() }), moment)
        }
        _ => transition(stored, command, moment),
    }
}

/// The state is looked at before the request: a stranger learns that something runs.
fn busy_before_mismatch(stored: Option<&Record>, command: &Command, moment: Moment) -> Decided {
    match (transition(stored, command, moment), stored.map(|record| &record.state)) {
        ((_, Answer::Claim(ClaimAnswer::Mismatch { .. })), Some(State::InFlight { lease_until }))
            if moment.now < *lease_until =>
        {
            let busy = Busy { left: moment.now.until(*lease_until) };
            (Change::Keep, Answer::Claim(ClaimAnswer::Busy(busy)))
        }
        (decided, _) => decided,
    }
}

/// An owner whose reply was lost is told to wait for itself.
fn claims_are_not_idempotent(stored: Option<&Record>, command: &Command, moment: Moment) -> Decided {
    match transition(stored, command, moment) {
        (Change::Keep, Answer::Claim(ClaimAnswer::Granted(_))) => {
            let left = std::time::Duration::from_secs(10);
            (Change::Keep, Answer::Claim(ClaimAnswer::Busy(Busy { left })))
        }
        decided => decided,
    }
}

/// A claim that the network delivers a second time, after its release, starts the work again.
fn an_owner_is_granted_again(stored: Option<&Record>, command: &Command, moment: Moment) -> Decided {
    match (command, transition(stored, command, moment)) {
        (Command::Claim(claim), (_, Answer::Claim(ClaimAnswer::Fenced))) => {
            let forgotten = stored
                .map(|record| Record { owner: onlyonce_core::Owner::from_bytes([0; 16]), ..record.clone() });
            transition(forgotten.as_ref(), &Command::Claim(claim.clone()), moment)
        }
        (_, decided) => decided,
    }
}

/// An erasure request makes the key new, so that the next retry runs again.
fn erasure_reopens_the_key(stored: Option<&Record>, command: &Command, moment: Moment) -> Decided {
    match transition(stored, command, moment) {
        (_, answer @ Answer::Erase(EraseAnswer::Erased)) => (Change::Remove, answer),
        decided => decided,
    }
}

/// An outcome that comes after its lease is thrown away, although nobody else ran.
fn late_completion_is_refused(stored: Option<&Record>, command: &Command, moment: Moment) -> Decided {
    let late = stored
        .is_some_and(|record| record.is_lapsed(moment.now) || matches!(record.state, State::Unknown { .. }));
    match command {
        Command::Complete(_) if late => (Change::Keep, Answer::Complete(CompleteAnswer::Fenced)),
        _ => transition(stored, command, moment),
    }
}

/// Anyone whose lease has passed may still say that nothing happened.
fn lapsed_owners_release(stored: Option<&Record>, command: &Command, moment: Moment) -> Decided {
    match (command, stored) {
        (Command::Release(release), Some(record))
            if record.is_lapsed(moment.now) && record.owner == release.token.owner =>
        {
            let state = State::Released { expires_at: moment.now + record.retention.get() };
            (Change::Put(Record { state, ..record.clone() }), Answer::Release(ReleaseAnswer::Released))
        }
        _ => transition(stored, command, moment),
    }
}

/// The defect, and the clause that must catch it.
const DEFECTS: &[(&str, Defect, &str)] = &[
    ("no claim at all", Defect::of(no_claim_at_all), "c1_a_second_claim_is_busy_while_the_lease_lasts"),
    (
        "waiter deletes the record",
        Defect::of(waiter_deletes_the_record),
        "c1_waiting_claims_leave_the_record_alone",
    ),
    (
        "unconditional complete",
        Defect::of(unconditional_complete),
        "c2_a_stale_owner_cannot_complete_after_takeover",
    ),
    (
        "unconditional release",
        Defect::of(unconditional_release),
        "c2_a_stale_owner_cannot_release_renew_or_abandon_after_takeover",
    ),
    ("release on guard drop", Defect::of(abandon_releases), "c9_an_abandoned_record_is_unknown"),
    ("lapsed is absent", Defect::of(lapsed_is_absent), "c9_hold_refuses_and_seals_after_hold_for"),
    (
        "oversize is not stored",
        Defect::of(oversize_is_not_stored),
        "c3_large_and_empty_outcomes_come_back_whole",
    ),
    (
        "truncated body is stored",
        Defect::of(truncated_body_is_stored),
        "c3_large_and_empty_outcomes_come_back_whole",
    ),
    ("retention from arrival", Defect::of(retention_from_arrival), "c7_retention_counts_from_completion"),
    ("sweep ignores the state", Defect::of(sweep_ignores_the_state), "c12_sweep_never_removes_in_flight"),
    ("no fingerprint", Defect::of(no_fingerprint), "c8_another_fingerprint_is_refused_in_every_state"),
    (
        "busy before mismatch",
        Defect::of(busy_before_mismatch),
        "c8_another_fingerprint_is_refused_in_every_state",
    ),
    (
        "claims are not idempotent",
        Defect::of(claims_are_not_idempotent),
        "c5_a_repeated_claim_gets_the_same_grant",
    ),
    ("an owner is granted again", Defect::of(an_owner_is_granted_again), "c5_an_owner_is_granted_once"),
    (
        "erasure reopens the key",
        Defect::of(erasure_reopens_the_key),
        "c11_erase_drops_the_body_and_keeps_the_key_used",
    ),
    (
        "late completion is refused",
        Defect::of(late_completion_is_refused),
        "c9_a_late_completion_by_the_same_fence_is_welcome",
    ),
    ("lapsed owners release", Defect::of(lapsed_owners_release), "c10_a_lapsed_owner_cannot_release"),
    ("lease by a clock of its own", Defect::with(Flaw::OwnClock), "c7_the_lease_ends_on_the_stores_clock"),
    (
        "fences restart after the sweep",
        Defect::with(Flaw::FencesRestart),
        "c6_fences_grow_across_release_rerun_expiry_and_sweep",
    ),
    (
        "undecodable is absent",
        Defect::with(Flaw::DamageIsAbsence),
        "c16_damage_is_an_error_and_never_absence",
    ),
    (
        "answers before sync",
        Defect::with(Flaw::AnswersBeforeSync),
        "c4_answered_commands_survive_what_is_promised",
    ),
    (
        "absence is remembered",
        Defect::with(Flaw::RemembersAbsence),
        "c13_lookup_shows_what_commands_would_read",
    ),
    (
        "sleeps through changes",
        Defect::with(Flaw::SleepsThroughChanges),
        "c15_a_watch_wakes_after_every_kind_of_change",
    ),
    ("batches stop early", Defect::with(Flaw::StopsBatchesEarly), "c14_a_batch_answers_as_its_items_would"),
    ("list ignores scope", Defect::with(Flaw::ListIgnoresScope), "c13_list_keeps_to_what_was_asked_for"),
    (
        "pages of any weight",
        Defect::with(Flaw::PagesOfAnyWeight),
        "c13_a_page_of_large_records_ends_where_its_bytes_do",
    ),
    (
        "batch ignores fingerprints",
        Defect::with(Flaw::BatchIgnoresFingerprints),
        "c14_every_part_of_an_item_counts_in_a_batch",
    ),
    (
        "batch drops retention",
        Defect::with(Flaw::BatchDropsRetention),
        "c14_every_part_of_an_item_counts_in_a_batch",
    ),
    (
        "restart forgets steps",
        Defect::with(Flaw::RestartForgetsSteps),
        "model_random_commands_answer_as_transition_does",
    ),
    (
        "reads, then writes",
        Defect::with(Flaw::ReadsThenWrites),
        "c1_of_claims_on_many_threads_one_is_granted",
    ),
    (
        "import forgets fences",
        Defect::with(Flaw::ImportForgetsFences),
        "c19_grants_after_an_import_have_higher_fences",
    ),
    ("takes every secret", Defect::with(Flaw::TakesEverySecret), "c18_the_first_secret_is_kept"),
];

/// The clauses that fail on a store with `defect`.
fn caught_by(defect: Defect) -> Vec<&'static str> {
    let mut caught = Vec::new();
    for (name, clause) in clauses::<Reference>().into_iter().filter(|(name, _)| *name != "model_soak") {
        // Time-outs of the suite pass at once: nothing here waits for a real server.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        let runtime = runtime.expect("a runtime can be started");
        let fixture = Reference::new(defect);
        if catch_unwind(AssertUnwindSafe(|| runtime.block_on(clause(&fixture)))).is_err() {
            caught.push(name);
        }
    }
    caught
}

#[test]
fn every_defect_is_caught_by_the_clause_that_names_it() {
    std::panic::set_hook(Box::new(|_| {}));
    let mut report = Vec::new();
    for (name, defect, clause) in DEFECTS {
        let caught = caught_by(*defect);
        report.push((name, clause, caught.contains(clause), caught.len()));
    }
    let _ = std::panic::take_hook();
    for (name, clause, caught, clauses) in &report {
        println!(
            "{name:32} {} {clause} ({clauses} clauses fail)",
            if *caught { "caught by" } else { "NOT CAUGHT BY" }
        );
    }
    assert!(report.iter().all(|(_, _, caught, _)| *caught));
    assert!(report.len() >= 10);
}

#[test]
fn a_store_without_defects_passes_everything() {
    assert_eq!(caught_by(Defect::NONE), Vec::<&str>::new());
}
