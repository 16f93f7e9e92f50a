//! Callers that claim and complete for a while, each on a connection of its own: what `bench-claims load` does.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use onlyonce_bench::figures::per_mille;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::Result;
use crate::arguments::Asked;
use crate::caller::{Caller, expect};

/// Puts the load on, and prints what came of it as JSON.
pub(crate) fn tell(asked: &Asked) -> Result<()> {
    let told = tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(put(asked))?;
    println!("{told}");
    Ok(())
}

async fn put(asked: &Asked) -> Result<Value> {
    let mut callers = Vec::new();
    for _ in 0..asked.connections {
        callers.push(Caller::to(asked.address).await?);
    }
    let begun = Instant::now();
    let until = begun + Duration::from_millis(asked.millis);
    let mut running = JoinSet::new();
    for (number, caller) in callers.into_iter().enumerate() {
        running.spawn(call(caller, asked.clone(), number, until));
    }
    let mut times = Vec::new();
    for took in running.join_all().await {
        times.extend(took?);
    }
    let seconds = begun.elapsed().as_secs_f64();
    times.sort_unstable();
    Ok(json!({
        "pairs": times.len() * asked.batch,
        "seconds": seconds,
        "p50_micros": per_mille(&times, 500),
        "p99_micros": per_mille(&times, 990),
    }))
}

/// One caller: how many microseconds each of its pairs, or batches of them, took.
async fn call(mut caller: Caller, asked: Asked, number: usize, until: Instant) -> Result<Vec<u64>> {
    let mut times = Vec::new();
    for turn in 0_u64.. {
        let begun = Instant::now();
        if begun >= until {
            break;
        }
        // Owners are secrets elsewhere; here they only have to differ.
        let name = format!("{}-{number}-{turn}", asked.name);
        let owner = |item: usize| format!("{number:08x}{turn:016x}{item:08x}");
        if asked.batch == 1 {
            pair(&mut caller, &name, &owner(0)).await?;
        } else {
            batch(&mut caller, &name, asked.batch, owner).await?;
        }
        times.push(u64::try_from(begun.elapsed().as_micros())?);
    }
    Ok(times)
}

async fn pair(caller: &mut Caller, key: &str, owner: &str) -> Result<()> {
    let claim = format!(r#"{{"key":"{key}","owner":"{owner}"}}"#);
    let granted = expect(caller.post("/v1/claims", claim).await?, "granted")?;
    let (id, fence) = (granted["id"].as_str().ok_or("no id")?, &granted["fence"]);
    let complete = format!(r#"{{"owner":"{owner}","fence":{fence},"outcome":{{"json":{{"paid":true}}}}}}"#);
    expect(caller.post(&format!("/v1/claims/{id}/complete"), complete).await?, "completed")?;
    Ok(())
}

async fn batch(caller: &mut Caller, name: &str, items: usize, owner: impl Fn(usize) -> String) -> Result<()> {
    let mut claims = String::new();
    for item in 0..items {
        let comma = if item == 0 { "" } else { "," };
        write!(claims, r#"{comma}{{"key":"{name}-{item}","owner":"{}"}}"#, owner(item))?;
    }
    let (_, granted) = caller.post("/v1/claims/batch", format!(r#"{{"claims":[{claims}]}}"#)).await?;
    let mut completes = String::new();
    for item in 0..items {
        let granted = expect((200, granted["answers"][item].clone()), "granted")?;
        let comma = if item == 0 { "" } else { "," };
        write!(
            completes,
            r#"{comma}{{"id":{},"owner":"{}","fence":{},"outcome":{{"content_version":1,"head":"","body":"eyJwYWlkIjp0cnVlfQ=="}}}}"#,
            granted["id"],
            owner(item),
            granted["fence"],
        )?;
    }
    let (_, done) = caller.post("/v1/store/complete", format!(r#"{{"items":[{completes}]}}"#)).await?;
    for item in 0..items {
        expect((200, done["answers"][item].clone()), "completed")?;
    }
    Ok(())
}
