//! The problem types. Each has a page of its name in `docs/errors/`.

use std::fmt;

use http::StatusCode;

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident $name:literal $status:ident $title:literal),* $(,)?) => {
        /// Why a request was not run, or has no answer of its own.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum ProblemKind {
            $($(#[$doc])* $kind,)*
        }

        impl ProblemKind {
            /// Every kind.
            pub const ALL: &'static [Self] = &[$(Self::$kind,)*];

            /// The stable name: the end of its type, and of its page.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }

            /// The usual status.
            pub const fn status(self) -> StatusCode {
                match self { $(Self::$kind => StatusCode::$status,)* }
            }

            /// What happened, in one line that never changes.
            pub const fn title(self) -> &'static str {
                match self { $(Self::$kind => $title,)* }
            }
        }
    };
}

kinds! {
    /// A key is required here.
    KeyMissing "key-missing" BAD_REQUEST "This operation needs an idempotency key",
    /// What was sent as a key is not one.
    KeyInvalid "key-invalid" BAD_REQUEST "The idempotency key is not valid",
    /// There are credentials, but none that says whose key it is.
    PrincipalMissing "principal-missing" BAD_REQUEST "It cannot be told whose idempotency key this is",
    /// The request body ended early or was malformed.
    BodyUnreadable "body-unreadable" BAD_REQUEST "The request body could not be read to its end",
    /// The key was used for another request.
    KeyReused "key-reused" UNPROCESSABLE_ENTITY "The idempotency key was used for another request",
    /// The same request is running.
    InFlight "in-flight" CONFLICT "The same request is still running",
    /// Nobody knows whether it happened.
    OutcomeUnknown "outcome-unknown" CONFLICT "It is unknown whether the operation happened",
    /// Nobody knows whether it happened, and nobody will find out any more.
    OutcomeIndeterminate "outcome-indeterminate" INTERNAL_SERVER_ERROR
        "It is unknown whether the operation happened, and the record is closed",
    /// The key is older than what is remembered.
    KeyExpired "key-expired" PRECONDITION_FAILED "The idempotency key is older than what is remembered",
    /// It was done, and its answer was not kept.
    AnswerNotKept "answer-not-kept" OK "The operation was done; its answer was not kept",
    /// The request body is larger than is taken with a key.
    BodyTooLarge "body-too-large" PAYLOAD_TOO_LARGE "The request body is too large to be protected",
    /// The record could not be claimed or read; nothing was started.
    StoreUnavailable "store-unavailable" SERVICE_UNAVAILABLE "The operation was not started: its record cannot be reached",
    /// All requests together hold as much as they may.
    Overloaded "overloaded" SERVICE_UNAVAILABLE "The operation was not started: too much is being held in memory",
    /// The caller uses as much as it may.
    Quota "quota" TOO_MANY_REQUESTS "The caller has too many operations on record or running",
    /// The application could not be reached, or broke off.
    UpstreamUnreachable "upstream-unreachable" BAD_GATEWAY "The application gave no complete answer",
    /// The application took too long.
    UpstreamTimeout "upstream-timeout" GATEWAY_TIMEOUT "The application did not answer in time",
    /// The claims API cannot make sense of the request.
    RequestInvalid "request-invalid" BAD_REQUEST "The request is not understood",
    /// The claims API does not know the caller.
    Unauthorized "unauthorized" UNAUTHORIZED "A valid token is needed",
    /// The claims API knows the caller, who may not do this.
    Forbidden "forbidden" FORBIDDEN "The token does not allow this",
    /// The claims API has no such record, or no such path.
    NotFound "not-found" NOT_FOUND "There is nothing of that name here",
    /// The claims API has the path, but not for this method.
    MethodNotAllowed "method-not-allowed" METHOD_NOT_ALLOWED "The method is not served here",
    /// The claims API takes JSON here.
    MediaTypeUnsupported "media-type-unsupported" UNSUPPORTED_MEDIA_TYPE "The content type is not taken here",
    /// An operator's command does not fit the state that the record is in.
    StateConflict "state-conflict" CONFLICT "The state of the record does not allow this",
    /// An operator's command that cannot be audited is not run.
    AuditUnavailable "audit-unavailable" SERVICE_UNAVAILABLE "The command was not run: it cannot be audited",
    /// The stored record is damaged, or of a newer version.
    RecordUnreadable "record-unreadable" INTERNAL_SERVER_ERROR "The stored record cannot be read",
}

impl ProblemKind {
    /// Whether the same request may get another answer later.
    pub const fn is_retryable(self) -> bool {
        matches!(
            self,
            Self::InFlight
                | Self::OutcomeUnknown
                | Self::StoreUnavailable
                | Self::Overloaded
                | Self::Quota
                | Self::UpstreamUnreachable
                | Self::UpstreamTimeout
                | Self::BodyUnreadable
        )
    }

    /// Whether an operator can end the doubt by naming the record.
    pub(crate) const fn is_resolvable(self) -> bool {
        matches!(
            self,
            Self::OutcomeUnknown
                | Self::OutcomeIndeterminate
                | Self::UpstreamUnreachable
                | Self::UpstreamTimeout
        )
    }
}

impl fmt::Display for ProblemKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
