//! The commands of the state machine as calls of scripts, and the scripts' answers as the state machine's.
//!
//! Numbers here are those at the head of each script in `scripts/`. Nothing here decides anything.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use onlyonce_core::record::codec::CodecError;
use onlyonce_core::record::{STEPS_BYTES_MAX, STEPS_MAX, State, StateKind, Step};
use onlyonce_core::transition::{
    Abandon, AbandonAnswer, Busy, Claim, ClaimAnswer, Complete, CompleteAnswer, Erase, EraseAnswer, Grant,
    Held, RecordStep, RecoverGrant, Release, ReleaseAnswer, Renew, RenewAnswer, Replay, Resolve,
    ResolveAnswer, StepAnswer, Token, UnknownPolicy, Verdict,
};
use onlyonce_core::{Fence, RecordId, StoreError, StoreErrorKind, Timestamp};
use redis::{Cmd, Value};

use crate::codec::{self, Packed};
use crate::error;
use crate::scripts::Script;

/// What the server a command goes to is known to need.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Situation {
    /// How far fences run ahead of the server's time, in microseconds.
    pub(crate) fence_ahead: u64,
    /// Whether no new grant may be made.
    pub(crate) is_quarantined: bool,
    /// Whether the answer must be acknowledged, so that also what another connection wrote is written again.
    pub(crate) is_touched: bool,
}

/// A call of a script, to be sent to whichever server turns out to be the right one.
#[derive(Clone, Copy)]
pub(crate) enum Call<'a> {
    /// The same for every server.
    Packed(&'a Cmd),
    /// With what must be known of the server at the moment of sending.
    For(&'a (dyn Fn(Situation) -> Cmd + Sync)),
}

impl<'a> Call<'a> {
    pub(crate) fn packed(&self, situation: Situation) -> Cow<'a, Cmd> {
        match *self {
            Self::Packed(call) => Cow::Borrowed(call),
            Self::For(pack) => Cow::Owned(pack(situation)),
        }
    }
}

impl<'a> From<&'a Cmd> for Call<'a> {
    fn from(call: &'a Cmd) -> Self {
        Self::Packed(call)
    }
}

/// A command that a script runs.
pub(crate) trait Asked: Sync {
    type Answer: Send;
    const SCRIPT: Script;
    const DOING: &'static str;
    /// Whether the answer is a grant or an outcome, which may have to be acknowledged.
    const IS_SURE: bool = false;

    fn id(&self) -> &RecordId;

    /// The lease that the command asks for, if any.
    fn lease(&self) -> Duration {
        Duration::ZERO
    }

    /// Adds the script's arguments.
    fn arguments(&self, situation: Situation, call: &mut Cmd);

    fn answer(&self, value: Value) -> Result<Self::Answer, StoreError>;
}

/// A script's answer, field by field.
pub(crate) struct Told {
    fields: std::vec::IntoIter<Value>,
    doing: &'static str,
}

impl Told {
    /// Takes an answer apart: a number alone, or a list that begins with one. Damage is an error here.
    pub(crate) fn new(value: Value, doing: &'static str) -> Result<(i64, Self), StoreError> {
        match value {
            Value::Int(-1) => Err(damaged(CodecError::Damaged("head"), doing)),
            Value::Int(-2) => Err(StoreError::new(StoreErrorKind::Unsupported, doing)),
            Value::Int(code) => Ok((code, Self { fields: Vec::new().into_iter(), doing })),
            Value::Array(fields) => {
                let mut told = Self { fields: fields.into_iter(), doing };
                let code = told.number()?;
                Ok((i64::try_from(code).unwrap_or(i64::MAX), told))
            }
            other => Err(error::unexpected(&other, doing)),
        }
    }

    pub(crate) fn number(&mut self) -> Result<u64, StoreError> {
        match self.fields.next() {
            Some(Value::Int(number)) => {
                u64::try_from(number).map_err(|_| error::unexpected(&Value::Int(number), self.doing))
            }
            other => Err(error::unexpected(&other.unwrap_or_default(), self.doing)),
        }
    }

    pub(crate) fn bytes(&mut self) -> Result<Bytes, StoreError> {
        match self.fields.next() {
            Some(Value::BulkString(bytes)) => Ok(bytes.into()),
            other => Err(error::unexpected(&other.unwrap_or_default(), self.doing)),
        }
    }

    fn duration(&mut self) -> Result<Duration, StoreError> {
        self.number().map(Duration::from_millis)
    }

    fn fence(&mut self) -> Result<Fence, StoreError> {
        let number = self.number()?;
        Fence::new(number).ok_or_else(|| damaged(CodecError::Damaged("fence"), self.doing))
    }

    fn attempt(&mut self) -> Result<u32, StoreError> {
        let number = self.number()?;
        u32::try_from(number).map_err(|_| damaged(CodecError::Damaged("attempt"), self.doing))
    }

    fn steps(&mut self, id: &RecordId) -> Result<Vec<Step>, StoreError> {
        let bytes = self.bytes()?;
        codec::decode_steps(id, bytes).map_err(|error| damaged(error, self.doing))
    }
}

fn damaged(error: CodecError, doing: &'static str) -> StoreError {
    StoreError::undecodable(error, doing)
}

fn unknown_code(code: i64, doing: &'static str) -> StoreError {
    error::unexpected(&Value::Int(code), doing)
}

fn token(token: &Token) -> Packed {
    Packed::default().raw(token.owner.as_bytes()).number(token.fence.get(), 8)
}

impl Asked for Claim {
    type Answer = ClaimAnswer;
    const SCRIPT: Script = Script::Claim;
    const DOING: &'static str = "claiming a record";
    const IS_SURE: bool = true;

    fn id(&self) -> &RecordId {
        &self.id
    }

    fn lease(&self) -> Duration {
        self.terms.lease.get()
    }

    fn arguments(&self, situation: Situation, call: &mut Cmd) {
        let terms = &self.terms;
        let policy = match terms.unknown {
            UnknownPolicy::Hold => 0,
            UnknownPolicy::Seal => 1,
            UnknownPolicy::Query => 2,
            UnknownPolicy::Rerun => 3,
        };
        let fingerprint = codec::encode_fingerprint(&self.fingerprint);
        let fixed = codec::begin(&self.owner, terms.remote, fingerprint.len())
            .duration(terms.retention.get())
            .duration(terms.unknown_retention.get())
            .duration(terms.lease.get())
            .duration(terms.run_max)
            .number(situation.fence_ahead, 8)
            .byte(situation.is_quarantined.into())
            .byte(policy)
            .number(terms.attempts_max.into(), 4)
            .duration(terms.hold_for)
            .byte(situation.is_touched.into());
        call.arg(fixed.finish()).arg(fingerprint);
        call.arg(codec::encode_outcome_of(&self.id, &terms.sealed));
    }

    fn answer(&self, value: Value) -> Result<ClaimAnswer, StoreError> {
        if let Value::Int(fence @ 1..) = value {
            // The first grant of a record is told by its fence alone.
            let fence = Fence::new(fence.cast_unsigned());
            let fence = fence.ok_or_else(|| damaged(CodecError::Damaged("fence"), Self::DOING))?;
            return Ok(ClaimAnswer::Granted(Grant { fence, attempt: 1, steps: Vec::new() }));
        }
        let (code, mut told) = Told::new(value, Self::DOING)?;
        Ok(match code {
            1 => {
                let (fence, attempt) = (told.fence()?, told.attempt()?);
                ClaimAnswer::Granted(Grant { fence, attempt, steps: told.steps(&self.id)? })
            }
            2 => ClaimAnswer::Replay(replay(&self.id, &mut told)?),
            3 => ClaimAnswer::Busy(Busy { left: told.duration()? }),
            4 => ClaimAnswer::Held(Held { fence: told.fence()?, age: told.duration()? }),
            5 => {
                let stored = codec::decode_fingerprint(&told.bytes()?);
                let stored = stored.map_err(|error| damaged(error, Self::DOING))?;
                let differ = stored.rules() != self.fingerprint.rules();
                ClaimAnswer::Mismatch { rules: differ.then(|| stored.rules().clone()) }
            }
            6 => ClaimAnswer::Recover(RecoverGrant {
                fence: told.fence()?,
                attempt: told.attempt()?,
                quiet_in: told.duration()?,
                steps: told.steps(&self.id)?,
            }),
            7 => ClaimAnswer::Fenced,
            8 => {
                return Err(StoreError::new(StoreErrorKind::Unavailable, Self::DOING).because(
                    "Redis lost records or may evict them, and a grant could be a second one: \
                     new grants wait until every lease from before has ended",
                ));
            }
            other => return Err(unknown_code(other, Self::DOING)),
        })
    }
}

fn replay(id: &RecordId, told: &mut Told) -> Result<Replay, StoreError> {
    let now = Timestamp::from_millis(told.number()?);
    let record = codec::decode(id, &told.bytes()?).map_err(|error| damaged(error, Claim::DOING))?;
    let State::Completed(completed) = record.state else {
        return Err(damaged(CodecError::Damaged("state"), Claim::DOING));
    };
    Ok(Replay {
        by: completed.by,
        fence: record.fence,
        attempt: record.attempt,
        age: completed.at.until(now),
        left: now.until(completed.expires_at),
        outcome: completed.outcome,
    })
}

impl Asked for Renew {
    type Answer = RenewAnswer;
    const SCRIPT: Script = Script::Renew;
    const DOING: &'static str = "renewing a lease";

    fn id(&self) -> &RecordId {
        &self.token.id
    }

    fn lease(&self) -> Duration {
        self.lease.get()
    }

    fn arguments(&self, _: Situation, call: &mut Cmd) {
        call.arg(token(&self.token).duration(self.lease.get()).finish());
    }

    fn answer(&self, value: Value) -> Result<RenewAnswer, StoreError> {
        let (left, _) = Told::new(value, Self::DOING)?;
        Ok(match u64::try_from(left) {
            Ok(0) => RenewAnswer::Fenced,
            Ok(left) => RenewAnswer::Renewed(Duration::from_millis(left)),
            Err(_) => return Err(unknown_code(left, Self::DOING)),
        })
    }
}

impl Asked for Complete {
    type Answer = CompleteAnswer;
    const SCRIPT: Script = Script::Complete;
    const DOING: &'static str = "completing a record";
    const IS_SURE: bool = true;

    fn id(&self) -> &RecordId {
        &self.token.id
    }

    fn arguments(&self, situation: Situation, call: &mut Cmd) {
        let retention = self.retention.map_or(Duration::ZERO, onlyonce_core::Retention::get);
        let fixed = token(&self.token).duration(retention).byte(situation.is_touched.into());
        call.arg(fixed.finish());
        call.arg(codec::encode_tail(&[], &codec::encode_outcome_of(&self.token.id, &self.outcome), &[]));
    }

    fn answer(&self, value: Value) -> Result<CompleteAnswer, StoreError> {
        let (code, mut told) = Told::new(value, Self::DOING)?;
        if matches!(code, 3 | 4) {
            // Another outcome is there: unless it is only damaged.
            codec::decode_outcome_of(&self.token.id, &told.bytes()?)
                .map_err(|error| damaged(error, Self::DOING))?;
        }
        Ok(match code {
            1 => CompleteAnswer::Completed,
            2 => CompleteAnswer::Already,
            3 => CompleteAnswer::Late,
            4 => CompleteAnswer::Alarm,
            5 => CompleteAnswer::Fenced,
            other => return Err(unknown_code(other, Self::DOING)),
        })
    }
}

impl Asked for Release {
    type Answer = ReleaseAnswer;
    const SCRIPT: Script = Script::Release;
    const DOING: &'static str = "releasing a record";

    fn id(&self) -> &RecordId {
        &self.token.id
    }

    fn arguments(&self, _: Situation, call: &mut Cmd) {
        call.arg(token(&self.token).byte(self.keep_fingerprint.into()).finish());
    }

    fn answer(&self, value: Value) -> Result<ReleaseAnswer, StoreError> {
        match Told::new(value, Self::DOING)?.0 {
            1 => Ok(ReleaseAnswer::Released),
            0 => Ok(ReleaseAnswer::Fenced),
            other => Err(unknown_code(other, Self::DOING)),
        }
    }
}

impl Asked for Abandon {
    type Answer = AbandonAnswer;
    const SCRIPT: Script = Script::Abandon;
    const DOING: &'static str = "abandoning a record";

    fn id(&self) -> &RecordId {
        &self.token.id
    }

    fn arguments(&self, _: Situation, call: &mut Cmd) {
        call.arg(token(&self.token).finish());
    }

    fn answer(&self, value: Value) -> Result<AbandonAnswer, StoreError> {
        match Told::new(value, Self::DOING)?.0 {
            1 => Ok(AbandonAnswer::Abandoned),
            0 => Ok(AbandonAnswer::Fenced),
            other => Err(unknown_code(other, Self::DOING)),
        }
    }
}

impl Asked for RecordStep {
    type Answer = StepAnswer;
    const SCRIPT: Script = Script::RecordStep;
    const DOING: &'static str = "recording a step";

    fn id(&self) -> &RecordId {
        &self.token.id
    }

    fn arguments(&self, _: Situation, call: &mut Cmd) {
        let step = Step { name: self.name.clone(), value: Some(self.value.clone()) };
        let bounds = token(&self.token).number(STEPS_MAX as u64, 2).number(STEPS_BYTES_MAX as u64, 4);
        call.arg(bounds.finish()).arg(self.name.as_str()).arg(codec::encode_step(&self.token.id, &step));
    }

    fn answer(&self, value: Value) -> Result<StepAnswer, StoreError> {
        let (code, mut told) = Told::new(value, Self::DOING)?;
        Ok(match code {
            1 => StepAnswer::Recorded,
            2 => match told.steps(&self.token.id)?.into_iter().next().and_then(|step| step.value) {
                Some(value) => StepAnswer::Already(value),
                None => return Err(damaged(CodecError::Damaged("step"), Self::DOING)),
            },
            3 => StepAnswer::Erased,
            4 => StepAnswer::Full,
            5 => StepAnswer::Fenced,
            other => return Err(unknown_code(other, Self::DOING)),
        })
    }
}

impl Asked for Resolve {
    type Answer = ResolveAnswer;
    const SCRIPT: Script = Script::Resolve;
    const DOING: &'static str = "resolving a record";

    fn id(&self) -> &RecordId {
        &self.id
    }

    fn arguments(&self, _: Situation, call: &mut Cmd) {
        let (verdict, force, outcome) = match &self.verdict {
            Verdict::Executed(outcome) => (0, false, codec::encode_outcome_of(&self.id, outcome)),
            Verdict::NotExecuted { force } => (1, *force, Vec::new()),
            Verdict::StillUnknown => (2, false, Vec::new()),
        };
        let fixed = Packed::default().number(self.fence.get(), 8).byte(verdict).byte(force.into());
        call.arg(fixed.finish()).arg(outcome);
    }

    fn answer(&self, value: Value) -> Result<ResolveAnswer, StoreError> {
        let (code, mut told) = Told::new(value, Self::DOING)?;
        Ok(match code {
            1 => ResolveAnswer::Resolved,
            2 => ResolveAnswer::Already,
            3 => ResolveAnswer::NotUnknown(state_kind(told.number()?)?),
            4 => ResolveAnswer::Stale(told.fence()?),
            5 => ResolveAnswer::TooEarly(told.duration()?),
            6 => ResolveAnswer::Contradicted,
            7 => ResolveAnswer::Absent,
            other => return Err(unknown_code(other, Self::DOING)),
        })
    }
}

/// States are numbered in the order of the state machine.
fn state_kind(number: u64) -> Result<StateKind, StoreError> {
    let kind = usize::try_from(number).ok().and_then(|number| StateKind::ALL.get(number).copied());
    kind.ok_or_else(|| damaged(CodecError::Damaged("state"), Resolve::DOING))
}

impl Asked for Erase {
    type Answer = EraseAnswer;
    const SCRIPT: Script = Script::Erase;
    const DOING: &'static str = "erasing a record";

    fn id(&self) -> &RecordId {
        &self.id
    }

    fn arguments(&self, _: Situation, _: &mut Cmd) {}

    fn answer(&self, value: Value) -> Result<EraseAnswer, StoreError> {
        match Told::new(value, Self::DOING)?.0 {
            1 => Ok(EraseAnswer::Erased),
            2 => Ok(EraseAnswer::InFlight),
            3 => Ok(EraseAnswer::Absent),
            other => Err(unknown_code(other, Self::DOING)),
        }
    }
}
