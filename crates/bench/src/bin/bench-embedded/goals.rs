//! What the embedded store must reach, and whether it did: the reason for not using another engine under it.

use std::fmt::Write as _;

use crate::engine::Kind;
use crate::pair::{FINGERPRINT_BYTES, KEY_BYTES, OUTCOME_BYTES};
use crate::run::Results;
use crate::table::{pairs_per_second, slowest};

/// At how many callers the goals are set.
const CALLERS: usize = 64;
/// At least so many times the pairs per second of each.
const FASTER: [(Kind, f64); 5] =
    [(Kind::Log, 0.8), (Kind::Fjall, 2.0), (Kind::Redb, 2.0), (Kind::Postgres, 5.0), (Kind::Redis, 3.0)];
/// Whose slowest commands must be slower.
const STEADIER: [Kind; 2] = [Kind::Fjall, Kind::Redb];
/// At most so many bytes for each record, on the disk beyond what must be stored, and in memory.
const OVERHEAD_BYTES_MAX: f64 = 64.0;

/// A goal, what was measured, and whether that is enough.
struct Goal {
    name: String,
    measured: f64,
    met: bool,
}

/// The goals as a table; nothing when the store itself was not measured.
pub(crate) fn table(results: &Results) -> String {
    let goals = goals(results);
    if goals.is_empty() {
        return String::new();
    }
    let mut table = format!(
        "\n**Goals, {CALLERS} callers, records stored**\n\n| goal | measured | met |\n|---|---:|---|\n"
    );
    for Goal { name, measured, met } in goals {
        let _ = writeln!(table, "| {name} | {measured:.2} | {} |", if met { "yes" } else { "NO" });
    }
    table
}

fn goals(results: &Results) -> Vec<Goal> {
    let rounds = |kind: Kind| results.loaded.get(&kind);
    let Some(ours) = rounds(Kind::Onlyonce) else { return Vec::new() };
    let mut goals = Vec::new();
    for (kind, times) in FASTER {
        let theirs = rounds(kind).and_then(|rounds| pairs_per_second(rounds, CALLERS));
        if let (Some(ours), Some(theirs)) = (pairs_per_second(ours, CALLERS), theirs) {
            let measured = ours / theirs;
            let name = format!("pairs/s at least {times} × {}", kind.name());
            goals.push(Goal { name, measured, met: measured >= times });
        }
    }
    for kind in STEADIER {
        let theirs = rounds(kind).and_then(|rounds| slowest(rounds, CALLERS));
        if let (Some(ours), Some(theirs)) = (slowest(ours, CALLERS), theirs) {
            let measured = f64::from(ours) / f64::from(theirs.max(1));
            let name = format!("p99.9 lower than that of {} (as a share of it)", kind.name());
            goals.push(Goal { name, measured, met: measured < 1.0 });
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "a few hundred bytes")]
    let stored = (KEY_BYTES + FINGERPRINT_BYTES + OUTCOME_BYTES) as f64;
    let disk = results.disk_per_record(Kind::Onlyonce).map(|bytes| bytes - stored);
    let memory = results.own_per_record(Kind::Onlyonce);
    for (name, measured) in
        [("bytes of overhead on disk a record, at most", disk), ("bytes of memory a record, at most", memory)]
    {
        if let Some(measured) = measured {
            let name = format!("{name} {OVERHEAD_BYTES_MAX}");
            goals.push(Goal { name, measured, met: measured <= OVERHEAD_BYTES_MAX });
        }
    }
    goals
}
