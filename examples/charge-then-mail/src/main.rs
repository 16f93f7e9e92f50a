//! An order in two durable steps: charge the card, then send the mail. Whatever crashes, a second run goes on after the
//! last finished step.
//!
//! `cargo run -p charge-then-mail -- order-7`, as often as you like: one charge, one mail, the same answer. "Charging" and
//! "mailing" are lines in `shop/charges.txt` and `shop/mails.txt`.
//!
//! A run that is killed *inside* a step leaves that step unknown, and nobody guesses: charging again would be wrong, so
//! the charge is a `step` and stops there; a second mail does no harm, so the mail is a `repeatable_step`. Someone who
//! looked at the bank says what came of it with `CHARGED=ch_1` or `CHARGED=no`. With `UNKNOWN=hold` nothing runs again at
//! all after a crash. `tests/killed.rs` kills this program at every point and counts.

use std::env;
use std::error::Error;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{
    Conflict, Engine, Execution, Failure, Key, Policy, Principal, Run, Scope, StepError, UnknownPolicy,
};
use onlyonce_store_embedded::{EmbeddedStore, Options};

/// Why a step failed, in words.
type Trouble = StepError<String>;

#[tokio::main]
#[expect(clippy::print_stdout, reason = "a program says what came of it")]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let order = env::args().nth(1).ok_or("which order?")?;
    let shop = PathBuf::from(env::var_os("SHOP").unwrap_or_else(|| "shop".into()));
    let unknown = if env::var("UNKNOWN").is_ok_and(|policy| policy == "hold") {
        UnknownPolicy::Hold
    } else {
        UnknownPolicy::Rerun
    };
    let store = Arc::new(EmbeddedStore::open(&shop, Options::default())?);
    let policy = Policy::default().unknown(unknown).attempts_max(10);
    let engine = Engine::builder(store).policy(policy).build().await?;

    let key = Scope::new("shop", Principal::Shared).key(Key::new(&order)?);
    let asked = engine.fingerprint().field("order", order.as_bytes()).finish();
    let ran = engine.run(&key, asked, move |execution| sell(execution, shop)).await?;
    let code = match ran {
        Run::Done(done) => {
            println!("{}{}", done.value, if done.replayed { " (replayed)" } else { "" });
            ExitCode::SUCCESS
        }
        Run::Failed(Failure { error: StepError::Unknown, .. })
        | Run::Conflict(Conflict::OutcomeUnknown { .. }) => {
            println!("unknown: look at the bank, then say CHARGED=… or CHARGED=no");
            ExitCode::from(3)
        }
        other => return Err(format!("{other:?}").into()),
    };
    engine.drain(Duration::from_secs(10)).await;
    Ok(code)
}

/// The order: what is finished is not done again.
async fn sell(execution: Execution, shop: PathBuf) -> Result<String, Failure<Trouble>> {
    wait_to_be_killed("begun");
    let charge = charge(&execution, &shop).await?;
    wait_to_be_killed("charged");
    let mail = || async {
        wait_to_be_killed("mail: before");
        happen(&shop.join("mails.txt"), &format!("you paid: {charge}"))?;
        wait_to_be_killed("mail: after");
        Ok::<_, Failure<String>>(())
    };
    execution.repeatable_step("mail", mail).await?;
    wait_to_be_killed("mailed");
    Ok(charge)
}

async fn charge(execution: &Execution, shop: &Path) -> Result<String, Failure<Trouble>> {
    let charge = || async {
        wait_to_be_killed("charge: before");
        let id = happen(&shop.join("charges.txt"), "100 EUR")?;
        wait_to_be_killed("charge: after");
        Ok::<_, Failure<String>>(format!("ch_{id}"))
    };
    match (execution.step("charge", charge).await, env::var("CHARGED").ok()) {
        // A run was killed inside the step, and someone has looked: it did not happen, or this came of it.
        (Err(Failure { error: StepError::Unknown, .. }), Some(found)) if found == "no" => {
            execution.repeatable_step("charge", charge).await
        }
        (Err(Failure { error: StepError::Unknown, .. }), Some(found)) => {
            execution.memo("charge", || found).await.map_err(|error| Failure::unknown(error.into()))
        }
        (charged, _) => charged,
    }
}

/// The effect: one more line in `file`, on the disk when this returns. Which line it is.
fn happen(file: &Path, line: &str) -> Result<usize, Failure<String>> {
    let append = || -> io::Result<usize> {
        let mut opened = OpenOptions::new().create(true).append(true).open(file)?;
        writeln!(opened, "{line}")?;
        opened.sync_all()?;
        Ok(std::fs::read_to_string(file)?.lines().count())
    };
    append().map_err(|error| Failure::unknown(error.to_string()))
}

/// For the test: stands still at the point named by `STOP_AT`, to be killed there.
#[expect(clippy::print_stdout, reason = "the test waits for it")]
fn wait_to_be_killed(point: &str) {
    if env::var("STOP_AT").is_ok_and(|stop_at| stop_at == point) {
        println!("at {point}");
        loop {
            std::thread::park();
        }
    }
}
