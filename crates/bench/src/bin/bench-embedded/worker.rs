//! One engine's part of a run, in a process of its own.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use onlyonce_bench::machine;
use serde::Serialize;
use tokio::task::JoinSet;

use crate::engine::{Engine, Kind, Purpose};
use crate::pair::Pair;
use crate::task::{Loaded, Measure, Opened, Task};
use crate::{Result, callers, retention};

/// How many batches are loaded at a time.
const LOADS: usize = 4;
/// How many stored records are looked at one by one.
const LOOKS: u64 = 200;
/// How often a worker that waits to be killed tells what it has done.
const TELL: Duration = Duration::from_millis(50);
/// Longer than anybody waits.
const FOR_EVER: Duration = Duration::from_hours(24);

/// Does the task that `text` describes.
pub(crate) fn work(text: &str) -> Result<()> {
    let task = serde_json::from_str(text).map_err(|error| format!("not a task: {error}"))?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(callers::THREADS).enable_all().build()?;
    runtime.block_on(async {
        match task {
            Task::Load { kind, folder, records } => tell(&load(kind, &folder, records).await?),
            Task::Measure(task) => tell(&measure(&task).await?),
            Task::Write { folder, callers, first } => write(&folder, callers, first).await,
            Task::Retain { folder, callers, window, expire } => {
                tell(&retention::measure(&folder, callers, window, expire).await?)
            }
        }
    })
}

fn tell(told: &impl Serialize) -> Result<()> {
    println!("{}", serde_json::to_string(told)?);
    Ok(())
}

async fn load(kind: Kind, folder: &Path, records: u64) -> Result<Loaded> {
    let begun = Instant::now();
    let engine = kind.open(folder, Purpose::Load).await?;
    let batch = engine.load_batch() as u64;
    let mut tasks = JoinSet::new();
    let mut shown = 0;
    for first in (0..records).step_by(usize::try_from(batch)?) {
        if tasks.len() >= LOADS
            && let Some(loaded) = tasks.join_next().await
        {
            loaded??;
        }
        let tenths = first * 10 / records;
        if tenths > shown {
            shown = tenths;
            eprintln!("  {}: {} % loaded after {:.0?}", kind.name(), tenths * 10, begun.elapsed());
        }
        let engine = Arc::clone(&engine);
        let pairs = (first..records.min(first + batch)).map(Pair::new).collect();
        tasks.spawn(async move { engine.load(pairs).await });
    }
    while let Some(loaded) = tasks.join_next().await {
        loaded??;
    }
    let stored = engine.count().await?;
    if stored != records {
        return Err(format!("{records} records were loaded and {stored} are stored").into());
    }
    // Closing waits for what is still on its way, so it is part of loading.
    drop(engine);
    Ok(Loaded { took: begun.elapsed() })
}

async fn measure(task: &Measure) -> Result<Opened> {
    let begun = Instant::now();
    let engine = task.kind.open(&task.folder, Purpose::Measure).await?;
    let mut opened = Opened {
        open: begun.elapsed(),
        memory_bytes: machine::memory_bytes(engine.server().unwrap_or_else(std::process::id))?,
        own_bytes: engine.own_memory(),
        records: engine.count().await?,
        levels: Vec::new(),
    };
    if opened.records < task.expected || (!task.at_least && opened.records != task.expected) {
        return Err(format!("{} records must be stored, {} are", task.expected, opened.records).into());
    }
    look(&engine, 0, task.loaded).await?;
    let numbers = Arc::new(AtomicU64::new(task.first));
    for &callers in &task.callers {
        opened.levels.push(callers::measure(&engine, callers, task.window, &numbers).await?);
    }
    look(&engine, task.first, opened.pairs()).await?;
    drop(engine);
    if task.reopen {
        check_again(task, &opened).await?;
    }
    Ok(opened)
}

/// Opens the engine once more: what it answered must be there.
async fn check_again(task: &Measure, before: &Opened) -> Result<()> {
    let engine = task.kind.open(&task.folder, Purpose::Measure).await?;
    let (must, stored) = (before.records + before.pairs(), engine.count().await?);
    if stored != must {
        return Err(format!("{must} records must be stored after reopening, {stored} are").into());
    }
    look(&engine, task.first, before.pairs()).await
}

/// Looks at some of the `count` pairs from `first` on: each must be stored as it was completed, and not be granted
/// again.
async fn look(engine: &Arc<dyn Engine>, first: u64, count: u64) -> Result<()> {
    for look in 0..LOOKS.min(count) {
        let pair = Pair::new(first + look * count / LOOKS.min(count));
        if engine.outcome(&pair.key).await? != Some(pair.outcome.clone()) {
            return Err("a completed record has another outcome, or none".into());
        }
        let twin = Pair { owner: [0; 16], ..pair };
        if engine.claim(&twin).await?.is_some() {
            return Err("a completed record was granted again".into());
        }
    }
    Ok(())
}

/// Works until it is killed.
async fn write(folder: &Path, callers: usize, first: u64) -> Result<()> {
    let engine = Kind::Onlyonce.open(folder, Purpose::Measure).await?;
    let (numbers, completed) = (Arc::new(AtomicU64::new(first)), Arc::new(AtomicU64::new(0)));
    let mut tasks: JoinSet<Result<()>> = JoinSet::new();
    for _ in 0..callers {
        let (engine, numbers, completed) =
            (Arc::clone(&engine), Arc::clone(&numbers), Arc::clone(&completed));
        tasks.spawn(async move {
            loop {
                let pair = Pair::new(numbers.fetch_add(1, Ordering::Relaxed));
                let fence = engine.claim(&pair).await?.ok_or("a new key was not granted")?;
                engine.complete(&pair, fence).await?;
                completed.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    let begun = Instant::now();
    while begun.elapsed() < FOR_EVER {
        tokio::time::sleep(TELL).await;
        if let Some(ended) = tasks.try_join_next() {
            ended??;
        }
        tell(&completed.load(Ordering::Relaxed))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::engine::Asked;
    use crate::pair::Key;

    /// Answers at once, as the fastest engine of all would, and keeps as much as it says.
    struct Careless {
        outcome: Option<Bytes>,
        grants: bool,
    }

    impl Engine for Careless {
        fn claim<'a>(&'a self, _: &'a Pair) -> Asked<'a, Option<u64>> {
            Box::pin(async { Ok(self.grants.then_some(0)) })
        }

        fn complete<'a>(&'a self, _: &'a Pair, _: u64) -> Asked<'a, ()> {
            Box::pin(async { Ok(()) })
        }

        fn load(&self, _: Vec<Pair>) -> Asked<'_, ()> {
            Box::pin(async { Ok(()) })
        }

        fn count(&self) -> Asked<'_, u64> {
            Box::pin(async { Ok(1) })
        }

        fn outcome<'a>(&'a self, _: &'a Key) -> Asked<'a, Option<Bytes>> {
            Box::pin(async { Ok(self.outcome.clone()) })
        }
    }

    fn looked(outcome: Option<Bytes>, grants: bool) -> Result<()> {
        let engine: Arc<dyn Engine> = Arc::new(Careless { outcome, grants });
        tokio::runtime::Builder::new_current_thread().build()?.block_on(look(&engine, 7, 1))
    }

    #[test]
    fn an_engine_that_forgets_or_grants_twice_is_found_out() {
        let right = Some(Pair::new(7).outcome);
        assert!(looked(right.clone(), false).is_ok());
        assert!(looked(None, false).is_err());
        assert!(looked(Some(Pair::new(8).outcome), false).is_err());
        assert!(looked(right, true).is_err());
    }
}
