//! An owner that stops in mid-work and wakes after its lease: a process of its own, stopped by SIGSTOP.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::transition::{Claim, ClaimAnswer, CompleteAnswer, Terms, UnknownPolicy};
use onlyonce_core::{RecordId, Store};
use onlyonce_testkit::fixture::any_id;
use onlyonce_testkit::servers::RedisOptions;
use onlyonce_testkit::{Soak, run};

use crate::stage::{Home, Live, claim_of, completion, patient, token_of};

const LEASE: Duration = Duration::from_millis(150);
/// Tells the test program that it is the owner that will be stopped, and where its store is.
const ROLE: &str = "ONLYONCE_TEST_ZOMBIE_OF";

/// The owner, in a process of its own.
struct Zombie {
    child: Child,
    says: BufReader<ChildStdout>,
    hears: ChildStdin,
}

impl Zombie {
    fn start(url: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command
            .args(["--exact", "zombie::soak_zombie_owners_write_nothing_stale", "--nocapture"])
            .env(ROLE, url);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a process");
        let (says, hears) = (child.stdout.take().expect("piped"), child.stdin.take().expect("piped"));
        Self { child, says: BufReader::new(says), hears }
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.hears, "{line}").expect("it listens");
    }

    /// The next thing it says that begins with `word`.
    fn hear(&mut self, word: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.says.read_line(&mut line).expect("it speaks") > 0, "it ended before it said {word}");
            if let Some((_, rest)) = line.split_once(word) {
                return rest.trim().to_owned();
            }
        }
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status();
        assert!(status.expect("kill").success());
    }
}

impl Drop for Zombie {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the other process does: claims what it is told to, and completes when it is told to.
async fn act(url: &str) {
    let home = Home::new();
    let store = home.connect(url, patient()).await.expect("the store opens");
    let mut lines = std::io::stdin().lines();
    while let Some(Ok(line)) = lines.next() {
        let id: RecordId = line.parse().expect("an id");
        let claim = claim_of(id, LEASE);
        let token = token_of(&claim, &store.claim(&claim).await.expect("a grant"));
        println!("zombie-granted {}", token.fence);
        lines.next();
        println!("zombie-completed {:?}", store.complete(&completion(token)).await.expect("an answer"));
    }
}

#[test]
fn soak_zombie_owners_write_nothing_stale() {
    if let Ok(url) = std::env::var(ROLE) {
        return run(act(&url));
    }
    run(async {
        let live = Live::new(RedisOptions::default(), patient()).await;
        let mut zombie = Zombie::start(&live.server.url());
        let (mut soak, mut stopped) = (Soak::new("redis zombies", 20), 0);
        while soak.next_round().is_some() {
            let id = any_id();
            zombie.tell(&id.to_string());
            let stale = zombie.hear("zombie-granted");
            zombie.signal("STOP");
            let claim = takeover(&*live.store, id).await;
            assert_ne!(claim.1.fence.to_string(), stale);
            zombie.tell("complete");
            zombie.signal("CONT");
            assert_eq!(zombie.hear("zombie-completed"), "Fenced");
            let done = live.store.complete(&completion(claim.1)).await.expect("an answer");
            assert_eq!(done, CompleteAnswer::Completed);
            zombie_cannot_change(&*live.store, &claim.0).await;
            stopped += 1;
        }
        soak.report(stopped, "owners stopped past their lease, no stale write accepted");
    });
}

/// Claims under `rerun` until the lease of the owner before has passed.
async fn takeover(store: &dyn Store, id: RecordId) -> (Claim, onlyonce_core::transition::Token) {
    let mut claim = claim_of(id, Duration::from_secs(30));
    claim.terms = Arc::new(Terms { unknown: UnknownPolicy::Rerun, ..Terms::clone(&claim.terms) });
    loop {
        match store.claim(&claim).await.expect("an answer") {
            ClaimAnswer::Busy(busy) => {
                // tidy: sleep because the lease of another process is real time
                tokio::time::sleep(busy.left).await;
            }
            answer => return (claim.clone(), token_of(&claim, &answer)),
        }
    }
}

async fn zombie_cannot_change(store: &dyn Store, claim: &Claim) {
    let replay = store.claim(&crate::stage::by_another(claim)).await.expect("an answer");
    assert!(matches!(replay, ClaimAnswer::Replay(_)), "{replay:?}");
}
