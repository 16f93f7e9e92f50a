//! What every command needs that changes something: who says so, why, and that it is meant.

use std::io::Write as _;

use clap::Args;
use onlyonce_server::operator::By;

use super::side::is_attended;
use crate::failure::Failure;

/// Who changes something, and why.
#[derive(Debug, Args)]
#[command(next_help_heading = "Audit")]
pub(crate) struct WriteArgs {
    /// Why: it is written to the audit before anything is done
    #[arg(long, value_name = "TEXT")]
    why: String,

    #[command(flatten)]
    who: WhoArgs,

    /// Do not ask whether it is meant. Without a terminal nobody is asked
    #[arg(long, short)]
    yes: bool,
}

/// Who asks.
#[derive(Debug, Args)]
pub(crate) struct WhoArgs {
    /// In whose name, for the audit [default: the user of this machine]
    #[arg(long = "as", value_name = "NAME")]
    name: Option<String>,
}

impl WhoArgs {
    pub(crate) fn by(&self, why: Option<&str>) -> By {
        let user = || {
            let named = std::env::var("USER").ok().filter(|name| !name.is_empty());
            named.unwrap_or_else(|| format!("uid {}", rustix::process::getuid().as_raw()))
        };
        let who = self.name.clone().unwrap_or_else(user);
        By { who: Some(who), why: why.map(str::to_owned), from: "onlyonce records".to_owned() }
    }
}

impl WriteArgs {
    pub(crate) fn by(&self) -> By {
        self.who.by(Some(&self.why))
    }

    /// Asks somebody at a terminal whether `consequence` is meant.
    pub(crate) fn confirm(&self, consequence: &str) -> Result<(), Failure> {
        if self.yes || !is_attended() {
            return Ok(());
        }
        let mut stderr = std::io::stderr().lock();
        // What cannot be asked is not done.
        write!(stderr, "{consequence}\nGo on? [y/N] ")
            .and_then(|()| stderr.flush())
            .map_err(Failure::Output)?;
        let mut answer = String::new();
        let read = std::io::stdin().read_line(&mut answer);
        read.map_err(|source| Failure::Unreadable { name: "standard input".to_owned(), source })?;
        match answer.trim() {
            "y" | "Y" | "yes" => Ok(()),
            _ => Err(Failure::Usage("nothing was done".to_owned())),
        }
    }
}
