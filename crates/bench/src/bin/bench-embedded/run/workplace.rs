//! What an engine's folder is called, and the processes that work in it.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use onlyonce_bench::workplace::Workplace;
use serde::de::DeserializeOwned;

use crate::Result;
use crate::engine::Kind;
use crate::task::Task;

/// What one record takes on average, with what engines need meanwhile and what the rounds add.
const RECORD_BYTES_MAX: u64 = 700;
/// What an engine takes without records: logs, reserves, a new cluster.
const ENGINE_BYTES_MAX: u64 = 1 << 30;

/// Refuses a folder where the figures would mean nothing, or where there is no room for all engines at once.
pub(super) fn check(workplace: &Workplace, engines: usize, records: u64) -> Result<()> {
    workplace.check_disk()?;
    let (needed, free) =
        (engines as u64 * (ENGINE_BYTES_MAX + records * RECORD_BYTES_MAX), workplace.free_bytes()?);
    if free < needed {
        return Err(format!(
            "{records} records in {engines} engines may take {} GiB, {} GiB are free: use fewer --records",
            needed >> 30,
            free >> 30
        )
        .into());
    }
    Ok(())
}

fn name(kind: Kind, purpose: &str) -> String {
    format!("{}-{purpose}", kind.name().replace(' ', "-"))
}

pub(super) fn path(workplace: &Workplace, kind: Kind, purpose: &str) -> PathBuf {
    workplace.path(&name(kind, purpose))
}

/// A new, empty folder.
pub(super) fn folder(workplace: &Workplace, kind: Kind, purpose: &str) -> Result<PathBuf> {
    workplace.folder(&name(kind, purpose))
}

fn start(task: &Task) -> Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("worker").arg(serde_json::to_string(task)?);
    Ok(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?)
}

/// What a worker tells at the end of its task.
pub(super) fn ask<T: DeserializeOwned>(task: &Task) -> Result<T> {
    let output = start(task)?.wait_with_output()?;
    if !output.status.success() {
        return Err(format!("its process failed ({}); see above", output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Kills a worker that has worked for `patience`, and answers the last number it told.
pub(super) fn kill(task: &Task, patience: Duration) -> Result<u64> {
    let mut child = start(task)?;
    let told = child.stdout.take().ok_or("the worker has no output")?;
    let (mut last, mut begun) = (None, None);
    for line in BufReader::new(told).lines() {
        // The last line may be cut off by the kill.
        if let Ok(number) = line?.parse() {
            last = Some(number);
        }
        if begun.get_or_insert_with(Instant::now).elapsed() > patience {
            child.kill()?;
        }
    }
    child.wait()?;
    last.ok_or_else(|| "its process ended before it told anything; see above".into())
}
