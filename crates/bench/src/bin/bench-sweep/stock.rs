//! What is in the store before anything is measured: many records that expire soon, and some that live.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use onlyonce_bench::figures::{as_float, rounded, thousands};
use onlyonce_core::record::StateKind;
use onlyonce_core::store::BATCH_MAX;
use onlyonce_core::{Clock as _, Outcome, Record, RecordId, Store, SystemClock, Timestamp};
use onlyonce_testkit::{stock_id, stock_record};

use crate::Result;

/// How long a record lives that is to expire. All have expired before anything is measured.
const LIFE: Duration = Duration::from_secs(10);
/// How long the others do.
const LONG_LIFE: Duration = Duration::from_hours(24);
/// How many take records in at a time.
const WRITERS: u64 = 2;
/// How often progress is told.
const TELL_EVERY: Duration = Duration::from_secs(5);
const BODY_BYTES: usize = 100;

/// What is taken in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stock {
    pub(crate) expiring: u64,
    pub(crate) live: u64,
    pub(crate) kind: StateKind,
}

impl Stock {
    /// Takes everything in, and waits until what is to expire has. Live records are spread among the others.
    pub(crate) async fn take_in(self, store: &Arc<dyn Store>) -> Result<()> {
        let (done, begun) = (Arc::new(AtomicU64::new(0)), Instant::now());
        let all = self.expiring + self.live;
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..WRITERS {
            let (store, done) = (Arc::clone(store), Arc::clone(&done));
            writers.spawn(async move { self.write(&*store, writer, &done).await });
        }
        let mut tell = tokio::time::interval(TELL_EVERY);
        loop {
            tokio::select! {
                ended = writers.join_next() => match ended {
                    Some(ended) => ended??,
                    None => break,
                },
                _ = tell.tick() => {
                    let done = done.load(Ordering::Relaxed);
                    let rate = as_float(done) / begun.elapsed().as_secs_f64().max(f64::MIN_POSITIVE);
                    eprintln!("  {} of {} records taken in, {}/s", thousands(done), thousands(all), rounded(rate));
                }
            }
        }
        // What was taken in last expires last.
        tokio::time::sleep(LIFE + Duration::from_secs(1)).await;
        Ok(())
    }

    async fn write(self, store: &dyn Store, writer: u64, done: &AtomicU64) -> Result<()> {
        let clock = SystemClock::new();
        let all = self.expiring + self.live;
        let mut number = writer * BATCH_MAX as u64;
        while number < all {
            let now = clock.now();
            let last = (number + BATCH_MAX as u64).min(all);
            let batch: Vec<_> = (number..last).map(|number| self.record(number, now)).collect();
            let imported = store.import(&batch).await?;
            if imported.left > 0 {
                return Err(format!("{} records were not taken in", imported.left).into());
            }
            done.fetch_add(last - number, Ordering::Relaxed);
            number += WRITERS * BATCH_MAX as u64;
        }
        Ok(())
    }

    /// Every so many is live.
    const fn is_live(self, number: u64) -> bool {
        let each = (self.expiring + self.live) / self.live;
        number.is_multiple_of(each) && number / each < self.live
    }

    /// The ids of those that must still be there at the end.
    pub(crate) fn live_ids(self) -> impl Iterator<Item = RecordId> {
        (0..self.expiring + self.live).filter(move |number| self.is_live(*number)).map(stock_id)
    }

    fn record(self, number: u64, now: Timestamp) -> (RecordId, Record) {
        let (kind, life) =
            if self.is_live(number) { (StateKind::Completed, LONG_LIFE) } else { (self.kind, LIFE) };
        stock_record(number, kind, Outcome::kept(1, Bytes::from(vec![b'x'; BODY_BYTES])), now, life)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn as_many_live_as_were_asked_for_and_no_two_are_one() {
        for (expiring, live) in [(20_000, 100), (1000, 1), (1000, 999), (1000, 3000)] {
            let stock = Stock { expiring, live, kind: StateKind::Completed };
            let lives: BTreeSet<_> = stock.live_ids().collect();
            assert_eq!(lives.len() as u64, live, "{stock:?}");
            let all: BTreeSet<_> = (0..expiring + live).map(stock_id).collect();
            assert_eq!(all.len() as u64, expiring + live);
        }
    }
}
