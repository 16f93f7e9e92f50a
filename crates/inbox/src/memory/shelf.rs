//! What the broker in this process keeps: messages, who has them, and what goes wrong next. No waiting in here.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use onlyonce_core::Timestamp;

use super::{Chances, Trouble};
use crate::message::Message;
use crate::source::{Delivery, Settlement, SourceErrorKind, Tag};

#[derive(Default)]
pub(super) struct Shelf {
    next_position: u64,
    next_tag: u64,
    messages: BTreeMap<u64, Kept>,
    out: HashMap<Tag, Out>,
    /// When those that have a time limit are taken back.
    limits: BTreeSet<(Timestamp, Tag)>,
    pub(super) dead: Vec<(u64, Message, String)>,
    pub(super) script: VecDeque<Trouble>,
    pub(super) delivered: u64,
    pub(super) extended: u64,
    chances: Chances,
    chance: u64,
}

struct Kept {
    message: Message,
    ready_at: Timestamp,
    /// The deliveries of it that somebody has right now.
    holders: Vec<Tag>,
    deliveries: u32,
}

impl Kept {
    fn is_ready(&self, now: Timestamp) -> bool {
        self.holders.is_empty() && self.ready_at <= now
    }
}

struct Out {
    position: u64,
    consumer: u64,
    until: Option<Timestamp>,
}

impl Shelf {
    pub(super) fn put(&mut self, mut message: Message, now: Timestamp) {
        let position = self.next_position;
        self.next_position += 1;
        message.position.get_or_insert_with(|| format!("memory:0:{position}"));
        message.published_at.get_or_insert(now);
        self.messages.insert(position, Kept { message, ready_at: now, holders: Vec::new(), deliveries: 0 });
    }

    pub(super) fn leave_a_gap(&mut self, count: u64) {
        self.next_position += count;
    }

    pub(super) fn chance(&mut self, chances: Chances) {
        self.chances = chances;
        self.chance = chances.seed | 1;
    }

    /// Takes up to `max` deliveries for `consumer`; when there are none, says when there may be.
    pub(super) fn take(
        &mut self,
        consumer: u64,
        max: usize,
        now: Timestamp,
        unsettled_max: Option<Duration>,
    ) -> (Vec<Delivery>, Option<Timestamp>) {
        self.take_back(now);
        let mut positions: Vec<u64> = self
            .messages
            .iter()
            .filter(|(_, kept)| kept.is_ready(now))
            .map(|(position, _)| *position)
            .take(max)
            .collect();
        for at in 1..positions.len() {
            if self.happens(self.chances.reordered) {
                positions.swap(at - 1, at);
            }
        }
        let mut taken = Vec::new();
        for position in positions {
            if taken.len() >= max {
                break;
            }
            taken.extend(self.hand_out(position, consumer, unsettled_max.map(|max| now + max)));
            let again = self.happens(self.chances.duplicated) || self.meets(Trouble::Duplicate);
            if again && taken.len() < max {
                taken.extend(self.hand_out(position, consumer, unsettled_max.map(|max| now + max)));
            }
        }
        let next = if taken.is_empty() { self.next_change(now) } else { None };
        (taken, next)
    }

    /// When something is ready that is not yet, if nobody does anything.
    fn next_change(&self, now: Timestamp) -> Option<Timestamp> {
        let later = self.messages.values().filter(|kept| kept.holders.is_empty()).map(|kept| kept.ready_at);
        let limit = self.limits.first().map(|(at, _)| *at);
        later.chain(limit).filter(|at| *at > now).min()
    }

    fn hand_out(&mut self, position: u64, consumer: u64, until: Option<Timestamp>) -> Option<Delivery> {
        let kept = self.messages.get_mut(&position)?;
        let tag = Tag::new(self.next_tag);
        self.next_tag += 1;
        self.delivered += 1;
        kept.holders.push(tag);
        kept.deliveries += 1;
        self.out.insert(tag, Out { position, consumer, until });
        self.limits.extend(until.map(|until| (until, tag)));
        Some(Delivery::new(tag, kept.message.clone()).counted(kept.deliveries))
    }

    /// Settles a delivery; `false` when it is gone.
    pub(super) fn settle(&mut self, tag: Tag, settlement: Settlement, now: Timestamp) -> bool {
        self.take_back(now);
        let Some(position) = self.land(tag) else { return false };
        match settlement {
            Settlement::Ack => {
                if self.meets(Trouble::LoseAck) || self.happens(self.chances.acks_lost) {
                    return true;
                }
                self.remove(position);
            }
            Settlement::Retry { after } => {
                if let Some(kept) = self.messages.get_mut(&position) {
                    kept.ready_at = now + after;
                }
            }
            Settlement::DeadLetter { reason } => {
                if let Some(message) = self.remove(position) {
                    self.dead.push((position, message, reason));
                }
            }
        }
        true
    }

    /// Takes one delivery from whoever has it, and says of what it was.
    fn land(&mut self, tag: Tag) -> Option<u64> {
        let Out { position, until, .. } = self.out.remove(&tag)?;
        if let Some(until) = until {
            self.limits.remove(&(until, tag));
        }
        if let Some(kept) = self.messages.get_mut(&position) {
            kept.holders.retain(|holder| *holder != tag);
        }
        Some(position)
    }

    fn remove(&mut self, position: u64) -> Option<Message> {
        let holders = self.messages.get(&position).map(|kept| kept.holders.clone()).unwrap_or_default();
        for tag in holders {
            self.land(tag);
        }
        self.messages.remove(&position).map(|kept| kept.message)
    }

    pub(super) fn extend(&mut self, tag: Tag, now: Timestamp, unsettled_max: Option<Duration>) -> bool {
        self.take_back(now);
        let Some(out) = self.out.get_mut(&tag) else { return false };
        let before = std::mem::replace(&mut out.until, unsettled_max.map(|max| now + max));
        if let Some(before) = before {
            self.limits.remove(&(before, tag));
        }
        self.limits.extend(self.out.get(&tag).and_then(|out| out.until).map(|until| (until, tag)));
        self.extended += 1;
        true
    }

    /// Takes back what was out for too long.
    fn take_back(&mut self, now: Timestamp) {
        while let Some((_, tag)) = self.limits.first().copied().filter(|(until, _)| *until <= now) {
            self.land(tag);
        }
    }

    pub(super) fn take_back_from(&mut self, consumer: u64) {
        self.take_back_if(|out| out.consumer == consumer);
    }

    pub(super) fn revoke_all(&mut self) {
        self.take_back_if(|_| true);
    }

    fn take_back_if(&mut self, is_over: impl Fn(&Out) -> bool) {
        let over: Vec<Tag> = self.out.iter().filter(|(_, out)| is_over(out)).map(|(tag, _)| *tag).collect();
        for tag in over {
            self.land(tag);
        }
    }

    pub(super) fn redrive(&mut self, now: Timestamp) {
        for (position, message, _) in self.dead.drain(..) {
            self.messages
                .insert(position, Kept { message, ready_at: now, holders: Vec::new(), deliveries: 0 });
        }
    }

    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }

    pub(super) fn out(&self) -> usize {
        self.out.len()
    }

    pub(super) fn delayed(&self, now: Timestamp) -> usize {
        self.messages.values().filter(|kept| kept.holders.is_empty() && kept.ready_at > now).count()
    }

    /// Whether the next scripted trouble of this kind is met now.
    pub(super) fn meets(&mut self, trouble: Trouble) -> bool {
        let at = self.script.iter().position(|next| *next == trouble);
        at.is_some_and(|at| self.script.remove(at).is_some())
    }

    /// Why a settlement is not taken.
    pub(super) fn refusal(&mut self, settlement: &Settlement) -> Option<SourceErrorKind> {
        if self.meets(Trouble::RefuseSettlement) || self.happens(self.chances.settlements_refused) {
            return Some(SourceErrorKind::Unavailable);
        }
        match settlement {
            Settlement::Retry { after } if !after.is_zero() && self.meets(Trouble::RefuseDelay) => {
                Some(SourceErrorKind::Refused)
            }
            Settlement::DeadLetter { .. } if self.meets(Trouble::RefuseDeadLetter) => {
                Some(SourceErrorKind::Unavailable)
            }
            _ => None,
        }
    }

    fn happens(&mut self, per_mille: u32) -> bool {
        if per_mille == 0 {
            return false;
        }
        // xorshift64: chance for tests needs no more, and the same seed gives the same run.
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        self.chance % 1000 < u64::from(per_mille)
    }
}
