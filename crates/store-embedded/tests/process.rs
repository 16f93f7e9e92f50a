//! A real process on a real disk: killed under load, and with syncs that fail. What it said was done is done.
//!
//! The test runs itself again as a worker, reads what the worker says it was answered, ends it without warning, and
//! opens the folder. Nothing waits for time to pass: the worker is killed after so many lines.
#![expect(clippy::panic, reason = "a failed check panics")]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use onlyonce_core::fingerprint::{Fingerprint, Rules};
use onlyonce_core::transition::{Claim, ClaimAnswer, Complete, Terms, Token};
use onlyonce_core::{Fence, Outcome, Owner, RecordId, Secret, Store, StoreErrorKind};
use onlyonce_store_embedded::{EmbeddedStore, Options};
use onlyonce_testkit::{Soak, run};
use rand::Rng;

const WORKER: &str = "ONLYONCE_TEST_WORKER";
/// How many keys a worker works on at a time, unless it is told otherwise.
const TASKS: u64 = 16;

fn options() -> Options {
    Options { segment_bytes_max: 64 << 10, reserve_bytes: 4096, ..Options::default() }
}

fn id_of(key: u64) -> RecordId {
    let mut bytes = [1; 32];
    bytes[1..9].copy_from_slice(&key.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    bytes[9..17].copy_from_slice(&key.to_be_bytes());
    RecordId::from_bytes(bytes)
}

fn claim_of(key: u64) -> Claim {
    let fingerprint = Fingerprint::builder(&Secret::new([1; 32]), Rules::standard()).finish();
    let owner = Owner::random().expect("random bytes");
    Claim { id: id_of(key), fingerprint, owner, terms: Arc::new(Terms::default()) }
}

fn outcome_of(key: u64) -> Outcome {
    Outcome::kept(1, format!("the outcome of {key}"))
}

/// Claims and completes new keys until it is killed, and says each answer once it has it. Not a test of its own: does
/// nothing unless it was started as a worker.
#[test]
fn worker() {
    let Ok(folder) = std::env::var(WORKER) else { return };
    let first: u64 = std::env::var("ONLYONCE_TEST_FIRST").expect("a first key").parse().expect("a number");
    let store = Arc::new(EmbeddedStore::open(Path::new(&folder), options()).expect("the store opens"));
    let tasks: u64 =
        std::env::var("ONLYONCE_TEST_TASKS").map_or(TASKS, |tasks| tasks.parse().expect("a number"));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("a runtime");
    runtime.block_on(async move {
        let tasks = (0..tasks).map(|task| tokio::spawn(work(Arc::clone(&store), first + task)));
        for task in tasks.collect::<Vec<_>>() {
            task.await.expect("the work does not panic");
        }
    });
}

/// Says a line, at once: what is in a buffer when the process is killed was never said.
fn say(line: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
}

async fn work(store: Arc<EmbeddedStore>, mut key: u64) {
    loop {
        let claim = claim_of(key);
        let token = match store.claim(&claim).await {
            Ok(ClaimAnswer::Granted(grant)) => Token { id: claim.id, owner: claim.owner, fence: grant.fence },
            Ok(other) => return say(&format!("strange {key} {other:?}")),
            Err(error) => return say(&format!("error {key} {:?}", error.kind())),
        };
        say(&format!("granted {key} {}", token.fence));
        let complete = Complete { token, outcome: outcome_of(key), retention: None };
        match store.complete(&complete).await {
            Ok(answer) => say(&format!("completed {key} {answer:?}")),
            Err(error) => return say(&format!("error {key} {:?}", error.kind())),
        }
        key += TASKS;
    }
}

/// What a worker said it was answered.
#[derive(Default)]
struct Said {
    granted: HashMap<u64, Fence>,
    completed: Vec<u64>,
    errors: usize,
    /// Answers after the first error.
    after_error: usize,
    last_key: u64,
}

impl Said {
    fn hear(&mut self, line: &str) {
        let mut words = line.split(' ');
        let (Some(what), Some(key)) = (words.next(), words.next()) else { return };
        let Ok(key) = key.parse::<u64>() else { return };
        let last = words.next().unwrap_or_default();
        match what {
            "granted" => {
                let fence = Fence::new(last.parse().expect("a fence")).expect("below 2^53");
                assert!(self.granted.insert(key, fence).is_none(), "key {key} was granted twice");
            }
            "completed" => {
                assert_eq!(last, "Completed");
                self.completed.push(key);
            }
            "error" => self.errors += 1,
            "strange" => panic!("a worker got a strange answer: {line}"),
            _ => return,
        }
        self.after_error += usize::from(self.errors > 0 && what != "error");
        self.last_key = self.last_key.max(key);
    }

    fn answers(&self) -> usize {
        self.granted.len() + self.completed.len()
    }
}

fn start(folder: &Path, first: u64, tasks: u64, prefix: &[String]) -> Child {
    let exe = std::env::current_exe().expect("this test");
    let mut command = match prefix {
        [] => Command::new(&exe),
        [program, args @ ..] => {
            let mut command = Command::new(program);
            command.args(args).arg(&exe);
            command
        }
    };
    command
        .args(["--exact", "worker", "--nocapture"])
        .env(WORKER, folder)
        .env("ONLYONCE_TEST_FIRST", first.to_string())
        .env("ONLYONCE_TEST_TASKS", tasks.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the worker starts")
}

/// Everything that was said is so: completed keys replay, granted ones are not granted again, fences have grown.
async fn verify(folder: &Path, said: &Said) {
    let store = EmbeddedStore::open(folder, options()).expect("the store opens after the kill");
    for key in &said.completed {
        match store.claim(&claim_of(*key)).await {
            Ok(ClaimAnswer::Replay(replay)) => assert_eq!(replay.outcome, outcome_of(*key)),
            other => panic!("key {key} was completed, and now: {other:?}"),
        }
    }
    for (key, fence) in &said.granted {
        let record = store.lookup(&id_of(*key)).await.expect("readable").expect("a granted record is there");
        assert_eq!(record.fence, *fence, "key {key}");
        let answer = store.claim(&claim_of(*key)).await.expect("an answer");
        assert!(!matches!(answer, ClaimAnswer::Granted(_)), "key {key} was granted a second time");
    }
}

#[test]
fn soak_a_killed_process_loses_nothing_and_grants_nothing_twice() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut soak = Soak::new("kill -9", 20);
    let (mut answers, mut first) = (0, 0);
    while let Some((_, mut rng)) = soak.next_round() {
        let mut worker = start(folder.path(), first, TASKS, &[]);
        let until = rng.random_range(1..600);
        let mut said = Said::default();
        let mut lines = BufReader::new(worker.stdout.take().expect("a pipe")).lines();
        while said.answers() < until {
            said.hear(&lines.next().expect("the worker works until it is killed").expect("text"));
        }
        worker.kill().expect("the worker can be killed");
        // What it said before it died counts too.
        lines.map_while(Result::ok).for_each(|line| said.hear(&line));
        worker.wait().expect("the worker is gone");
        run(verify(folder.path(), &said));
        answers += said.answers() as u64;
        // A task may have claimed one key more than it could say.
        first = said.last_key + 2 * TASKS;
    }
    soak.report(answers, "answers, none lost, no key granted twice");
}

#[test]
fn soak_no_command_is_answered_after_a_failed_sync() {
    let mut soak = Soak::new("failed sync", 12);
    let mut answers = 0;
    while let Some((seed, _)) = soak.next_round() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        // The first syncs open the store; from 1 to 200 every one is hit in a long run.
        let nth = (seed - 1) * if soak.is_long() { 1 } else { 17 } % 200 + 1;
        let error = if seed % 2 == 0 { "ENOSPC" } else { "EIO" };
        let inject = format!("inject=fdatasync:error={error}:when={nth}");
        let strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync", "-e", &inject];
        let mut worker = start(folder.path(), 0, 1, &strace.map(String::from));
        let mut said = Said::default();
        let lines = BufReader::new(worker.stdout.take().expect("a pipe")).lines();
        lines.map_while(Result::ok).for_each(|line| said.hear(&line));
        // A worker that met the failure ends by itself; so does one that could not open the store.
        worker.wait().expect("the worker ends");
        assert_eq!(said.after_error, 0, "answers went on after sync {nth} failed");
        run(verify(folder.path(), &said));
        answers += said.answers() as u64;
    }
    soak.report(answers, "answers before a failed sync, all kept");
}

#[test]
fn a_second_process_is_told_who_has_the_folder() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let _first = EmbeddedStore::open(folder.path(), options()).expect("the store opens");
    let error = EmbeddedStore::open(folder.path(), options()).expect_err("one process at a time");
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    let source = std::error::Error::source(&error).expect("a reason").to_string();
    assert!(source.contains(&format!("process {}", std::process::id())), "{source}");
}
