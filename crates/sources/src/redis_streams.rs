//! Redis Streams (or Valkey): `redis-stream://HOST:PORT/STREAM`.
//!
//! | parameter | default | what it says |
//! |---|---|---|
//! | `group` | [`Options::group`] | the consumer group; made when it is not there, and the stream with it |
//! | `db` | 0 | the database |
//! | `from` | `0` | where a group that is made begins: `0` (the first entry), `$` (what is added later) or an id |
//! | `body` | `body` | the field that is the body; the others are headers. An entry without it is a JSON object of its fields |
//! | `dead_letter` | `STREAM:dead-letter` | the stream that dead letters are added to |
//! | `idle_seconds` | 60 | how long an entry may be pending before another consumer takes it over |
//! | `trim` | `false` | whether entries that every group has settled are removed |
//!
//! Each source value is a consumer of its own, with a name that nobody else has (`CLIENT LIST` shows it). An entry is settled only while it is
//! pending for that consumer and was delivered to nobody since: checked and done in one script. What a dead consumer left
//! behind is taken over once it has been idle for `idle_seconds`.
//!
//! A retry waits here, and its idle time is reset while it does: when this process ends, another takes it over. Entries
//! that somebody trimmed away before they were settled are reported as an error in the log: they are lost.
//!
//! Needs Redis 6.2, and one server: not a Cluster, whose slots would part the stream from its dead letters.

mod entry;
mod link;
mod reader;
mod retries;

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use onlyonce_core::{Owner, hex};
use onlyonce_inbox::{Extended, Horizon, Settled, Settlement, Source, SourceError, SourceErrorKind};
use redis::{Value, cmd};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::dead_letter;
use crate::ledger::Ledger;
use crate::pumped::{Broker, Pumped};
use crate::url::{SourceUrl, wrong};
use crate::{Options, each};

use link::{Link, Scripts};
use retries::Retries;

/// How the names of our consumers begin.
const CONSUMER_PREFIX: &str = "onlyonce-";
/// How long an entry may be pending, unless the URL says otherwise.
const IDLE: Duration = Duration::from_mins(1);
/// A consumer that was not heard of for this long, and has nothing pending, is removed from the group.
const FORGOTTEN_AFTER: Duration = Duration::from_hours(24);
/// What is given back counts as idle for this long: longer than anyone waits.
const GIVEN_BACK: Duration = Duration::from_hours(24 * 365);

/// One delivery of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Handle {
    id: String,
    deliveries: u32,
}

/// A stream, read by one consumer of a group.
#[derive(Debug)]
pub(crate) struct RedisStream {
    settings: Settings,
    /// For everything that is answered at once.
    link: Link,
    /// For reads that wait.
    waiting_link: Link,
    scripts: Scripts,
    retries: Retries,
    /// About how large the last entries were, to fetch so many bytes ahead and not more.
    entry_bytes: AtomicU64,
}

#[derive(Debug)]
struct Settings {
    stream: String,
    group: String,
    consumer: String,
    from: String,
    body: String,
    dead_letters: String,
    idle: Duration,
    trim: bool,
    fetch_bytes_max: usize,
}

/// Opens the stream that a URL names.
pub(crate) async fn open(mut url: SourceUrl, options: &Options) -> Result<Box<dyn Source>, SourceError> {
    let stream = url.named("stream")?;
    let database = url.value::<u32>("db")?.unwrap_or(0);
    let idle = url.value("idle_seconds")?.map_or(IDLE, Duration::from_secs);
    let random = Owner::random().map_err(|error| {
        SourceError::new(SourceErrorKind::Unavailable, "naming the consumer").because(error)
    })?;
    let settings = Settings {
        group: url.take("group").unwrap_or_else(|| options.group.clone()),
        consumer: format!("{CONSUMER_PREFIX}{}", hex::encode(random.as_bytes())),
        from: url.take("from").unwrap_or_else(|| "0".to_owned()),
        body: url.take("body").unwrap_or_else(|| "body".to_owned()),
        dead_letters: url.take("dead_letter").unwrap_or_else(|| format!("{stream}:dead-letter")),
        idle: options.unsettled_max.unwrap_or(idle),
        trim: url.value("trim")?.unwrap_or(false),
        fetch_bytes_max: options.fetch_bytes_max,
        stream,
    };
    if settings.group.is_empty() || settings.idle.is_zero() {
        return Err(wrong("group is empty, or idle_seconds is 0"));
    }
    if settings.dead_letters == settings.stream {
        return Err(wrong("dead_letter names the stream itself"));
    }
    let server = format!("redis://{}/{database}", url.authority);
    url.finish()?;
    let link = Link::new(&server, &settings.consumer, options.timeout)?;
    let waiting_link = Link::new(&server, &settings.consumer, options.timeout)?;
    let stream = RedisStream {
        settings,
        link,
        waiting_link,
        scripts: Scripts::default(),
        retries: Retries::default(),
        entry_bytes: AtomicU64::new(0),
    };
    stream.join().await?;
    Ok(Box::new(Pumped::start(stream)))
}

impl RedisStream {
    /// Makes the group if it is not there, and tidies up after consumers of long ago.
    async fn join(&self) -> Result<(), SourceError> {
        self.make_group(&self.settings.from).await?;
        let Settings { stream, group, .. } = &self.settings;
        let script = &self.scripts.join;
        let mut call = script.key(stream);
        call.arg(group).arg(CONSUMER_PREFIX).arg(millis(FORGOTTEN_AFTER));
        self.link.call(&call, "joining the group").await?;
        Ok(())
    }

    async fn make_group(&self, from: &str) -> Result<(), SourceError> {
        let Settings { stream, group, .. } = &self.settings;
        let mut make = cmd("XGROUP");
        make.arg("CREATE").arg(stream).arg(group).arg(from).arg("MKSTREAM");
        match self.link.ask(&make, "making the group").await {
            Err(error) if link::has_code(&error, "BUSYGROUP") => Ok(()),
            made => made.map(|_| ()),
        }
    }

    /// Settles by verb, in one round trip: whether each was still ours.
    async fn settle_by(
        &self,
        items: impl Iterator<Item = (&Handle, &'static str, String)> + Send,
    ) -> Result<Vec<Result<bool, SourceError>>, SourceError> {
        let Settings { stream, group, consumer, dead_letters, .. } = &self.settings;
        let script = &self.scripts.settle;
        let mut call = script.key(stream);
        call.key(dead_letters).arg(group).arg(consumer);
        let mut count = 0;
        for (handle, verb, reason) in items {
            call.arg(&handle.id).arg(handle.deliveries).arg(verb).arg(reason);
            count += 1;
        }
        if count == 0 {
            return Ok(Vec::new());
        }
        let answers = match self.link.call(&call, "settling deliveries").await {
            // Somebody removed the group, and with it every delivery.
            Err(error) if link::has_code(&error, "NOGROUP") => {
                return Ok((0..count).map(|_| Ok(false)).collect());
            }
            answered => answered?,
        };
        let Value::Array(answers) = answers else { return Err(link::unreadable("settling deliveries")) };
        Ok(answers.iter().map(settled).collect())
    }

    fn report_trimmed(&self, ids: &[String]) {
        if !ids.is_empty() {
            let (stream, count) = (&self.settings.stream, ids.len());
            tracing::error!(%stream, count, ?ids, "entries were trimmed away before they were settled");
        }
    }

    async fn trim(&self) {
        if self.settings.trim {
            let script = &self.scripts.trim;
            if let Err(error) =
                self.link.call(&script.key(&self.settings.stream), "trimming the stream").await
            {
                warn!(stream = %self.settings.stream, error = ?error, "the stream could not be trimmed");
            }
        }
    }
}

/// What the script says of one delivery: ours, gone, or why it could not be settled.
fn settled(answer: &Value) -> Result<bool, SourceError> {
    match answer {
        Value::Int(ours) => Ok(*ours == 1),
        Value::BulkString(why) => {
            let why = String::from_utf8_lossy(why).into_owned();
            Err(SourceError::new(SourceErrorKind::Refused, "keeping a dead letter").because(why))
        }
        _ => Err(link::unreadable("settling deliveries")),
    }
}

impl Broker for RedisStream {
    type Handle = Handle;

    async fn pump(&self, ledger: &Ledger<Handle>, stop: &CancellationToken) {
        // What a read that is cut off had taken is pending for this consumer, and given back with the rest.
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.read(ledger) => {}
            () = self.deliver_again(ledger) => {}
        }
    }

    async fn settle(
        &self,
        _: &Ledger<Handle>,
        items: &[(Handle, Settlement)],
    ) -> Vec<Result<Settled, SourceError>> {
        let verbs = items.iter().map(|(handle, settlement)| match settlement {
            Settlement::Ack => (handle, "ack", String::new()),
            Settlement::Retry { .. } => (handle, "keep", String::new()),
            Settlement::DeadLetter { reason } => (handle, "dead", dead_letter::reason(reason)),
        });
        let answers = match self.settle_by(verbs).await {
            Ok(answers) => answers,
            Err(error) => return each(&error, items.len()),
        };
        let mut is_trimmable = false;
        let mut results = Vec::with_capacity(items.len());
        for ((handle, settlement), answer) in items.iter().zip(answers) {
            match (&answer, settlement) {
                (Ok(true), Settlement::Retry { after }) => self.retries.add(handle.clone(), *after),
                (Ok(true), _) => is_trimmable = true,
                _ => {}
            }
            results.push(answer.map(|ours| if ours { Settled::Settled } else { Settled::Gone }));
        }
        if is_trimmable {
            self.trim().await;
        }
        results
    }

    async fn extend(&self, handles: &[Handle]) -> Vec<Result<Extended, SourceError>> {
        let kept = self.settle_by(handles.iter().map(|handle| (handle, "keep", String::new()))).await;
        match kept {
            Ok(answers) => answers
                .into_iter()
                .map(|answer| answer.map(|ours| if ours { Extended::Extended } else { Extended::Gone }))
                .collect(),
            Err(error) => each(&error, handles.len()),
        }
    }

    async fn give_back(&self, _: Vec<Handle>) -> Result<(), SourceError> {
        // ORDER: a read that waits must not take entries after this.
        self.waiting_link.drop_connection().await;
        let Settings { stream, group, consumer, .. } = &self.settings;
        let script = &self.scripts.leave;
        let mut call = script.key(stream);
        call.arg(group).arg(consumer).arg(millis(GIVEN_BACK));
        let left = self.link.call(&call, "leaving the group").await;
        self.link.drop_connection().await;
        match left {
            Err(error) if link::has_code(&error, "NOGROUP") => Ok(()),
            left => left.map(|_| ()),
        }
    }

    async fn lag(&self) -> Result<Option<u64>, SourceError> {
        let mut ask = cmd("XINFO");
        ask.arg("GROUPS").arg(&self.settings.stream);
        let groups = self.link.ask(&ask, "asking for the lag").await?;
        Ok(entry::lag(&groups, &self.settings.group))
    }

    fn unsettled_max(&self) -> Option<Duration> {
        Some(self.settings.idle)
    }

    fn horizon(&self) -> Horizon {
        Horizon::Unbounded
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).max(1)
}
