//! The commands on the wire, small enough to be part of a state, and how the state machine reads them.

use bytes::Bytes;
use onlyonce_core::record::StepName;
use onlyonce_core::transition::{
    Abandon, Actor, Claim, Command, Complete, Erase, RecordStep, Release, Renew, Resolve, Sweep, Token,
    Verdict,
};
use onlyonce_core::{Body, Fence, Outcome, Owner, RecordId, Tombstone};

use crate::setup::Papers;

/// The one record of the model.
const ID: RecordId = RecordId::from_bytes([1; 32]);
/// Every small number as a body of one byte, so that a copy of an outcome costs no allocation.
static NUMBERS: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

/// Who does what, under which grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Letter {
    /// What to do.
    pub order: Order,
    /// The fence; 0 where none is shown.
    pub fence: u8,
    /// The owner; 0 for operators, hooks and the sweeper.
    pub owner: u8,
}

/// A command without its token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each variant is documented on its command in the core")]
pub enum Order {
    Claim,
    Renew,
    Complete,
    Release { keep_fingerprint: bool },
    Abandon,
    RecordStep,
    ResolveExecuted,
    ResolveNotExecuted,
    ResolveStillUnknown,
    Erase,
    Sweep,
}

/// What an outcome says, read off its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tag {
    /// The owner of this fence reported it.
    Reported(u8),
    /// A hook or an operator found it out about this fence.
    FoundOut(u8),
    /// Nobody knows.
    Indeterminate,
    /// It was erased.
    Erased,
}

impl Letter {
    /// What operators, hooks and the sweeper send.
    pub const fn unsigned(fence: u8, order: Order) -> Self {
        Self { order, fence, owner: 0 }
    }

    /// Whether it shows the token of a grant.
    pub fn shows_a_token(self) -> bool {
        self.owner != 0 && self.order != Order::Claim
    }

    /// The command of the state machine.
    pub(crate) fn command(self, papers: &Papers) -> Command {
        let fence = Fence::new(self.fence.into()).expect("a small number is a fence");
        let token = Token { id: ID, owner: owner_of(self.owner), fence };
        match self.order {
            Order::Claim => Command::Claim(Claim {
                id: ID,
                fingerprint: papers.fingerprint(self.owner),
                owner: token.owner,
                terms: papers.terms(self.owner),
            }),
            Order::Renew => Command::Renew(Renew { token, lease: papers.terms(self.owner).lease }),
            Order::Complete => {
                let outcome = Tag::Reported(self.fence).outcome();
                Command::Complete(Complete { token, outcome, retention: None })
            }
            Order::Release { keep_fingerprint } => Command::Release(Release { token, keep_fingerprint }),
            Order::Abandon => Command::Abandon(Abandon { token }),
            Order::RecordStep => {
                Command::RecordStep(RecordStep { token, name: step_name(), value: number(self.fence) })
            }
            Order::ResolveExecuted => resolve(fence, Verdict::Executed(Tag::FoundOut(self.fence).outcome())),
            Order::ResolveNotExecuted => resolve(fence, Verdict::NotExecuted { force: false }),
            Order::ResolveStillUnknown => resolve(fence, Verdict::StillUnknown),
            Order::Erase => Command::Erase(Erase { id: ID }),
            Order::Sweep => Command::Sweep(Sweep { id: ID }),
        }
    }
}

impl Tag {
    /// The outcome that says so.
    pub fn outcome(self) -> Outcome {
        match self {
            Self::Reported(fence) => Outcome::kept(1, number(fence)),
            Self::FoundOut(fence) => Outcome::kept(2, number(fence)),
            Self::Indeterminate => Outcome::tombstone(0, Tombstone::Indeterminate),
            Self::Erased => Outcome::tombstone(0, Tombstone::Erased),
        }
    }

    /// What `outcome` says, if it says anything of ours.
    pub fn read(outcome: &Outcome) -> Option<Self> {
        match (outcome.content_version(), outcome.body()) {
            (1, Body::Kept(bytes)) => Some(Self::Reported(bytes[0])),
            (2, Body::Kept(bytes)) => Some(Self::FoundOut(bytes[0])),
            (_, Body::Tombstone(Tombstone::Indeterminate)) => Some(Self::Indeterminate),
            (_, Body::Tombstone(Tombstone::Erased)) => Some(Self::Erased),
            _ => None,
        }
    }

    /// The same about the attempt by its other name.
    #[must_use]
    pub fn with_fence(self, rename: impl Fn(u8) -> u8) -> Self {
        match self {
            Self::Reported(fence) => Self::Reported(rename(fence)),
            Self::FoundOut(fence) => Self::FoundOut(rename(fence)),
            Self::Indeterminate | Self::Erased => self,
        }
    }
}

/// The owner of this number.
pub(crate) fn owner_of(number: u8) -> Owner {
    Owner::from_bytes([number; 16])
}

/// The number of this owner.
pub(crate) fn owner_number(owner: &Owner) -> u8 {
    owner.as_bytes()[0]
}

/// A body that says this number.
pub(crate) fn number(number: u8) -> Bytes {
    let at = usize::from(number);
    Bytes::from_static(&NUMBERS[at..=at])
}

fn resolve(fence: Fence, verdict: Verdict) -> Command {
    Command::Resolve(Resolve { id: ID, fence, verdict, actor: Actor::Hook })
}

fn step_name() -> StepName {
    StepName::new("reference").expect("a printable word is a step name")
}
