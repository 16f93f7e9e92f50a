//! The one thread that writes: decides what waits, writes it with one write a segment, syncs, publishes, answers.
//!
//! ORDER: decide → write → sync → publish → answer. Nothing is seen or acknowledged before it is durable.

mod erase;
mod gather;
mod group;
mod import;
mod remove;
mod room;
mod round;
mod seal;
mod sweep;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::time::Duration;

use onlyonce_core::store::Ids;
use onlyonce_core::transition::{Answer, ClaimAnswer, Command};
use onlyonce_core::{Fence, RecordId, StoreError, StoreErrorKind, Timestamp};

use self::gather::Gather;
use self::group::Group;
use self::round::Waiting;
use crate::catalog::Version;
use crate::queue::Job;
use crate::recovery;
use crate::segment::SegmentId;
use crate::shared::Shared;

pub(crate) use remove::{Chore, Remover};
pub(crate) use room::give_back;
pub(crate) use round::Reply;
pub(crate) use seal::Sealer;

/// Makes a store that was just read ready: space is set aside, and what was in flight is unknown.
pub(crate) fn prepare(shared: &Shared) -> Result<(), StoreError> {
    let failed = |error: io::Error| {
        StoreError::new(StoreErrorKind::Unavailable, "preparing the store's folder").because(error)
    };
    match room::set_aside(shared, 0) {
        Err(error) if error.kind() == io::ErrorKind::StorageFull => {
            shared.full.store(true, Ordering::Relaxed);
        }
        other => other.map_err(failed)?,
    }
    match write_unfinished(shared) {
        Err(Failed::Disk(error)) if error.kind() == io::ErrorKind::StorageFull => {
            shared.full.store(true, Ordering::Relaxed);
            give_back(&*shared.disk);
            write_unfinished(shared)
        }
        other => other,
    }
    .map_err(|failure| match failure {
        Failed::Disk(error) => failed(error),
        Failed::Store(error) => error,
    })
}

enum Failed {
    Disk(io::Error),
    Store(StoreError),
}

/// Writes that nobody knows how far the owners of the last process got.
fn write_unfinished(shared: &Shared) -> Result<(), Failed> {
    let unfinished = recovery::unfinished(&shared.catalog(), shared.clock.now()).map_err(Failed::Store)?;
    for id in unfinished.doubtful {
        shared.catalog_mut().keep_for_doubt(id, shared.clock.now());
    }
    for (id, stored) in unfinished.held_elsewhere {
        shared.catalog_mut().put_in_flight(id, stored);
    }
    let mut group = Group::default();
    for (id, record, stored) in unfinished.orphans {
        group.put_from_elsewhere(id, record, Some(stored));
    }
    if !group.is_empty() {
        let written = group.write(shared).map_err(Failed::Disk)?;
        written.publish(&mut shared.catalog_mut());
    }
    Ok(())
}

/// How long the store is idle before a mark proves that its last group was synced.
const IDLE: Duration = Duration::from_millis(50);
/// How many bytes a group may have before the rest waits for the next one.
const GROUP_BYTES_MAX: usize = 16 << 20;

pub(crate) struct Committer {
    shared: Arc<Shared>,
    /// Segments to seal.
    to_seal: Sender<SegmentId>,
    /// Segments to remove.
    chores: Sender<Chore>,
    /// Grants of this boot so far.
    fences: u64,
    /// Whether the last group has no mark behind it yet.
    unmarked: bool,
    /// When it was last looked for room.
    looked_at: Option<Timestamp>,
}

impl Committer {
    pub(crate) fn new(shared: Arc<Shared>, to_seal: Sender<SegmentId>, chores: Sender<Chore>) -> Self {
        Self { shared, to_seal, chores, fences: 0, unmarked: false, looked_at: None }
    }

    /// Works until the store is closed.
    pub(crate) fn run(mut self) {
        let mut gather = Gather::default();
        while let Some(jobs) = gather.next(&self.shared.queue, self.unmarked.then_some(IDLE)) {
            if jobs.is_empty() {
                self.mark();
                continue;
            }
            let answered = jobs.len();
            let mut jobs = VecDeque::from(jobs);
            while !jobs.is_empty() {
                self.commit_some(&mut jobs);
            }
            gather.answered(&self.shared.queue, answered);
        }
        self.mark();
    }

    /// Commits as many of `jobs` as fit into one group.
    fn commit_some(&mut self, jobs: &mut VecDeque<Job>) {
        self.make_room();
        let mut group = Group::of(jobs.len());
        let mut waiting: Vec<Waiting> = Vec::with_capacity(jobs.len());
        while group.bytes() < GROUP_BYTES_MAX
            && let Some(job) = jobs.pop_front()
        {
            match job {
                Job::Command(command, absent_at, reply) => {
                    waiting.push(Waiting::One(self.decide(&mut group, &command, absent_at), reply));
                }
                Job::Commands(commands, reply) => {
                    let decide = |command| self.decide(&mut group, command, None);
                    waiting.push(Waiting::Many(commands.iter().map(decide).collect(), reply));
                }
                Job::Sweep(budget, reply) => {
                    // A sweep writes and drops on its own: it must not see what is not durable yet.
                    self.finish(group, waiting, jobs);
                    self.sweep(budget, reply);
                    return;
                }
                Job::Import(records, reply) => {
                    self.finish(group, waiting, jobs);
                    let imported = self.import(records);
                    drop(reply.send(imported));
                    return;
                }
            }
        }
        self.finish(group, waiting, jobs);
    }

    /// One command on top of what is durable and what the group has decided already.
    fn decide(
        &mut self,
        group: &mut Group,
        command: &Command,
        absent_at: Option<Version>,
    ) -> Result<Answer, StoreError> {
        self.shared.check()?;
        let next_fence = self.next_fence()?;
        let answer = group.decide(&self.shared, command, absent_at, next_fence)?;
        if matches!(&answer, Answer::Claim(ClaimAnswer::Granted(grant)) if grant.fence == next_fence) {
            self.fences += 1;
        }
        Ok(answer)
    }

    /// The fence of the next grant. Boots have fences for four thousand million; then the next one is begun.
    fn next_fence(&mut self) -> Result<Fence, StoreError> {
        if let Some(fence) = self.shared.meta().fence(self.fences + 1) {
            return Ok(fence);
        }
        let last = self.shared.meta().fence(self.fences).map_or(0, Fence::get);
        self.raise_fences(last).map_err(|error| self.shared.poison("raising the fences", &error))?;
        self.fences = 0;
        let fence = self.shared.meta().fence(self.fences + 1);
        fence.ok_or_else(|| {
            StoreError::new(StoreErrorKind::Unsupported, "counting more than two million starts")
        })
    }

    /// Makes a group durable and answers it; when the disk is full, what may still be written is.
    fn finish(&mut self, group: Group, waiting: Vec<Waiting>, jobs: &mut VecDeque<Job>) {
        match self.commit(group) {
            Ok(()) => round::hand_out(&self.shared.queue, waiting),
            Err(Uncommitted::Full) => self.out_of_room(waiting, jobs),
            Err(failed) => {
                for waiting in waiting {
                    waiting.refuse(|| failed.error(&self.shared, "writing"));
                }
            }
        }
    }

    /// Writes, syncs, publishes and wakes. Nothing is published unless all of it is durable.
    fn commit(&mut self, group: Group) -> Result<(), Uncommitted> {
        if group.is_empty() {
            return Ok(());
        }
        let erased = group.erased();
        let committed = self.write_and_publish(group, &erased);
        if !erased.is_empty() {
            self.shared.end_erasing();
        }
        for id in &committed? {
            self.shared.watches.wake(id);
        }
        Ok(())
    }

    /// Answers whose waiters must hear of it.
    fn write_and_publish(&mut self, group: Group, erased: &Ids) -> Result<Vec<RecordId>, Uncommitted> {
        let written = group.write(&self.shared).map_err(Uncommitted::of)?;
        self.unmarked = true;
        let news = written.news();
        for segment in written.publish(&mut self.shared.catalog_mut()) {
            // A sealer that is gone leaves the segment to the next start.
            let _ = self.to_seal.send(segment);
        }
        // What is committed has happened: an erasure that fails after it is not a refusal of the group.
        erase::overwrite(&self.shared, erased).map_err(Uncommitted::Failed)?;
        Ok(news)
    }

    /// Writes a mark behind the last group of each segment: proof that what lies before it was synced.
    fn mark(&mut self) {
        self.unmarked = false;
        if self.shared.check().is_ok()
            && let Err(error) = group::write_marks(&self.shared)
            && error.kind() != io::ErrorKind::StorageFull
        {
            self.shared.poison("writing a mark", &error);
        }
    }
}

/// Why a group was not committed.
enum Uncommitted {
    /// The disk has no room. Nothing happened.
    Full,
    /// Nobody knows what the disk holds.
    Failed(io::Error),
}

impl Uncommitted {
    fn of(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::StorageFull { Self::Full } else { Self::Failed(error) }
    }

    /// What to answer. After a failure the store takes no more commands.
    fn error(&self, shared: &Shared, doing: &'static str) -> StoreError {
        match self {
            Self::Full => StoreError::new(StoreErrorKind::Full, doing),
            Self::Failed(error) => shared.poison("writing", error),
        }
    }
}
