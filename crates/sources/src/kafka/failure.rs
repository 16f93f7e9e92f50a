//! What a failure means: whether asking again may help, and whether a partition is still ours.
//!
//! | what | is | and then |
//! |---|---|---|
//! | no right, a record or a name that is never taken, a client that is over | Refused | somebody has to change something |
//! | a group in which we are not, or not as we thought | lost | the client joins again, and says which partitions are gone |
//! | everything else | Unavailable | it may pass |

use onlyonce_inbox::{SourceError, SourceErrorKind};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

/// Asking again changes nothing.
const PERMANENT: [RDKafkaErrorCode; 16] = [
    RDKafkaErrorCode::TopicAuthorizationFailed,
    RDKafkaErrorCode::GroupAuthorizationFailed,
    RDKafkaErrorCode::ClusterAuthorizationFailed,
    RDKafkaErrorCode::SaslAuthenticationFailed,
    RDKafkaErrorCode::Authentication,
    RDKafkaErrorCode::SecurityDisabled,
    RDKafkaErrorCode::InvalidGroupId,
    RDKafkaErrorCode::InvalidCommitOffsetSize,
    RDKafkaErrorCode::OffsetMetadataTooLarge,
    RDKafkaErrorCode::InvalidTopic,
    RDKafkaErrorCode::MessageSizeTooLarge,
    RDKafkaErrorCode::InvalidRecord,
    RDKafkaErrorCode::PolicyViolation,
    RDKafkaErrorCode::UnsupportedVersion,
    // The client is of no use any more.
    RDKafkaErrorCode::FencedInstanceId,
    RDKafkaErrorCode::Fatal,
];

/// The broker says that we are not in the group, or not in this generation of it. The client hears it too, and joins again.
const LOST: [RDKafkaErrorCode; 6] = [
    RDKafkaErrorCode::IllegalGeneration,
    RDKafkaErrorCode::UnknownMemberId,
    RDKafkaErrorCode::RebalanceInProgress,
    RDKafkaErrorCode::AssignmentLost,
    RDKafkaErrorCode::FencedMemberEpoch,
    RDKafkaErrorCode::StaleMemberEpoch,
];

/// Whether it says that partitions are, or will be, somebody else's.
pub(super) fn is_lost(error: &KafkaError) -> bool {
    error.rdkafka_error_code().is_some_and(|code| LOST.contains(&code))
}

/// A failure that the client told.
pub(super) fn failed(doing: &'static str, error: KafkaError) -> SourceError {
    let is_permanent = matches!(error, KafkaError::MessageConsumptionFatal(_))
        || error.rdkafka_error_code().is_some_and(|code| PERMANENT.contains(&code));
    let kind = if is_permanent { SourceErrorKind::Refused } else { SourceErrorKind::Unavailable };
    SourceError::new(kind, doing).because(error)
}

pub(super) fn refused(doing: &'static str, why: String) -> SourceError {
    SourceError::new(SourceErrorKind::Refused, doing).because(why)
}

pub(super) fn unavailable(doing: &'static str, why: impl Into<onlyonce_core::BoxError>) -> SourceError {
    SourceError::new(SourceErrorKind::Unavailable, doing).because(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_pass_is_asked_again_and_what_cannot_is_refused() {
        let kind = |code| failed("testing", KafkaError::ConsumerCommit(code)).kind();
        for code in [
            RDKafkaErrorCode::GroupAuthorizationFailed,
            RDKafkaErrorCode::TopicAuthorizationFailed,
            RDKafkaErrorCode::OffsetMetadataTooLarge,
            RDKafkaErrorCode::Fatal,
        ] {
            assert_eq!(kind(code), SourceErrorKind::Refused, "{code:?}");
        }
        for code in [
            RDKafkaErrorCode::NotCoordinator,
            RDKafkaErrorCode::BrokerTransportFailure,
            RDKafkaErrorCode::UnknownTopicOrPartition,
        ]
        .into_iter()
        .chain(LOST)
        {
            assert_eq!(kind(code), SourceErrorKind::Unavailable, "{code:?}");
            assert_eq!(is_lost(&KafkaError::ConsumerCommit(code)), LOST.contains(&code), "{code:?}");
        }
        let over = failed("testing", KafkaError::MessageConsumptionFatal(RDKafkaErrorCode::Unknown));
        assert_eq!(over.kind(), SourceErrorKind::Refused);
    }
}
