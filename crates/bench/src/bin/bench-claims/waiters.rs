//! Long polls on one record, each on a connection of its own, and how soon each is answered: what `bench-claims wait` does.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use onlyonce_bench::figures::per_mille;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::Result;
use crate::caller::{Caller, expect};

/// How long all of them may take to sit down.
const SEATED_MAX: Duration = Duration::from_secs(50);
const OWNER: &str = "0123456789abcdef0123456789abcdef";

/// Waits with all of them, completes the record, and prints when they were answered as JSON.
pub(crate) fn tell(address: SocketAddr, waiters: u32) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    println!("{}", runtime.block_on(wait(address, waiters))?);
    Ok(())
}

async fn wait(address: SocketAddr, waiters: u32) -> Result<Value> {
    let mut holder = Caller::to(address).await?;
    let claim = format!(r#"{{"key":"waited-for","owner":"{OWNER}","lease":"2m"}}"#);
    let granted = expect(holder.post("/v1/claims", claim).await?, "granted")?;
    let id = granted["id"].as_str().ok_or("no id")?.to_owned();
    let mut waiting = JoinSet::new();
    for _ in 0..waiters {
        let (mut caller, path) = (Caller::to(address).await?, format!("/v1/claims/{id}/wait?for=60s"));
        waiting.spawn(async move {
            loop {
                let (status, answer) = caller.get(&path).await?;
                let at = Instant::now();
                match status {
                    200 if answer["state"] == "completed" => return Ok(at),
                    // Whoever looks whether all sit had the last seat for a moment.
                    503 => tokio::time::sleep(Duration::from_millis(5)).await,
                    _ => return Err(format!("{status}: {answer}").into()),
                }
            }
        });
    }
    all_seated(address, &id).await?;
    // A line on its own: whoever started us looks at the service's memory now, and answers with a line.
    println!("seated");
    tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new())).await??;
    let complete =
        format!(r#"{{"owner":"{OWNER}","fence":{},"outcome":{{"json":"done"}}}}"#, granted["fence"]);
    let begun = Instant::now();
    expect(holder.post(&format!("/v1/claims/{id}/complete"), complete).await?, "completed")?;
    let mut micros = Vec::new();
    for answered in waiting.join_all().await {
        let answered: Result<Instant> = answered;
        micros.push(u64::try_from(answered?.saturating_duration_since(begun).as_micros())?);
    }
    micros.sort_unstable();
    Ok(json!({
        "p50_micros": per_mille(&micros, 500),
        "p99_micros": per_mille(&micros, 990),
        "last_micros": micros.last(),
    }))
}

/// Until one more is refused: there are as many seats as long polls.
async fn all_seated(address: SocketAddr, id: &str) -> Result<()> {
    let begun = Instant::now();
    let mut probe = Caller::to(address).await?;
    while probe.get(&format!("/v1/claims/{id}/wait?for=1ms")).await?.0 != 503 {
        if begun.elapsed() > SEATED_MAX {
            return Err("the long polls did not all begin to wait".into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}
