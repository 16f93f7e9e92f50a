//! A store on Redis or Valkey, for services on more than one machine: one atomic script per operation.
//!
//! ```no_run
//! # async fn open() -> Result<(), onlyonce_core::StoreError> {
//! use onlyonce_store_redis::{Options, RedisStore};
//!
//! let store = RedisStore::connect("redis://127.0.0.1:6379", Options::default()).await?;
//! println!("{}", store.survival()); // what it survives, and what it does not
//! # Ok(())
//! # }
//! ```
//!
//! `redis://` and `rediss://` name one server, `redis-sentinel://HOST:PORT,…/NAME` whichever server the Sentinels call
//! the master, `redis-cluster://HOST:PORT,…` a cluster. Redis 7.0 or Valkey 7.2 is the least.
//!
//! # What survives what
//!
//! | | `appendfsync always` | `everysec`, or hidden | no persistence |
//! |---|---|---|---|
//! | crash of our process | yes | yes | yes |
//! | kill -9 of Redis | yes | the last second may be lost | everything is lost |
//! | power cut | yes | the last second may be lost | everything is lost |
//! | fail-over, loss of the machine | may lose what was acknowledged last | same | same |
//!
//! Replication is asynchronous: a replica that takes over may lack grants and outcomes that were acknowledged, and then
//! the work can run twice. [`Acknowledgement`] (`WAIT`, `WAITAOF`) makes that rarer and does not rule it out, nor does
//! it help against a master that is cut off and goes on answering (`min-replicas-to-write` bounds that). Who cannot
//! live with it uses `postgres://`. Eviction loses records too: a server whose `maxmemory-policy` is not `noeviction` is
//! refused. [`RedisStore::survival`] says all this for the servers at hand.
//!
//! # The epoch: what Redis can lose is noticed
//!
//! On every master a key holds a random *mark*. The mark, the server's run id and its replication id are compared with
//! what they were: before the first command goes over a new connection, and once a second. A flush and an empty restart
//! take the mark away; a fail-over changes the ids; a restart of a server that had not synced may have lost the last
//! second. Each is logged, counted in [`Incidents`], and *quarantines* the master: until every lease from before has
//! ended, claims that would be granted are refused with a retryable error. Replays, busy answers, completions and all
//! else go on. The end of the quarantine is kept in the mark's key, so that all processes agree, also new ones. Between
//! a flush and the next look, at most a second, grants are made. A restart of a server that syncs first loses nothing
//! and quarantines nothing.
//!
//! How long is "every lease from before"? The longest lease that any process ever used is kept beside the mark, and
//! every process knows it from its looks: whoever notices a loss knows the leases of those that are gone as well. A
//! lease that no server knows of yet is announced to all of them before the first claim or renewal that uses it, which
//! costs that one a round trip more; leases up to [`Options::quarantine`] need none, because no quarantine is shorter.
//! What is kept never shrinks: after one lease of an hour, a quarantine lasts an hour.
//!
//! In a cluster the mark lives in one of its master's own slots. While that slot moves to another master, the mark is
//! kept in another one, and what is left of a quarantine goes with it. A slot that moves *out of* a quarantined master
//! is quarantined no longer.
//!
//! # Acknowledgement
//!
//! [`Options::acknowledgement`] has grants, outcomes and replays wait for replicas (`WAIT`) or disks (`WAITAOF`);
//! [`RedisStore::acknowledged`] makes a handle that waits for something else, for each route that wants it. Those that
//! wait have connections of their own, opened when they are needed, each used by one call at a time: who does not wait is
//! never held up behind them. The wait goes in the same round trip over the same connection, right behind what it waits
//! for, also when that has to be sent again. Since 7.2 servers wait only for what the asking connection wrote: a repeated claim, a
//! repeated completion and a replay therefore write one byte again, and on a server at `maxmemory` they are refused.
//! A wait in vain is an error with an unknown outcome; repeating the command waits again.
//!
//! # Rights
//!
//! A user with an access list needs `~PREFIX:*` and `&PREFIX:*`, and `+evalsha +eval +script|load +get +getrange +strlen +set +setrange
//! +del +time +scan +dbsize +info +ping +publish +subscribe +unsubscribe`; for acknowledgements `+wait +waitaof`; in a
//! cluster `+spublish +ssubscribe +sunsubscribe +cluster|slots +asking`; and `+config|get`, without which the server is
//! believed not to sync. Without the channels all is done, but waiters are not woken: that is logged as an error at
//! start, said by [`RedisStore::survival`], and they look for themselves every [`Options::wake_within`].
//!
//! # Keys
//!
//! | key | type | what | expiry |
//! |---|---|---|---|
//! | `onlyonce:r:` + 32 bytes of the id | string | one record, laid out in `codec.rs` | once completed or released: retention + 1 h |
//! | `onlyonce:epoch`, in a cluster `onlyonce:epoch:{n}` on each master | string | the mark, the end of a quarantine, how far fences run ahead, the longest lease | none |
//! | `onlyonce:secret` | string | the key of the keyed hashes | none |
//! | `onlyonce:sweep` | string | when the next pass of the sweeper may begin | until then |
//!
//! A record is one string, packed for Lua's `struct`: one `GET` and one `SET` in each script, about 120 bytes beside
//! fingerprint rules, steps and outcome, and a single key, so that every script has one hash slot. Changes are told on
//! the channel of the same name. A key's expiry only collects garbage: what has expired reads as absent before, and a
//! server clock that jumps by less than an hour frees nothing early.
//!
//! Fences are `max(stored + 1, TIME in microseconds)`, moved ahead when records with higher fences were taken in, when
//! the server's clock was set back, or when it is behind that of another master; always below 2^53.
//!
//! # Listing, counting, sweeping
//!
//! There is no index; see `scan.rs` for why. A listing scans all keys for each page, and counting looks at no more than
//! 50 000 keys of each master and estimates from there. Completed and released records go with their keys. The sweeper
//! makes lapsed records unknown and removes unknown ones at the end of their retention; processes take turns, one pass a
//! minute at most, and no more than a twentieth of the time.
//!
//! # Files
//!
//! | file | what it is for |
//! |---|---|
//! | `target` | from a URL to servers |
//! | `node` | one server: its connections, and the task that keeps and watches them |
//! | `facts`, `epoch` | what a server says about itself, and whether it is still the same |
//! | `masters` | which server a key belongs to; clusters; "not here" |
//! | `scripts` | the scripts in `scripts/*.lua` |
//! | `asked` | commands as calls of scripts, and their answers |
//! | `codec` | the bytes of a record |
//! | `acknowledged`, `survival` | `WAIT` and `WAITAOF`; what is promised |
//! | `secret` | the secret of the keyed hashes, put back after a loss |
//! | `scan`, `watch` | all records; waiters |
//! | `store` | the [`Store`](onlyonce_core::Store) |
//! | `tier` | the cache tier in front of another store |

mod acknowledged;
mod asked;
mod codec;
mod epoch;
mod error;
mod facts;
mod masters;
mod node;
mod options;
mod scan;
mod scripts;
mod secret;
mod shared;
mod store;
mod survival;
mod target;
mod tier;
mod watch;

pub use epoch::Incidents;
pub use options::{Acknowledgement, Options, TlsFiles};
pub use store::RedisStore;
pub use survival::Survival;
pub use tier::RedisTier;
