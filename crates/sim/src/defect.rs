//! State machines that are wrong on purpose: each must be caught by some property, or the properties are blunt.
//!
//! A defect lies to [`transition`] about the command or the record, or spoils its result. It never repeats its rules.

use std::sync::Arc;

use onlyonce_core::record::{CompletedBy, State};
use onlyonce_core::transition::{
    AbandonAnswer, Answer, Change, Claim, ClaimAnswer, Command, Complete, EraseAnswer, Moment, Release,
    ReleaseAnswer, Renew, Resolve, SweepAnswer, Terms, Token, UnknownPolicy, Verdict, transition,
};
use onlyonce_core::{Fence, Owner, Record};

/// One way to get it wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Defect {
    /// A completion is accepted whatever its fence.
    CompleteIgnoresFence,
    /// A completion that comes after the lease is refused.
    CompleteRefusedWhenLate,
    /// A completion is accepted twice under one fence.
    CompleteAcceptedTwice,
    /// A late completion replaces the answer of a sealed or resolved record.
    LateCompletionReplaces,
    /// A release is accepted from anyone.
    ReleaseIgnoresOwner,
    /// A renewal is accepted from anyone.
    RenewIgnoresOwner,
    /// To abandon is to release.
    AbandonReleases,
    /// A passed lease reads as no record at all.
    LapsedIsAbsent,
    /// A claim that finds the record busy removes it.
    BusyRemoves,
    /// A claim that finds the record busy gets the grant too.
    BusyIsGranted,
    /// That a hook is being asked stops nobody.
    AskingIgnored,
    /// An owner that gave the record back gets it again when its claim arrives a second time.
    OwnerGrantedAgain,
    /// A claim that is repeated gets a fence of its own.
    RepeatedClaimGetsNewFence,
    /// The fingerprint is not compared.
    FingerprintIgnored,
    /// `query` runs again without asking.
    QueryReruns,
    /// `rerun` knows no end.
    RerunForEver,
    /// "Not executed" is believed while the attempt may still run.
    NotExecutedTooEarly,
    /// Fences start again where no record is left.
    FenceRestarts,
    /// A sweep removes what is in flight once its lease has passed.
    SweepRemovesInFlight,
    /// Retention counts from the grant and not from the completion.
    RetentionFromArrival,
    /// To erase is to remove.
    EraseRemoves,
    /// An erasure is acknowledged and not done.
    EraseForgotten,
    /// A step is recorded over an earlier one.
    StepOverwritten,
}

impl Defect {
    /// Every defect.
    pub const ALL: [Self; 23] = [
        Self::CompleteIgnoresFence,
        Self::CompleteRefusedWhenLate,
        Self::CompleteAcceptedTwice,
        Self::LateCompletionReplaces,
        Self::ReleaseIgnoresOwner,
        Self::RenewIgnoresOwner,
        Self::AbandonReleases,
        Self::LapsedIsAbsent,
        Self::BusyRemoves,
        Self::BusyIsGranted,
        Self::AskingIgnored,
        Self::OwnerGrantedAgain,
        Self::RepeatedClaimGetsNewFence,
        Self::FingerprintIgnored,
        Self::QueryReruns,
        Self::RerunForEver,
        Self::NotExecutedTooEarly,
        Self::FenceRestarts,
        Self::SweepRemovesInFlight,
        Self::RetentionFromArrival,
        Self::EraseRemoves,
        Self::EraseForgotten,
        Self::StepOverwritten,
    ];
}

/// What the state machine with `defect` does. Without one, this is [`transition`].
pub(crate) fn decide(
    defect: Option<Defect>,
    stored: Option<&Record>,
    command: &Command,
    moment: Moment,
) -> (Change, Answer) {
    let Some(defect) = defect else {
        return transition(stored, command, moment);
    };
    let told = misreported(defect, command, stored);
    let seen = misread(defect, command, stored, moment);
    let next_fence = match (defect, &seen) {
        (Defect::FenceRestarts, None) => Fence::new(1).expect("1 is a fence"),
        _ => moment.next_fence,
    };
    let moment = Moment { next_fence, ..moment };
    let result = transition(seen.as_ref(), told.as_ref().unwrap_or(command), moment);
    spoiled(defect, command, stored, result)
}

/// The command as the defective state machine takes it, if not as it is.
fn misreported(defect: Defect, command: &Command, stored: Option<&Record>) -> Option<Command> {
    let record = stored?;
    let as_owner = |token: Token| Token { owner: record.owner, fence: record.fence, ..token };
    Some(match (defect, command.clone()) {
        (Defect::CompleteIgnoresFence, Command::Complete(complete)) => {
            Command::Complete(Complete { token: as_owner(complete.token), ..complete })
        }
        (Defect::ReleaseIgnoresOwner, Command::Release(release)) => {
            Command::Release(Release { token: as_owner(release.token), ..release })
        }
        (Defect::RenewIgnoresOwner, Command::Renew(renew)) => {
            Command::Renew(Renew { token: as_owner(renew.token), ..renew })
        }
        (Defect::AbandonReleases, Command::Abandon(abandon)) => {
            Command::Release(Release { token: abandon.token, keep_fingerprint: true })
        }
        (Defect::FingerprintIgnored, Command::Claim(claim)) => {
            let fingerprint = record.fingerprint.clone().unwrap_or(claim.fingerprint);
            Command::Claim(Claim { fingerprint, ..claim })
        }
        (Defect::QueryReruns, Command::Claim(claim)) => with_terms(claim, |terms| {
            terms.unknown = UnknownPolicy::Rerun;
        }),
        (Defect::RerunForEver, Command::Claim(claim)) => with_terms(claim, |terms| {
            terms.attempts_max = u32::MAX;
        }),
        (Defect::NotExecutedTooEarly, Command::Resolve(resolve)) => {
            let verdict = match resolve.verdict {
                Verdict::NotExecuted { .. } => Verdict::NotExecuted { force: true },
                verdict => verdict,
            };
            Command::Resolve(Resolve { verdict, ..resolve })
        }
        _ => return None,
    })
}

fn with_terms(claim: Claim, change: impl FnOnce(&mut Terms)) -> Command {
    let mut terms = Terms::clone(&claim.terms);
    change(&mut terms);
    Command::Claim(Claim { terms: Arc::new(terms), ..claim })
}

/// The record as the defective state machine reads it.
fn misread(defect: Defect, command: &Command, stored: Option<&Record>, moment: Moment) -> Option<Record> {
    let mut record = stored?.clone();
    let is_lapsed = record.is_lapsed(moment.now);
    let nobody = Owner::from_bytes([u8::MAX; 16]);
    match (defect, command, &mut record.state) {
        (Defect::LapsedIsAbsent, Command::Claim(_), _) if is_lapsed => return None,
        (Defect::CompleteRefusedWhenLate, Command::Complete(_), _) if is_lapsed => record.owner = nobody,
        (Defect::CompleteAcceptedTwice, Command::Complete(_), State::Completed(completed))
            if completed.by == CompletedBy::Execution =>
        {
            record.state = unknown(&record, moment);
        }
        (Defect::LateCompletionReplaces, Command::Complete(_), State::Completed(completed))
            if completed.by != CompletedBy::Execution =>
        {
            record.state = unknown(&record, moment);
        }
        (Defect::OwnerGrantedAgain, Command::Claim(_), State::Released { .. }) => record.owner = nobody,
        (Defect::RepeatedClaimGetsNewFence, Command::Claim(claim), State::InFlight { .. })
            if claim.owner == record.owner =>
        {
            record.owner = nobody;
            record.state = State::Released { expires_at: moment.now + record.retention.get() };
        }
        (Defect::BusyIsGranted, Command::Claim(claim), State::InFlight { .. }) => record.owner = claim.owner,
        (Defect::AskingIgnored, Command::Claim(_), State::Unknown { recovery, .. }) => *recovery = None,
        (Defect::StepOverwritten, Command::RecordStep(_), _) => record.steps.clear(),
        _ => {}
    }
    Some(record)
}

fn unknown(record: &Record, moment: Moment) -> State {
    let expires_at = moment.now + record.unknown_retention.get();
    State::Unknown { since: moment.now, expires_at, recovery: None }
}

/// The result as the defective state machine gives it.
fn spoiled(
    defect: Defect,
    command: &Command,
    stored: Option<&Record>,
    (mut change, mut answer): (Change, Answer),
) -> (Change, Answer) {
    match (defect, command, &answer, &mut change) {
        (Defect::BusyRemoves, _, Answer::Claim(ClaimAnswer::Busy(_)), change)
        | (Defect::SweepRemovesInFlight, _, Answer::Sweep(SweepAnswer::MadeUnknown), change)
        | (Defect::EraseRemoves, _, Answer::Erase(EraseAnswer::Erased), change) => *change = Change::Remove,
        (Defect::EraseForgotten, _, Answer::Erase(EraseAnswer::Erased), change) => *change = Change::Keep,
        (Defect::AbandonReleases, Command::Abandon(_), answered, _) => {
            let released = *answered == Answer::Release(ReleaseAnswer::Released);
            answer = Answer::Abandon(if released { AbandonAnswer::Abandoned } else { AbandonAnswer::Fenced });
        }
        (Defect::RetentionFromArrival, Command::Complete(_), _, Change::Put(record)) => {
            if let (State::Completed(completed), Some(before)) = (&mut record.state, stored) {
                completed.expires_at = before.granted_at + before.retention.get();
            }
        }
        _ => {}
    }
    (change, answer)
}
