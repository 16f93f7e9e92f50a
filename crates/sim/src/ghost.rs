//! What the outside was told so far, and which promise was broken. Sees commands, answers, the time, and of the record
//! only its fence: it must not learn the rules from what it checks.
//!
//! A *life* of the record goes from the grant that finds nothing to the expiry of what came of it.

mod observe;

use onlyonce_core::transition::UnknownPolicy;

use crate::caller::Caller;
use crate::letter::Tag;
use crate::setup::{ATTEMPTS_MAX, Setup, Ticks};

/// What a state can show as broken. Once broken, it stays so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is spelled out in `properties`")]
pub enum Promise {
    I1,
    I2,
    I3,
    I4,
    I5,
    I6,
    I7,
    I7Once,
    I10,
    I12,
    I16,
    StaleToken,
    FencedOutcome,
    LiveOwner,
    Steps,
    StrictOwner,
}

/// Something that must happen in some run, or the promises are empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is spelled out in `properties`")]
pub enum Event {
    Replayed,
    TakenOver,
    CompletedLate,
    Fenced,
    Held,
    Sealed,
    Recovering,
    Reused,
    Mismatched,
    StepReadBack,
    ErasedReplayed,
}

/// What is known of the record from the answers alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Standing {
    /// There is none, or it has expired.
    #[default]
    Absent,
    /// Granted; unknown once nothing is left of the lease.
    InFlight {
        /// What is left of the lease.
        left: Ticks,
    },
    /// Somebody was told that nobody knows.
    Unknown {
        /// How long the record is kept.
        left: Ticks,
        /// How long somebody else finds out, and nothing may start.
        asking: Ticks,
    },
    /// Given back, or found not to have happened.
    Released {
        /// How long the record is kept.
        left: Ticks,
    },
    /// Answered.
    Completed {
        /// How long the record is kept.
        left: Ticks,
        /// The answer.
        tag: Tag,
        /// Whether it was closed without knowing, and may still be resolved.
        sealed: bool,
    },
}

/// One life of the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Life {
    /// The fence of its first grant.
    pub first_fence: u8,
    /// How many grants it had.
    pub grants: u8,
    /// How often its work happened.
    pub effects: u8,
    /// How often it may still happen because it was granted.
    pub granted: u8,
    /// How often it may still happen because it was given back.
    pub released: u8,
}

/// The last grant of the present life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Last {
    /// To whom.
    pub owner: u8,
    /// Under which fence.
    pub fence: u8,
    /// Whether its work happened.
    pub effect: bool,
    /// Whether its completion was accepted.
    pub completed: bool,
}

/// The history, as far as any promise depends on it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Ghost {
    /// The present life, and earlier ones in which something may still happen.
    pub lives: Vec<Life>,
    /// The last grant.
    pub last: Option<Last>,
    /// What is known of the record.
    pub standing: Standing,
    /// The highest fence ever granted.
    pub fence_max: u8,
    /// Which request the record is about, unless that was forgotten.
    request: Option<u8>,
    /// The fence under which the step was recorded, and whether its value is still there.
    step: Option<(u8, bool)>,
    /// Every owner that ever got a grant, one bit each. Empty unless the setup asks for it.
    owners: u32,
    broken: u32,
}

impl Ghost {
    /// Whether `promise` was kept so far.
    pub const fn kept(&self, promise: Promise) -> bool {
        self.broken & (1 << promise as u32) == 0
    }

    /// Whether the work of the attempt `fence` happened, as far as a hook is asked about it.
    pub fn happened(&self, fence: u8) -> bool {
        self.last.is_some_and(|last| last.fence == fence && last.effect)
    }

    /// The work happened under `fence`.
    pub fn effect(&mut self, fence: u8) {
        let life = self.lives.iter_mut().rev().find(|life| life.first_fence <= fence);
        let (granted, released) = life.map_or((0, 0), |life| {
            let before = (life.granted, life.released);
            life.effects += 1;
            (life.granted, life.released) = (before.0.saturating_sub(1), before.1.saturating_sub(1));
            before
        });
        self.expect(Promise::I7, granted > 0);
        self.expect(Promise::I7Once, released > 0);
        if let Some(last) = self.last.as_mut().filter(|last| last.fence == fence) {
            last.effect = true;
        }
    }

    /// A tick passes.
    pub fn age(&mut self) {
        self.standing = self.standing.aged();
    }

    /// Forgets what no promise depends on any more.
    pub fn settle(&mut self, callers: &[Caller], setup: &Setup) {
        if self.standing == Standing::Absent {
            (self.last, self.request, self.step) = (None, None, None);
        }
        let mut end = u8::MAX;
        let mut is_over = self.standing == Standing::Absent;
        for at in (0..self.lives.len()).rev() {
            let fences = self.lives[at].first_fence..end;
            let is_pending = callers.iter().filter_map(Caller::pending).any(|fence| fences.contains(&fence));
            if is_over && !is_pending {
                self.lives.remove(at);
            }
            (end, is_over) = (fences.start, true);
        }
        let query = setup.has_policy(UnknownPolicy::Query);
        let rerun = setup.has_policy(UnknownPolicy::Rerun);
        // Each caller may still have one effect, and what was given back may be granted once more. Larger numbers make
        // no difference, and one that stops too early could only break a promise that was kept.
        let (granted_max, released_max) = (setup.callers, setup.callers + 1);
        for life in &mut self.lives {
            life.grants = if rerun { life.grants.min(ATTEMPTS_MAX) } else { 0 };
            life.effects = if query { life.effects.min(2) } else { 0 };
            life.granted = life.granted.min(granted_max);
            life.released = if setup.is_once() { life.released.min(released_max) } else { 1 };
        }
        if let Some(last) = &mut self.last {
            last.effect &= query;
        }
    }

    /// The first fence of the life that `fence` belongs to.
    pub fn first_fence(&self, fence: u8) -> u8 {
        self.lives.iter().rev().map(|life| life.first_fence).find(|first| *first <= fence).unwrap_or(0)
    }

    /// Every fence that some promise depends on.
    pub(crate) fn fences(&self) -> impl Iterator<Item = u8> {
        let lives = self.lives.iter().map(|life| life.first_fence);
        let last = self.last.map(|last| last.fence);
        let step = self.step.map(|(fence, _)| fence);
        lives.chain(last).chain(step).chain([self.fence_max])
    }

    pub(crate) fn rename_fences(&mut self, rename: impl Fn(u8) -> u8) {
        self.fence_max = rename(self.fence_max);
        for life in &mut self.lives {
            life.first_fence = rename(life.first_fence);
        }
        if let Some(last) = &mut self.last {
            last.fence = rename(last.fence);
        }
        if let Some((fence, _)) = &mut self.step {
            *fence = rename(*fence);
        }
        if let Standing::Completed { tag, .. } = &mut self.standing {
            *tag = tag.with_fence(rename);
        }
    }

    /// Owners without a name are forgotten.
    pub(crate) fn rename_owners(&mut self, rename: impl Fn(u8) -> Option<u8>) {
        if let Some(last) = &mut self.last {
            last.owner = rename(last.owner).unwrap_or(last.owner);
        }
        let owners = (0..32).filter(|owner| self.owners & (1 << owner) != 0);
        self.owners = owners.filter_map(rename).fold(0, |owners, owner| owners | 1 << owner);
    }
}

impl Standing {
    /// The same a tick later.
    fn aged(self) -> Self {
        match self {
            Self::Absent => self,
            Self::InFlight { left } => Self::InFlight { left: left.saturating_sub(1) },
            Self::Unknown { left: ..=1, .. }
            | Self::Released { left: ..=1 }
            | Self::Completed { left: ..=1, .. } => Self::Absent,
            Self::Unknown { left, asking } => {
                Self::Unknown { left: left - 1, asking: asking.saturating_sub(1) }
            }
            Self::Released { left } => Self::Released { left: left - 1 },
            Self::Completed { left, tag, sealed } => Self::Completed { left: left - 1, tag, sealed },
        }
    }

    /// The same after an erasure. Also a sealed answer says so then: nothing may be kept beside it any more.
    fn erased(self) -> Self {
        match self {
            Self::Completed { left, sealed, .. } => Self::Completed { left, tag: Tag::Erased, sealed },
            _ => self,
        }
    }

    fn is_live(self) -> bool {
        matches!(self, Self::InFlight { left: 1.. })
    }

    fn is_lapsed(self) -> bool {
        matches!(self, Self::InFlight { left: 0 })
    }

    /// Whether nobody knows, be it that somebody was told so or not.
    fn is_unknown(self) -> bool {
        self.is_lapsed() || matches!(self, Self::Unknown { .. })
    }

    /// Whether the outcome is still to come.
    fn is_open(self) -> bool {
        matches!(self, Self::InFlight { .. } | Self::Unknown { .. })
    }
}
