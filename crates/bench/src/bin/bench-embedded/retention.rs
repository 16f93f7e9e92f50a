//! What it costs the embedded store to forget: throughput while expired segments are dropped, and while none are.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use onlyonce_core::store::{SweepBudget, Swept};
use onlyonce_core::{Retention, Store as _, Terms};
use onlyonce_store_embedded::Options;

use crate::engine::Engine;
use crate::engine::onlyonce::Onlyonce;
use crate::task::Kept;
use crate::{Result, callers};

/// Small, so that segments come and go several times within seconds.
const SEGMENT_BYTES_MAX: u64 = 8 << 20;
/// How long records are kept when they expire.
const SHORT: Duration = Duration::from_millis(500);
/// How long the sweeper rests when there is nothing more to do.
const REST: Duration = Duration::from_millis(100);

/// Lets `callers` work for `window`, beside a sweeper. The records expire at once, or not before tomorrow.
pub(crate) async fn measure(folder: &Path, callers: usize, window: Duration, expire: bool) -> Result<Kept> {
    let options = Options { segment_bytes_max: SEGMENT_BYTES_MAX, ..Options::default() };
    let retention = if expire { Retention::new(SHORT)? } else { Retention::DEFAULT };
    let store = Arc::new(Onlyonce::open_with(folder, options, Terms { retention, ..Terms::default() })?);
    let stop = Arc::new(AtomicBool::new(false));
    let sweeper = tokio::spawn(sweep(Arc::clone(&store), Arc::clone(&stop)));
    let engine: Arc<dyn Engine> = store.clone();
    let level = callers::measure(&engine, callers, window, &Arc::new(AtomicU64::new(0))).await?;
    stop.store(true, Ordering::Relaxed);
    let (swept, sweeps, longest_sweep) = sweeper.await??;
    let bytes = store.store.stats().await?.bytes;
    Ok(Kept { level, swept, sweeps, longest_sweep, bytes })
}

/// Sweeps until told to stop. Answers how many records went, in how many sweeps, and how long the longest took.
async fn sweep(store: Arc<Onlyonce>, stop: Arc<AtomicBool>) -> Result<(u64, u64, Duration)> {
    let (mut swept, mut sweeps, mut longest) = (0, 0, Duration::ZERO);
    while !stop.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let Swept { removed, dropped, more, .. } = store.store.sweep(SweepBudget::DEFAULT).await?;
        longest = longest.max(begun.elapsed());
        swept += (removed + dropped) as u64;
        sweeps += 1;
        if !more {
            tokio::time::sleep(REST).await;
        }
    }
    Ok((swept, sweeps, longest))
}
