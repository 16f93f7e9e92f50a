//! Commands that are made durable together: decided one on top of the other, written and synced as one.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use onlyonce_core::store::{ById, Ids, is_worth_waking};
use onlyonce_core::transition::{
    Answer, Change, ClaimAnswer, Command, EraseAnswer, Moment, UnknownPolicy, transition,
};
use onlyonce_core::{Fence, Record, RecordId, StoreError, StoreErrorKind, Timestamp};

use crate::catalog::{Catalog, Stored, Version};
use crate::class::Class;
use crate::entry::{self, Home, RECORD_BYTES_MAX};
use crate::io::{DiskFile, failed_sync};
use crate::options::Sync;
use crate::segment::{Place, Segment, SegmentId};
use crate::shared::Shared;

/// What was decided and is not durable yet.
#[derive(Default)]
pub(super) struct Group {
    /// The last decision on each record, and what was durable before the group.
    decided: ById<Decided>,
    /// The order in which records were first decided on, so that a run can be repeated to the byte.
    order: Vec<RecordId>,
    bytes: usize,
    /// Whether there is more to it than grants.
    needs_sync: bool,
    /// Records whose bodies must leave the disk.
    erased: Ids,
}

struct Decided {
    record: Arc<Record>,
    class: Class,
    before: Option<Stored>,
    /// Whether it must be written: a renewal of a grant of this process need not be.
    durable: bool,
}

impl Group {
    /// One with room for so many decisions.
    pub(super) fn of(jobs: usize) -> Self {
        let mut group = Self::default();
        group.decided.reserve(jobs);
        group.order.reserve(jobs);
        group
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.decided.is_empty()
    }

    pub(super) fn erased(&self) -> Ids {
        self.erased.clone()
    }

    /// Decides one command on top of the group.
    pub(super) fn decide(
        &mut self,
        shared: &Shared,
        command: &Command,
        absent_at: Option<Version>,
        next_fence: Fence,
    ) -> Result<Answer, StoreError> {
        let id = *command.id();
        let before = match self.decided.get(&id) {
            Some(decided) => decided.before.clone(),
            None => shared.read(&id, absent_at)?,
        };
        let current = self.decided.get(&id).map(|decided| &*decided.record);
        let current = current.or(before.as_ref().map(|stored| &*stored.record));
        let moment = Moment { now: shared.clock.now(), next_fence };
        let (change, answer) = transition(current, command, moment);
        if let Change::Put(record) = change {
            if record.weight() > RECORD_BYTES_MAX {
                return Err(StoreError::new(StoreErrorKind::Misuse, "keeping a record of more than 64 MiB"));
            }
            let granted = matches!(answer, Answer::Claim(ClaimAnswer::Granted(_)));
            if granted {
                may_grant(shared, command)?;
            }
            if matches!(answer, Answer::Erase(EraseAnswer::Erased)) {
                if self.erased.is_empty() && !shared.begin_erasing() {
                    return Err(StoreError::new(
                        StoreErrorKind::Unavailable,
                        "erasing while the store is copied",
                    ));
                }
                self.erased.insert(id);
            }
            // A renewal need not outlive the process, whose own grants are unknown at the next start anyway.
            let durable = !matches!(command, Command::Renew(_)) || record.remote;
            self.needs_sync |= durable && !granted;
            self.put(id, Arc::new(record), before, durable);
        }
        // An expired record need not be removed: it reads as absent until its segment goes.
        Ok(answer)
    }

    pub(super) fn has(&self, id: &RecordId) -> bool {
        self.decided.contains_key(id)
    }

    /// Adds a record that no command of ours decided: one whose owner is gone, or one of another store.
    pub(super) fn put_from_elsewhere(&mut self, id: RecordId, record: Arc<Record>, stored: Option<Stored>) {
        self.needs_sync = true;
        self.put(id, record, stored, true);
    }

    /// Adds what is to be stored under `id`.
    pub(super) fn put(&mut self, id: RecordId, record: Arc<Record>, before: Option<Stored>, durable: bool) {
        let stored_in = before.as_ref().map(|stored| stored.place.segment.class);
        let earlier = self.decided.get(&id);
        let class = Class::of_record(&record, stored_in.max(earlier.map(|decided| decided.class)));
        let durable = durable || earlier.is_some_and(|decided| decided.durable);
        if earlier.is_none() {
            self.order.push(id);
        }
        self.bytes += record.weight();
        self.decided.insert(id, Decided { record, class, before, durable });
    }

    /// Writes every record once, in its last state, and syncs.
    pub(super) fn write(self, shared: &Shared) -> io::Result<Written> {
        let sync = match shared.options.sync {
            Sync::Always => true,
            Sync::Outcome => self.needs_sync,
            Sync::None => false,
        };
        let mut written = Written { pieces: BTreeMap::new(), puts: Vec::new(), frozen: Vec::new(), sync };
        match self.write_into(&mut written, shared) {
            Ok(()) => Ok(written),
            Err(error) => {
                written.take_back(shared)?;
                Err(error)
            }
        }
    }

    fn write_into(mut self, written: &mut Written, shared: &Shared) -> io::Result<()> {
        written.puts.reserve(self.order.len());
        for id in std::mem::take(&mut self.order) {
            let Some(mut decided) = self.decided.remove(&id) else { continue };
            if let (false, Some(before)) = (decided.durable, &decided.before) {
                written.puts.push(Put { id, place: before.place, decided });
                continue;
            }
            decided.durable = true;
            let piece = written.piece(shared, decided.class)?;
            let offset = piece.start + piece.bytes.len() as u64;
            let offset = u32::try_from(offset).map_err(|_| io::ErrorKind::FileTooLarge)?;
            let place = Place { segment: piece.id, offset };
            // What is erased is overwritten: nothing may refer to it.
            let lasting = |before: &&Stored| before.place.segment == piece.id && !self.erased.contains(&id);
            let base = decided.before.as_ref().filter(lasting);
            let base = base.map(|base| (base.place.offset, &*base.record));
            entry::put(&mut piece.bytes, piece.home, &id, &decided.record, base);
            written.puts.push(Put { id, place, decided });
        }
        written.write(shared)
    }
}

/// How far ahead of its entries a segment is filled at most.
const FILL_BYTES_MAX: u64 = 128 << 10;

/// What one group adds to one segment.
struct Piece {
    id: SegmentId,
    home: Home,
    file: Arc<dyn DiskFile>,
    start: u64,
    bytes: Vec<u8>,
    /// Up to where the file is filled.
    filled: u64,
    /// The segment, when it was begun for this group.
    begun: Option<Segment>,
}

impl Piece {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// Fills the file with zeros some way ahead of its entries, every now and then.
    ///
    /// A sync of a file that grew must also make its new length durable, in the file system's journal: half as much again
    /// as one of a file that did not.
    fn fill(&mut self, segment_bytes_max: u64) -> io::Result<()> {
        let end = self.end();
        if end <= self.filled {
            return Ok(());
        }
        // As much again as there is: a small store stays small.
        let ahead = end.min(FILL_BYTES_MAX).min(segment_bytes_max.saturating_sub(end));
        let zeros = vec![0; usize::try_from(ahead).unwrap_or(0)];
        match self.file.write_at(end, &zeros) {
            Ok(()) => self.filled = end + ahead,
            // Room for more is a wish: what must be written is. But what was half filled is given back.
            Err(error) => {
                tracing::debug!(%error, "a segment could not be filled ahead");
                self.file.set_len(end)?;
            }
        }
        Ok(())
    }
}

struct Put {
    id: RecordId,
    place: Place,
    /// Not durable: it was not written, and is kept in memory only.
    decided: Decided,
}

/// A group on its way to the disk, and on its way into the catalog once it is there.
pub(super) struct Written {
    pieces: BTreeMap<Class, Piece>,
    puts: Vec<Put>,
    /// Segments that take no more entries.
    frozen: Vec<SegmentId>,
    /// Whether it must survive a power cut.
    sync: bool,
}

impl Written {
    /// The piece of `class`, begun with a mark on first use.
    fn piece(&mut self, shared: &Shared, class: Class) -> io::Result<&mut Piece> {
        if !self.pieces.contains_key(&class) {
            let piece = self.begin(shared, class)?;
            self.pieces.insert(class, piece);
        }
        Ok(self.pieces.get_mut(&class).expect("just put there"))
    }

    fn begin(&mut self, shared: &Shared, class: Class) -> io::Result<Piece> {
        let now = shared.clock.now();
        let catalog = shared.catalog();
        let crowded = catalog.memory() > shared.options.memory_bytes_max;
        let mut proven = true;
        let mut piece = match catalog.active(class) {
            Some(segment) if !crowded && has_room(segment, shared, now) => {
                proven = segment.synced;
                Piece {
                    id: segment.id,
                    home: segment.home(),
                    file: Arc::clone(&segment.file),
                    start: segment.end,
                    bytes: Vec::new(),
                    filled: segment.filled,
                    begun: None,
                }
            }
            full => {
                if let Some(segment) = full {
                    self.frozen.push(segment.id);
                    let mut mark = Vec::new();
                    if segment.synced {
                        // The last chance to prove its last group. The next sync of the file makes it count.
                        entry::put_mark(&mut mark, segment.id.seq, segment.end);
                        segment.file.write_at(segment.end, &mark)?;
                    }
                    // What was filled ahead is not needed any more.
                    segment.file.set_len(segment.end + mark.len() as u64)?;
                }
                let begun = self.pieces.values().map(|piece| piece.id.seq + 1).max().unwrap_or(0);
                let id = SegmentId { class, seq: catalog.next_seq().max(begun) };
                drop(catalog);
                // ORDER: the name is durable before anything in the file is acknowledged.
                let file = shared.in_folder(|disk| {
                    let file = disk.create(&id.file_name(now))?;
                    disk.sync_folder().map_err(failed_sync)?;
                    Ok(file)
                })?;
                let segment = Segment::new(id, Arc::clone(&file), now);
                let home = segment.home();
                Piece { id, home, file, start: 0, bytes: Vec::new(), filled: 0, begun: Some(segment) }
            }
        };
        // A mark says that all before it was synced: it is written only where that is so.
        if proven {
            entry::put_mark(&mut piece.bytes, piece.id.seq, piece.start);
        }
        Ok(piece)
    }

    fn write(&mut self, shared: &Shared) -> io::Result<()> {
        for piece in self.pieces.values_mut() {
            piece.file.write_at(piece.start, &piece.bytes)?;
        }
        if self.sync && !shared.is_full() {
            // After everything that must be written: the room may be needed for that.
            for piece in self.pieces.values_mut() {
                piece.fill(shared.options.segment_bytes_max)?;
            }
        }
        if self.sync {
            for piece in self.pieces.values() {
                piece.file.sync().map_err(failed_sync)?;
            }
        }
        Ok(())
    }

    /// Takes every piece off the disk again: what was half written must not be taken for entries later. If that fails
    /// too, the caller must not go on.
    fn take_back(&self, shared: &Shared) -> io::Result<()> {
        for piece in self.pieces.values() {
            if let Some(segment) = &piece.begun {
                shared.in_folder(|disk| {
                    disk.remove(&segment.name()).map_err(io::Error::other)?;
                    disk.sync_folder().map_err(failed_sync)
                })?;
            } else {
                piece.file.set_len(piece.start).map_err(io::Error::other)?;
                if let Some(segment) = shared.catalog_mut().segments.get_mut(&piece.id) {
                    segment.filled = piece.start;
                }
                // It was answered that nothing happened: that must be as durable as if something had.
                piece.file.sync().map_err(failed_sync)?;
            }
        }
        Ok(())
    }

    /// The records whose waiters must hear of it once it is published. A waiter may come at any moment until then.
    pub(super) fn news(&self) -> Vec<RecordId> {
        let is_news = |put: &&Put| {
            let before = put.decided.before.as_ref().map(|stored| &*stored.record);
            is_worth_waking(before, Some(&put.decided.record))
        };
        self.puts.iter().filter(is_news).map(|put| put.id).collect()
    }

    /// Lets readers see it. Answers the segments that are ready to be sealed.
    pub(super) fn publish(self, catalog: &mut Catalog) -> Vec<SegmentId> {
        for piece in self.pieces.into_values() {
            let (end, filled) = (piece.end(), piece.filled);
            if let Some(segment) = piece.begun {
                catalog.add(segment, true);
            }
            if let Some(segment) = catalog.segments.get_mut(&piece.id) {
                (segment.end, segment.filled) = (end, filled);
                segment.synced = self.sync;
            }
        }
        for Put { id, place, decided } in self.puts {
            let Decided { record, before, durable, .. } = decided;
            let stored = Stored { record, place };
            if durable {
                catalog.put(id, stored, before.as_ref());
            } else {
                catalog.put_in_flight(id, stored);
            }
        }
        self.frozen
    }
}

fn has_room(segment: &Segment, shared: &Shared, now: Timestamp) -> bool {
    segment.end < shared.options.segment_bytes_max && now < segment.started_at + segment.id.class.span()
}

/// Refuses a grant that the store cannot keep its promise about.
fn may_grant(shared: &Shared, command: &Command) -> Result<(), StoreError> {
    let memory = shared.options.memory_bytes_max;
    if shared.is_full() || shared.catalog().in_flight_memory() > memory {
        return Err(StoreError::new(StoreErrorKind::Full, "claiming a record"));
    }
    match command {
        Command::Claim(claim)
            if shared.options.sync == Sync::Outcome && claim.terms.unknown != UnknownPolicy::Rerun =>
        {
            let reason = "a store that does not sync grants takes only claims whose policy is rerun";
            Err(StoreError::new(StoreErrorKind::Misuse, "claiming a record").because(reason))
        }
        _ => Ok(()),
    }
}

/// Writes and syncs a mark at the end of every segment that takes entries.
pub(super) fn write_marks(shared: &Shared) -> io::Result<()> {
    let active: Vec<_> = {
        let catalog = shared.catalog();
        let classes = (0..=u8::MAX).map_while(Class::new);
        let active = classes.filter_map(|class| catalog.active(class));
        // What was not synced cannot be proven, and need not be: nothing was promised about it.
        active.filter(|segment| segment.synced && segment.end > 0).map(|segment| segment.id).collect()
    };
    active.into_iter().try_for_each(|segment| prove(shared, segment))
}

/// Makes all of a segment durable, and writes and syncs a mark behind it that says so.
pub(super) fn prove(shared: &Shared, id: SegmentId) -> io::Result<()> {
    let found = shared.catalog().segments.get(&id).map(|s| (s.synced, s.end, Arc::clone(&s.file)));
    let Some((synced, end, file)) = found else {
        return Ok(());
    };
    if !synced {
        file.sync().map_err(failed_sync)?;
    }
    let mut mark = Vec::new();
    entry::put_mark(&mut mark, id.seq, end);
    file.write_at(end, &mark)?;
    file.sync().map_err(failed_sync)?;
    if let Some(segment) = shared.catalog_mut().segments.get_mut(&id) {
        (segment.end, segment.synced) = (end + mark.len() as u64, true);
    }
    Ok(())
}
