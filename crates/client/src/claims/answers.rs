//! Answers as the contract writes them, read back into those of the state machine.

use std::time::Duration;

use onlyonce_core::fingerprint::Rules;
use onlyonce_core::record::codec;
use onlyonce_core::transition::{
    AbandonAnswer, Busy, ClaimAnswer, CompleteAnswer, EraseAnswer, Grant, Held, RecoverGrant, ReleaseAnswer,
    RenewAnswer, Replay, ResolveAnswer, StepAnswer,
};
use onlyonce_core::{Record, RecordId, StateKind, StoreError};
use serde::Deserialize;

use super::failure::Told;
use super::wire::{Base64, ByText, FenceNumber, Hex, OutcomeText, StepText};

/// What an answer that cannot be read says about itself.
pub(super) type Unreadable = &'static str;

/// The answers to a batch, in its order.
#[derive(Deserialize)]
pub(super) struct Answers<A> {
    pub(super) answers: Vec<Item<A>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Item<A> {
    Failed { error: Told },
    Answered(A),
}

/// An answer that the state machine could have given.
pub(super) trait Reads: Sized {
    type Answer;

    fn read(self) -> Result<Self::Answer, Unreadable>;
}

#[derive(Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub(super) enum ClaimText {
    Granted { fence: FenceNumber, attempt: u32, steps: Vec<StepText> },
    Replay { outcome: OutcomeText, by: ByText, fence: FenceNumber, attempt: u32, age_ms: u64, left_ms: u64 },
    Busy { left_ms: u64 },
    Held { fence: FenceNumber, age_ms: u64 },
    Mismatch { rules: Option<Base64> },
    Recover { fence: FenceNumber, attempt: u32, quiet_in_ms: u64, steps: Vec<StepText> },
    Fenced,
}

impl Reads for ClaimText {
    type Answer = ClaimAnswer;

    fn read(self) -> Result<ClaimAnswer, Unreadable> {
        let ms = Duration::from_millis;
        Ok(match self {
            Self::Granted { fence: FenceNumber(fence), attempt, steps } => {
                ClaimAnswer::Granted(Grant { fence, attempt, steps: StepText::read_all(steps)? })
            }
            Self::Replay { outcome, by, fence: FenceNumber(fence), attempt, age_ms, left_ms } => {
                let (outcome, by) = (outcome.read()?, by.into());
                ClaimAnswer::Replay(Replay {
                    outcome,
                    by,
                    fence,
                    attempt,
                    age: ms(age_ms),
                    left: ms(left_ms),
                })
            }
            Self::Busy { left_ms } => ClaimAnswer::Busy(Busy { left: ms(left_ms) }),
            Self::Held { fence: FenceNumber(fence), age_ms } => {
                ClaimAnswer::Held(Held { fence, age: ms(age_ms) })
            }
            Self::Mismatch { rules } => {
                let rules = rules.map(|text| Rules::new(text.0)).transpose();
                ClaimAnswer::Mismatch { rules: rules.map_err(|_| "rules that are none")? }
            }
            Self::Recover { fence: FenceNumber(fence), attempt, quiet_in_ms, steps } => {
                let (quiet_in, steps) = (ms(quiet_in_ms), StepText::read_all(steps)?);
                ClaimAnswer::Recover(RecoverGrant { fence, attempt, quiet_in, steps })
            }
            Self::Fenced => ClaimAnswer::Fenced,
        })
    }
}

#[derive(Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub(super) enum RenewText {
    Renewed { left_ms: u64 },
    Fenced,
}

impl Reads for RenewText {
    type Answer = RenewAnswer;

    fn read(self) -> Result<RenewAnswer, Unreadable> {
        Ok(match self {
            Self::Renewed { left_ms } => RenewAnswer::Renewed(Duration::from_millis(left_ms)),
            Self::Fenced => RenewAnswer::Fenced,
        })
    }
}

/// Answers that are one word.
macro_rules! one_word {
    ($text:ident => $answer:ident { $($word:ident),+ }) => {
        #[derive(Deserialize)]
        #[serde(tag = "answer", rename_all = "kebab-case")]
        pub(super) enum $text {
            $($word),+
        }

        impl Reads for $text {
            type Answer = $answer;

            fn read(self) -> Result<$answer, Unreadable> {
                Ok(match self {
                    $(Self::$word => $answer::$word),+
                })
            }
        }
    };
}

one_word!(CompleteText => CompleteAnswer { Completed, Already, Late, Alarm, Fenced });
one_word!(ReleaseText => ReleaseAnswer { Released, Fenced });
one_word!(AbandonText => AbandonAnswer { Abandoned, Fenced });
one_word!(EraseText => EraseAnswer { Erased, InFlight, Absent });

#[derive(Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub(super) enum StepReply {
    Recorded,
    Already { value: Base64 },
    Erased,
    Full,
    Fenced,
}

impl Reads for StepReply {
    type Answer = StepAnswer;

    fn read(self) -> Result<StepAnswer, Unreadable> {
        Ok(match self {
            Self::Recorded => StepAnswer::Recorded,
            Self::Already { value } => StepAnswer::Already(value.0),
            Self::Erased => StepAnswer::Erased,
            Self::Full => StepAnswer::Full,
            Self::Fenced => StepAnswer::Fenced,
        })
    }
}

#[derive(Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub(super) enum ResolveText {
    Resolved,
    Already,
    NotUnknown { state: String },
    Stale { fence: FenceNumber },
    TooEarly { left_ms: u64 },
    Contradicted,
    Absent,
}

impl Reads for ResolveText {
    type Answer = ResolveAnswer;

    fn read(self) -> Result<ResolveAnswer, Unreadable> {
        Ok(match self {
            Self::Resolved => ResolveAnswer::Resolved,
            Self::Already => ResolveAnswer::Already,
            Self::NotUnknown { state } => {
                let kind = StateKind::ALL.into_iter().find(|kind| kind.to_string() == state);
                ResolveAnswer::NotUnknown(kind.ok_or("a state that is none")?)
            }
            Self::Stale { fence } => ResolveAnswer::Stale(fence.0),
            Self::TooEarly { left_ms } => ResolveAnswer::TooEarly(Duration::from_millis(left_ms)),
            Self::Contradicted => ResolveAnswer::Contradicted,
            Self::Absent => ResolveAnswer::Absent,
        })
    }
}

#[derive(Deserialize)]
pub(super) struct LookupText {
    pub(super) record: Option<Base64>,
}

#[derive(Deserialize)]
pub(super) struct PageText {
    pub(super) records: Vec<RecordText>,
    #[serde(default)]
    pub(super) unreadable: Vec<UnreadableText>,
    pub(super) next: Option<Hex<32>>,
}

#[derive(Deserialize)]
pub(super) struct UnreadableText {
    pub(super) id: Hex<32>,
    pub(super) why: String,
}

#[derive(Deserialize)]
pub(super) struct RecordText {
    pub(super) id: Hex<32>,
    pub(super) record: Base64,
}

/// The record in `bytes`, which the codec checks.
pub(super) fn record(id: &RecordId, bytes: &Base64, doing: &'static str) -> Result<Record, StoreError> {
    codec::decode(id, &bytes.0).map_err(|error| StoreError::undecodable(error, doing))
}

#[derive(Deserialize)]
pub(super) struct SweptText {
    pub(super) removed: usize,
    pub(super) dropped: usize,
    pub(super) made_unknown: usize,
    pub(super) more: bool,
}

#[derive(Deserialize)]
pub(super) struct StatsText {
    pub(super) in_flight: u64,
    pub(super) completed: u64,
    pub(super) released: u64,
    pub(super) unknown: u64,
    #[serde(default)]
    pub(super) unreadable: u64,
    pub(super) bytes: u64,
    pub(super) oldest_expired_ms: Option<u64>,
}

#[derive(Deserialize)]
pub(super) struct SecretText {
    pub(super) secret: Hex<32>,
}

#[derive(Deserialize)]
pub(super) struct ImportedText {
    pub(super) taken: usize,
    pub(super) left: usize,
}

#[derive(Deserialize)]
pub(super) struct WaitText {
    pub(super) changed: bool,
    pub(super) version: String,
}

/// What the service says about itself.
#[derive(Deserialize)]
pub(super) struct ServiceText {
    pub(super) api: u32,
    pub(super) durability: DurabilityText,
    pub(super) request_bytes_max: usize,
    pub(super) wait_ms_max: u64,
}

#[derive(Deserialize)]
pub(super) struct DurabilityText {
    pub(super) process_crash: bool,
    pub(super) power_cut: bool,
    pub(super) node_loss: bool,
}
