//! A process of its own that claims and completes as it is told: one that can be stopped, or lives at another time.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::transition::{ClaimAnswer, Terms, Token, UnknownPolicy};
use onlyonce_core::{RecordId, Store as _};
use onlyonce_store_redis::RedisStore;
use onlyonce_testkit::servers::redis::set_ahead;

use crate::stage::{Home, claim_of, completion, patient, token_of};

/// Tells the test program that it is the other process, and where its store is.
const ROLE: &str = "ONLYONCE_TEST_PEER_OF";
/// What its answers begin with, among all that a test program prints.
const SAID: &str = "peer-said ";

/// The other process.
pub(crate) struct Peer {
    child: Child,
    says: BufReader<ChildStdout>,
    hears: ChildStdin,
}

impl Peer {
    /// Starts this program again to run `test`, which must begin with [`play`]; on a clock that is ahead.
    pub(crate) fn start(test: &str, url: &str, ahead_seconds: i64) -> Self {
        let this = std::env::current_exe().expect("this program");
        let mut command = Command::new(this);
        command.args(["--exact", test, "--nocapture"]).env(ROLE, url);
        if ahead_seconds != 0 {
            set_ahead(&mut command, ahead_seconds);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a process");
        let (says, hears) = (child.stdout.take().expect("piped"), child.stdin.take().expect("piped"));
        Self { child, says: BufReader::new(says), hears }
    }

    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.hears, "{line}").expect("it listens");
    }

    /// The next thing it says, word by word.
    pub(crate) fn hear(&mut self) -> Vec<String> {
        loop {
            let mut line = String::new();
            assert!(self.says.read_line(&mut line).expect("it speaks") > 0, "it ended before it answered");
            if let Some((_, said)) = line.split_once(SAID) {
                return said.split_whitespace().map(ToOwned::to_owned).collect();
            }
        }
    }

    /// Asks it, and gives the answer.
    pub(crate) fn ask(&mut self, line: &str) -> Vec<String> {
        self.tell(line);
        self.hear()
    }

    pub(crate) fn claim(&mut self, id: &RecordId, lease: Duration) -> Vec<String> {
        self.ask(&format!("claim {id} {}", lease.as_millis()))
    }

    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status();
        assert!(status.expect("kill").success());
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where the store is, if this program is the other process.
pub(crate) fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// What the other process does, until nobody tells it anything any more.
pub(crate) async fn play(url: &str) {
    let home = Home::new();
    let store = home.connect(url, patient()).await.expect("the store opens");
    let mut tokens = HashMap::new();
    let mut lines = std::io::stdin().lines();
    while let Some(Ok(line)) = lines.next() {
        let words: Vec<_> = line.split(' ').collect();
        let said = match words[..] {
            ["claim", id, lease] => {
                let (id, lease) = (id.parse().expect("an id"), lease.parse().expect("a lease"));
                claim(&store, id, Duration::from_millis(lease), &mut tokens).await
            }
            ["complete", id] => {
                let token = tokens[&id.parse::<RecordId>().expect("an id")];
                format!("{:?}", store.complete(&completion(token)).await.expect("an answer"))
            }
            ["time"] => time().to_string(),
            _ => panic!("it was told {line}"),
        };
        println!("{SAID}{said}");
    }
}

async fn claim(
    store: &RedisStore,
    id: RecordId,
    lease: Duration,
    tokens: &mut HashMap<RecordId, Token>,
) -> String {
    let mut claim = claim_of(id, lease);
    let run_max = Duration::from_hours(1);
    let terms = Terms { unknown: UnknownPolicy::Rerun, run_max, ..Terms::clone(&claim.terms) };
    claim.terms = Arc::new(terms);
    match store.claim(&claim).await.expect("an answer") {
        answer @ ClaimAnswer::Granted(_) => {
            let token = token_of(&claim, &answer);
            tokens.insert(id, token);
            format!("granted {}", token.fence)
        }
        ClaimAnswer::Busy(busy) => format!("busy {}", busy.left.as_millis()),
        ClaimAnswer::Replay(replay) => {
            format!("replay {} {}", replay.age.as_millis(), replay.left.as_millis())
        }
        other => format!("{other:?}"),
    }
}

/// The wall clock of whoever asks, in seconds.
pub(crate) fn time() -> i64 {
    let output = Command::new("date").arg("+%s").output().expect("date");
    String::from_utf8_lossy(&output.stdout).trim().parse().expect("seconds")
}
