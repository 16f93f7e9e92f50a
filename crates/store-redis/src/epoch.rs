//! Whether a server is still the one that records were written to: its mark, its run and its replication id.
//!
//! A key alone tells of a flush and of an empty restart. A fail-over keeps the key and may lose what was answered last;
//! it is told by the replication id that the new master followed.
//!
//! The key also holds what every process must know when something was lost, whoever noticed: until when nothing new is
//! granted, how far fences run ahead, and the longest lease that was ever used. What a server has lost of it is put back
//! by the first process that looks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onlyonce_core::{Owner, StoreError, StoreErrorKind};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};

use crate::asked::Told;
use crate::codec::Packed;
use crate::error;
use crate::facts::{Facts, Persistence};
use crate::scripts::{Script, Scripts};

const DOING: &str = "checking the epoch of Redis";

/// How records may have been lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loss {
    /// The mark is gone: flushed, started without its memory, or another server.
    Emptied,
    /// Another server leads, which may not have had everything.
    FailedOver,
    /// The server started again, and had not synced everything that it answered.
    Restarted,
}

impl Loss {
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Emptied => "it was flushed, or came back without its records",
            Self::FailedOver => "another server took over, which may lack what was answered last",
            Self::Restarted => "it started again, and does not sync before it answers",
        }
    }
}

/// What happened to the servers of a store since it was opened.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    emptied: AtomicU64,
    failed_over: AtomicU64,
    restarted_unsynced: AtomicU64,
    restarted: AtomicU64,
}

/// What happened to the servers of a store since it was opened, for metrics and alarms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Incidents {
    /// A server was flushed, or came back without its records.
    pub emptied: u64,
    /// A server took over from another one, which may lose what was answered last.
    pub failed_over: u64,
    /// A server that does not sync before it answers started again.
    pub restarted_unsynced: u64,
    /// A server that syncs before it answers started again: nothing was lost.
    pub restarted: u64,
}

impl Counts {
    pub(crate) fn add(&self, loss: Option<Loss>) {
        let count = match loss {
            Some(Loss::Emptied) => &self.emptied,
            Some(Loss::FailedOver) => &self.failed_over,
            Some(Loss::Restarted) => &self.restarted_unsynced,
            None => &self.restarted,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Incidents {
        Incidents {
            emptied: self.emptied.load(Ordering::Relaxed),
            failed_over: self.failed_over.load(Ordering::Relaxed),
            restarted_unsynced: self.restarted_unsynced.load(Ordering::Relaxed),
            restarted: self.restarted.load(Ordering::Relaxed),
        }
    }
}

/// A server as it was last seen.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub(crate) address: String,
    pub(crate) key: Vec<u8>,
    mark: Vec<u8>,
    run_id: String,
    replid: String,
    persistence: Persistence,
    /// The highest that fences could have been.
    pub(crate) source: u64,
}

/// What a look at a server showed.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) known: Known,
    pub(crate) loss: Option<Loss>,
    pub(crate) is_new_run: bool,
    /// For how long no new grant may be made.
    pub(crate) quarantine: Duration,
    pub(crate) fence_ahead: u64,
    /// The longest lease that any process used.
    pub(crate) lease: Duration,
    /// A key for the mark is on another server by now.
    pub(crate) has_moved: bool,
}

/// What to look at and for.
pub(crate) struct Look<'a> {
    pub(crate) scripts: &'a Scripts,
    /// The keys that may hold the mark, the best first: in a cluster, one may be on its way to another server.
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) address: &'a str,
    /// How long to quarantine if something was lost.
    pub(crate) quarantine: Duration,
    /// What is left of a quarantine, should the mark be kept under another key than before.
    pub(crate) left: Duration,
    /// The least that fences must run ahead of the server's time.
    pub(crate) fence_ahead: u64,
    /// What fences must not fall below.
    pub(crate) source: u64,
    /// The longest lease that is known.
    pub(crate) lease: Duration,
    /// The replication ids of every master of this store so far.
    pub(crate) led: &'a [String],
}

impl Look<'_> {
    /// Compares a server with how it was `known`, and tells the other processes if it lost something.
    pub(crate) async fn at(
        self,
        connection: &mut MultiplexedConnection,
        facts: &Facts,
        known: Option<&Known>,
    ) -> Result<Seen, StoreError> {
        let changed = change(known, facts, self.address, self.led);
        let mut value = Value::Nil;
        for (at, key) in self.keys.iter().enumerate() {
            let known_mark = known.filter(|known| known.key == *key).map(|known| known.mark.as_slice());
            value = self.ask(connection, key, known_mark, changed.is_some()).await?;
            if error::is_elsewhere(&value) {
                continue;
            }
            let answer = Answer::read(value)?;
            let is_emptied = known_mark.is_some_and(|known| known != answer.mark);
            return Ok(Seen {
                loss: if is_emptied { Some(Loss::Emptied) } else { changed },
                is_new_run: known.is_some_and(|known| known.run_id != facts.run_id),
                has_moved: at > 0,
                ..self.seen(answer, key, facts)
            });
        }
        Err(error::unexpected(&value, DOING))
    }

    async fn ask(
        &self,
        connection: &mut MultiplexedConnection,
        key: &[u8],
        mark: Option<&[u8]>,
        is_lost: bool,
    ) -> Result<Value, StoreError> {
        let question = Question {
            mark: mark.unwrap_or_default(),
            quarantine: self.quarantine,
            is_lost,
            // Under the same key the server knows better.
            left: if mark.is_some() { Duration::ZERO } else { self.left },
            fence_ahead: self.fence_ahead,
            source: self.source,
            lease: self.lease,
        };
        let call = question.call(self.scripts, key)?;
        let value = send(connection, &call).await?;
        if error::is_forgotten(&value) {
            return send(connection, &self.scripts.with_text(&call).unwrap_or(call)).await;
        }
        Ok(value)
    }

    fn seen(&self, answer: Answer, key: &[u8], facts: &Facts) -> Seen {
        Seen {
            loss: None,
            is_new_run: false,
            has_moved: false,
            quarantine: answer.quarantine,
            fence_ahead: answer.fence_ahead,
            lease: answer.lease,
            known: Known {
                address: self.address.to_owned(),
                key: key.to_owned(),
                mark: answer.mark,
                run_id: facts.run_id.clone(),
                replid: facts.replid.clone(),
                persistence: facts.persistence,
                source: answer.micros.saturating_add(answer.fence_ahead),
            },
        }
    }
}

/// What `epoch.lua` is asked.
#[derive(Debug, Default)]
pub(crate) struct Question<'a> {
    /// The mark as it was known; empty if it was not.
    pub(crate) mark: &'a [u8],
    pub(crate) quarantine: Duration,
    pub(crate) is_lost: bool,
    /// What is left of a quarantine that stood elsewhere.
    pub(crate) left: Duration,
    pub(crate) fence_ahead: u64,
    /// What fences must not fall below.
    pub(crate) source: u64,
    /// The longest lease that is known.
    pub(crate) lease: Duration,
}

impl Question<'_> {
    pub(crate) fn call(&self, scripts: &Scripts, key: &[u8]) -> Result<Cmd, StoreError> {
        let fresh =
            Owner::random().map_err(|error| StoreError::new(StoreErrorKind::Misuse, DOING).because(error))?;
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let fixed = Packed::default()
            .number(millis(self.quarantine), 8)
            .byte(self.is_lost.into())
            .number(millis(self.left), 8)
            .number(self.fence_ahead, 8)
            .number(self.source, 8)
            .number(millis(self.lease), 8);
        let mut call = scripts.call(Script::Epoch, key);
        call.arg(self.mark).arg(fresh.as_bytes()).arg(fixed.finish());
        Ok(call)
    }
}

/// What `epoch.lua` answered.
#[derive(Debug)]
pub(crate) struct Answer {
    mark: Vec<u8>,
    quarantine: Duration,
    pub(crate) fence_ahead: u64,
    micros: u64,
    lease: Duration,
}

impl Answer {
    pub(crate) fn read(value: Value) -> Result<Self, StoreError> {
        let (code, mut told) = Told::new(value, DOING)?;
        if code != 1 {
            return Err(StoreError::new(StoreErrorKind::Corrupt, DOING).because("its key is not ours"));
        }
        Ok(Self {
            mark: told.bytes()?.into(),
            quarantine: Duration::from_millis(told.number()?),
            fence_ahead: told.number()?,
            micros: told.number()?,
            lease: Duration::from_millis(told.number()?),
        })
    }
}

async fn send(connection: &mut MultiplexedConnection, call: &Cmd) -> Result<Value, StoreError> {
    connection.send_packed_command(call).await.map_err(|error| error::lost(error, DOING))
}

/// What the ids say happened between two looks.
fn change(known: Option<&Known>, facts: &Facts, address: &str, led: &[String]) -> Option<Loss> {
    let followed_one_of_ours = led.contains(&facts.replid2);
    let has_followed = facts.replid2.bytes().any(|byte| byte != b'0');
    let Some(known) = known else {
        return followed_one_of_ours.then_some(Loss::FailedOver);
    };
    if known.run_id == facts.run_id {
        // It led, followed another and leads again. A leader that nobody follows for an hour changes its id too, but
        // then it followed nobody.
        return (known.replid != facts.replid && has_followed).then_some(Loss::FailedOver);
    }
    // Who has followed anyone since it started was made the leader after it, also under an address that led before.
    if has_followed || address != known.address {
        Some(Loss::FailedOver)
    } else if known.persistence == Persistence::Always {
        None
    } else {
        Some(Loss::Restarted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOBODY: &str = "0000";

    fn known(persistence: Persistence) -> Known {
        Known {
            address: "a:1".to_owned(),
            key: b"key".to_vec(),
            mark: b"mark".to_vec(),
            run_id: "run".to_owned(),
            replid: "led".to_owned(),
            persistence,
            source: 0,
        }
    }

    fn facts(run_id: &str, replid: &str, replid2: &str) -> Facts {
        Facts { run_id: run_id.into(), replid: replid.into(), replid2: replid2.into(), ..Facts::default() }
    }

    #[test]
    fn a_change_of_ids_is_read_as_what_it_is() {
        let always = known(Persistence::Always);
        let led = ["led".to_owned()];
        let told = |known: &Known, facts: &Facts| change(Some(known), facts, "a:1", &led);
        assert_eq!(told(&always, &facts("run", "led", NOBODY)), None, "nothing changed");
        assert_eq!(told(&always, &facts("run", "new", NOBODY)), None, "nobody followed it for an hour");
        assert_eq!(
            told(&always, &facts("run", "new", "other")),
            Some(Loss::FailedOver),
            "it followed another"
        );
        assert_eq!(told(&always, &facts("next", "new", NOBODY)), None, "it synced before it answered");
        for unsynced in [Persistence::None, Persistence::Later] {
            assert_eq!(told(&known(unsynced), &facts("next", "new", NOBODY)), Some(Loss::Restarted));
        }
        assert_eq!(
            told(&always, &facts("other", "new", "led")),
            Some(Loss::FailedOver),
            "a replica was promoted"
        );
        assert_eq!(
            told(&always, &facts("next", "new", "never-seen")),
            Some(Loss::FailedOver),
            "it led, another did, which we never saw, and it leads again"
        );
        assert_eq!(
            change(Some(&always), &facts("other", "new", NOBODY), "b:2", &led),
            Some(Loss::FailedOver)
        );
        assert_eq!(change(None, &facts("other", "new", "led"), "b:2", &led), Some(Loss::FailedOver));
        assert_eq!(change(None, &facts("other", "new", NOBODY), "b:2", &led), None, "a new server joined");
    }
}
