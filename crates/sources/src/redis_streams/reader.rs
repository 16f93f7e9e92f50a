//! Reads new entries, and those that dead consumers left behind.

use std::sync::atomic::Ordering;
use std::time::Duration;

use onlyonce_core::{Clock as _, SystemClock, Timestamp};
use onlyonce_inbox::{SourceError, SourceErrorKind};
use redis::cmd;
use tracing::warn;

use super::entry::{self, Entry};
use super::{Handle, RedisStream, Settings, link, millis};
use crate::ledger::{Before, Ledger};
use crate::pumped::Patience;

/// Where the search for abandoned entries begins, and ends.
const FIRST: &str = "0-0";
/// How long a read waits for entries at most, before what dead consumers left is looked at.
const WAIT_MAX: Duration = Duration::from_secs(2);
const WAIT_MIN: Duration = Duration::from_millis(10);

/// When to look for abandoned entries next, and where to go on.
struct Search {
    clock: SystemClock,
    every: Duration,
    next_at: Timestamp,
    cursor: String,
}

impl RedisStream {
    /// Reads what is asked for, for ever.
    pub(super) async fn read(&self, ledger: &Ledger<Handle>) {
        let clock = SystemClock::new();
        let every = (self.settings.idle / 4).clamp(WAIT_MIN, WAIT_MAX);
        let mut search = Search { next_at: clock.now(), clock, every, cursor: FIRST.to_owned() };
        let mut patience = Patience::default();
        loop {
            // What waits to be retried is held in memory: so much of it, and no more.
            self.retries.room().await;
            let wanted = ledger.demand().await;
            match self.read_once(ledger, wanted, &mut search).await {
                Ok(()) => {
                    ledger.recover();
                    patience.restore();
                }
                Err(error) if link::has_code(&error, "NOGROUP") => self.restore_group(ledger, error).await,
                Err(error) => {
                    ledger.fail(error);
                    patience.wait().await;
                }
            }
        }
    }

    async fn read_once(
        &self,
        ledger: &Ledger<Handle>,
        wanted: usize,
        search: &mut Search,
    ) -> Result<(), SourceError> {
        let count = self.affordable(wanted);
        if search.clock.now() >= search.next_at && self.take_over(ledger, count, search).await? > 0 {
            return Ok(());
        }
        let Settings { stream, group, consumer, .. } = &self.settings;
        let mut read = cmd("XREADGROUP");
        read.arg("GROUP").arg(group).arg(consumer).arg("COUNT").arg(count);
        read.arg("BLOCK").arg(millis(search.every)).arg("STREAMS").arg(stream).arg(">");
        let answer = self.waiting_link.ask_for(&read, search.every, "reading the stream").await?;
        let entries = entry::read(answer)?;
        self.deliver(ledger, entries);
        Ok(())
    }

    /// Takes over what dead consumers left: how many entries that were.
    async fn take_over(
        &self,
        ledger: &Ledger<Handle>,
        count: usize,
        search: &mut Search,
    ) -> Result<usize, SourceError> {
        let Settings { stream, group, consumer, idle, .. } = &self.settings;
        let script = &self.scripts.abandoned;
        let mut call = script.key(stream);
        call.arg(group).arg(consumer).arg(millis(*idle)).arg(&search.cursor).arg(count);
        let answer = self.link.call(&call, "taking over abandoned entries").await?;
        let (cursor, entries, trimmed) = entry::abandoned(answer)?;
        if cursor == FIRST {
            search.next_at = search.clock.now() + search.every;
        }
        search.cursor = cursor;
        self.report_trimmed(&trimmed);
        let found = entries.len();
        self.deliver(ledger, entries);
        Ok(found)
    }

    pub(super) fn deliver(&self, ledger: &Ledger<Handle>, entries: Vec<Entry>) {
        if let Some(bytes) = entries.iter().map(Entry::bytes).sum::<usize>().checked_div(entries.len()) {
            self.entry_bytes.store(u64::try_from(bytes).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
        ledger.deliver_all(entries.into_iter().map(|entry| {
            let handle = Handle { id: entry.id.clone(), deliveries: entry.deliveries };
            let message = entry.message(&self.settings.stream, &self.settings.body);
            (message, Before::Counted(handle.deliveries), handle)
        }));
    }

    /// How many entries may be fetched at once, when they are about as large as the last ones were.
    fn affordable(&self, wanted: usize) -> usize {
        let each = usize::try_from(self.entry_bytes.load(Ordering::Relaxed)).unwrap_or(usize::MAX);
        wanted.min(self.settings.fetch_bytes_max / each.max(1)).max(1)
    }

    /// Somebody removed the group, or the server lost it: everything that is still in the stream is delivered again.
    async fn restore_group(&self, ledger: &Ledger<Handle>, error: SourceError) {
        let Settings { stream, group, .. } = &self.settings;
        warn!(%stream, %group, "the group is gone: it is made again, and begins with the first entry");
        match self.make_group("0").await {
            Ok(()) => {}
            Err(other) if other.kind() == SourceErrorKind::Refused => ledger.fail(error),
            Err(other) => ledger.fail(other),
        }
        Patience::default().wait().await;
    }
}
