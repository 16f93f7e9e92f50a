//! From the engine's reply to an answer with its marks.

use std::sync::Arc;
use std::time::Duration;

use http::header::HeaderValue;
use http::{Response, StatusCode};
use onlyonce_core::transition::Replay;
use onlyonce_core::{Conflict, Cut, EngineError, Fence, Ran, RecordId, Recorded, StoreError, Tombstone};

use super::ending::Made;
use crate::body::Body;
use crate::dispatch::Dispatch;
use crate::fingerprint::Asked;
use crate::header::ONLYONCE_UNRECORDED;
use crate::layer::{ReplayCheck, Shared};
use crate::observe::{Answered, Event, How, Would};
use crate::problem::{Problem, ProblemKind, Style};
use crate::replay::{Replayed, mark, not_kept, replay};
use crate::route::Route;
use crate::snapshot;

/// When to ask a store again that could not be reached: it may be restarting.
const STORE_RETRY_AFTER: Duration = Duration::from_secs(1);

/// Makes answers for one request, in its route's form.
pub(super) struct Replier {
    pub(super) shared: Arc<Shared>,
    pub(super) route: Arc<Route>,
    pub(super) style: Style,
}

impl Replier {
    pub(super) fn observe(&self, event: Event) {
        self.shared.observer.event(&self.route.name, event);
    }

    /// Leaves a note for access logs, where there are any.
    pub(super) fn note(
        &self,
        response: &mut Response<Body>,
        how: How,
        id: Option<RecordId>,
        fence: Option<Fence>,
    ) {
        self.leave(response, Answered { how, id, fence, original: None });
    }

    fn leave(&self, response: &mut Response<Body>, answered: Answered) {
        if self.shared.extends {
            response.extensions_mut().insert(answered);
        }
    }

    /// One of our own answers.
    pub(super) fn refuse(&self, problem: Problem, id: Option<RecordId>) -> Response<Body> {
        let kind = problem.kind();
        self.observe(Event::Refused { kind, id });
        let mut response = self.render(problem);
        self.note(&mut response, How::Refused(kind), id, None);
        response
    }

    fn render(&self, problem: Problem) -> Response<Body> {
        problem.into_response(self.style, self.shared.errors_url.as_deref())
    }

    /// The answer of work that ran for this request.
    pub(super) fn ran(&self, id: RecordId, ran: Ran<Box<Made>>) -> Response<Body> {
        let Ran { value, fence, attempt, recorded } = ran;
        let (mut response, status) = self.made(id, Some(fence), *value);
        self.observe(Event::Ran { id, status, recorded, attempt });
        if self.route.shadow {
            self.observe(Event::Shadow { would: Would::Run, id: Some(id) });
            self.note(&mut response, How::Shadow, Some(id), Some(fence));
            return response;
        }
        mark(&self.route, &mut response, false);
        if matches!(recorded, Recorded::Unrecorded | Recorded::Late) {
            response.headers_mut().insert(ONLYONCE_UNRECORDED, HeaderValue::from_static("true"));
        }
        self.note(&mut response, How::Ran(recorded), Some(id), Some(fence));
        response
    }

    /// What the work made, and the application's status.
    fn made(&self, id: RecordId, fence: Option<Fence>, made: Made) -> (Response<Body>, Option<StatusCode>) {
        match made {
            Made::Nothing(dispatch) => (self.render(dispatch_problem(id, fence, dispatch)), None),
            // In shadow mode the caller gets what there is, and half an answer is none.
            Made::BrokenOff { status, came: Some(response) } if self.route.shadow => (response, Some(status)),
            Made::BrokenOff { .. } if self.route.shadow => {
                (self.render(dispatch_problem(id, fence, Dispatch::NoAnswer)), None)
            }
            Made::BrokenOff { status, .. } => {
                self.observe(Event::NotKept { id, why: Tombstone::Discarded });
                let problem = not_kept(Tombstone::Discarded, Some(status));
                (self.render(problem.record(id, fence)), Some(status))
            }
            Made::Answer { response, not_kept, is_odd } => {
                if is_odd {
                    self.observe(Event::SteeringIgnored);
                }
                if let Some(why) = not_kept {
                    self.observe(Event::NotKept { id, why });
                }
                let status = response.status();
                (response, Some(status))
            }
        }
    }

    /// In shadow mode, the answer of work whose grant ended in another way.
    pub(super) fn shadowed(&self, id: RecordId, would: Would, made: Made) -> Response<Body> {
        let (mut response, _) = self.made(id, None, made);
        self.observe(Event::Shadow { would, id: Some(id) });
        self.note(&mut response, How::Shadow, Some(id), None);
        response
    }

    /// What is answered in place of a replay to a caller who may no longer be who it was.
    pub(super) async fn withheld(
        &self,
        check: &dyn ReplayCheck,
        id: RecordId,
        fence: Fence,
        asked: &Asked,
    ) -> Option<Response<Body>> {
        // The work never began, so the head is still there.
        let mut refused = check.check(&*asked.take()?).await.err()?;
        self.observe(Event::Withheld { id });
        self.note(&mut refused, How::Withheld, Some(id), Some(fence));
        Some(refused)
    }

    /// The answer of work that ran before.
    pub(super) fn replayed(&self, id: RecordId, recorded: &Replay) -> Response<Body> {
        let mut response = match replay(&self.route, recorded) {
            Ok(Replayed::Answer(response)) => response,
            Ok(Replayed::Problem(problem)) => self.render(problem.record(id, Some(recorded.fence))),
            Err(error) => {
                // I14: what cannot be read is an error, never absent.
                tracing::error!(id = id.short(), %error, "a recorded answer cannot be read");
                return self.refuse(damaged(id), Some(id));
            }
        };
        mark(&self.route, &mut response, true);
        let Replay { age, left, fence, .. } = *recorded;
        self.observe(Event::Replayed { id, status: response.status(), age, left });
        let original = snapshot::trace_of(&recorded.outcome);
        let answered = Answered { how: How::Replayed, id: Some(id), fence: Some(fence), original };
        self.leave(&mut response, answered);
        response
    }
}

/// Why a call got no answer of its own.
pub(super) fn conflict_problem(id: RecordId, conflict: Conflict) -> Problem {
    let (kind, detail) = match conflict {
        Conflict::InFlight { .. } => (
            ProblemKind::InFlight,
            "Ask again later with the same key; the answer will be the same for both requests.",
        ),
        Conflict::KeyReused => (
            ProblemKind::KeyReused,
            "A key belongs to one request. Send this one under a new key, or the earlier one again.",
        ),
        Conflict::OverQuota { .. } => {
            (ProblemKind::Quota, "Nothing was started. Ask again when some of it is done or has expired.")
        }
        Conflict::OutcomeUnknown { cut: None, .. } => (
            ProblemKind::OutcomeUnknown,
            "An attempt ended without a word. It is not run again until it is known what happened.",
        ),
        Conflict::OutcomeUnknown { cut: Some(Cut::OutOfTime), .. } => (
            ProblemKind::UpstreamTimeout,
            "It took longer than it may and was stopped. It is unknown whether it happened.",
        ),
        Conflict::OutcomeUnknown { cut: Some(Cut::Panicked | Cut::ShutDown), .. } => (
            ProblemKind::UpstreamUnreachable,
            "It was cut off while it ran. It is unknown whether it happened.",
        ),
        // Another attempt holds the truth, or will.
        _ => (
            ProblemKind::InFlight,
            "Another attempt has taken over. Ask again with the same key for its answer.",
        ),
    };
    let problem = Problem::new(kind, detail);
    match conflict {
        Conflict::InFlight { retry_after } | Conflict::OverQuota { retry_after } => {
            problem.retry_after(retry_after)
        }
        Conflict::OutcomeUnknown { fence, .. } => problem.record(id, Some(fence)),
        Conflict::KeyReused => problem,
        _ => problem.retry_after(Duration::from_secs(1)),
    }
}

/// Why the application gave no answer, and what that means for a retry.
fn dispatch_problem(id: RecordId, fence: Option<Fence>, dispatch: Dispatch) -> Problem {
    let (kind, detail, fence) = match dispatch {
        Dispatch::NothingSent => (
            ProblemKind::UpstreamUnreachable,
            "Nothing was sent to it, so a retry with the same key runs.",
            None,
        ),
        Dispatch::TimedOut => {
            (ProblemKind::UpstreamTimeout, "The request was sent. It is unknown whether it happened.", fence)
        }
        Dispatch::NoAnswer => (
            ProblemKind::UpstreamUnreachable,
            "The request was sent, or may have been. It is unknown whether it happened.",
            fence,
        ),
    };
    Problem::new(kind, detail).record(id, fence)
}

/// Why nothing could be started or replayed.
pub(super) fn store_problem(id: RecordId, error: &EngineError) -> Problem {
    tracing::debug!(%error, "a protected request was refused");
    if error.store_error().is_some_and(StoreError::is_unreadable) {
        // Somebody must look, and is told why: a key of the encryption may be missing.
        let causes = std::iter::successors(std::error::Error::source(error), |error| error.source());
        let why = causes.map(ToString::to_string).collect::<Vec<_>>().join(": ");
        tracing::error!(id = id.short(), why, "a record cannot be read, so that its key is refused");
        return damaged(id);
    }
    let detail = "Nothing was started. Ask again with the same key.";
    Problem::new(ProblemKind::StoreUnavailable, detail).retry_after(STORE_RETRY_AFTER)
}

/// Names the record, so that an operator can look at it, and erase it, without knowing the caller.
fn damaged(id: RecordId) -> Problem {
    let detail = "The record of this key cannot be read, so it is neither replayed nor run again.";
    Problem::new(ProblemKind::StoreUnavailable, detail).record(id, None)
}
