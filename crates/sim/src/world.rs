//! Everything there is at one instant, and what happens to it when a command is carried out or time passes.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::record::{Completed, Recovery, State};
use onlyonce_core::transition::{Answer, Change, Moment};
use onlyonce_core::{Fence, Record, Timestamp};

use crate::caller::{Caller, Holding, small};
use crate::defect;
use crate::ghost::{Event, Ghost};
use crate::letter::Letter;
use crate::setup::{HOLD_FOR, Papers, RETENTION, Setup, Ticks};

/// The time of every step. It is the rest that moves: a tick takes one from all that lies ahead.
///
/// The state machine compares times and adds durations to them, no more, so it cannot tell; and a state that comes
/// back later is the same state, which is why the clock needs no bound.
const NOW: Timestamp = Timestamp::from_millis(16);

/// The state of the whole.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct World {
    /// The highest fence that the store's source gave out. Never goes back.
    pub source: u8,
    /// What the store remembers.
    pub stored: Option<Arc<Record>>,
    /// The callers, in order: they are all alike.
    pub callers: Vec<Caller>,
    /// Commands that are still to arrive, though nobody waits for their answers.
    pub letters: Vec<Letter>,
    /// What was promised.
    pub ghost: Ghost,
    /// What the last step showed, if the setup asks for it.
    pub event: Option<Event>,
}

impl World {
    /// The beginning.
    pub fn new(setup: &Setup) -> Self {
        Self {
            source: 0,
            stored: None,
            callers: vec![Caller::Idle; setup.callers.into()],
            letters: Vec::new(),
            ghost: Ghost::default(),
            event: None,
        }
    }

    /// The fence of the record, if there is one.
    pub fn fence(&self) -> Option<u8> {
        self.stored.as_ref().map(|record| small(record.fence.get()))
    }

    pub(crate) fn holding(&mut self, caller: usize) -> Option<&mut Holding> {
        match &mut self.callers[caller] {
            Caller::Holding(holding) => Some(holding),
            _ => None,
        }
    }

    /// The store carries out a command.
    pub(crate) fn deliver(&mut self, letter: Letter, setup: &Setup, papers: &Papers) -> Answer {
        let moment = Moment {
            now: NOW,
            next_fence: Fence::new(u64::from(self.source) + 1).expect("a small number is a fence"),
        };
        let command = letter.command(papers);
        let (change, answer) = defect::decide(setup.defect, self.stored.as_deref(), &command, moment);
        self.event = self.ghost.observe(letter, (&change, &answer), setup).filter(|_| setup.events);
        match change {
            Change::Keep => {}
            Change::Put(record) => {
                self.source = self.source.max(small(record.fence.get()));
                self.stored = Some(Arc::new(record));
            }
            Change::Remove => self.stored = None,
        }
        answer
    }

    /// A tick passes.
    pub(crate) fn age(&mut self, setup: &Setup) {
        for caller in &mut self.callers {
            *caller = caller.aged(setup);
        }
        self.stored = self.stored.as_deref().map(|record| Arc::new(aged(record)));
        self.ghost.age();
    }
}

/// The record a tick later. What lies so far back that it makes no difference stays there.
fn aged(record: &Record) -> Record {
    let back = |at: Timestamp, most: Ticks| {
        let floor = NOW - Duration::from_millis(most.into());
        floor.max(at - Duration::from_millis(1))
    };
    let state = match &record.state {
        State::InFlight { lease_until } => State::InFlight { lease_until: back(*lease_until, HOLD_FOR) },
        State::Completed(completed) => State::Completed(Completed {
            at: NOW,
            expires_at: back(completed.expires_at, 0),
            ..completed.clone()
        }),
        State::Released { expires_at } => State::Released { expires_at: back(*expires_at, 0) },
        State::Unknown { since, expires_at, recovery } => State::Unknown {
            since: back(*since, HOLD_FOR),
            expires_at: back(*expires_at, 0),
            recovery: recovery
                .as_ref()
                .map(|recovery| Recovery { lease_until: back(recovery.lease_until, 0), ..recovery.clone() }),
        },
    };
    Record {
        created_at: NOW,
        granted_at: back(record.granted_at, RETENTION),
        run_until: back(record.run_until, 0),
        state,
        ..record.clone()
    }
}
