//! One measurement: load on one server for a while, and what it cost.

use onlyonce_bench::measured::{self, Under, WARM_UP, window};
use onlyonce_bench::wrk::{Load, Mode, Wrk};

use crate::Result;
use crate::subject::Subject;

/// What was measured, and of what.
pub(crate) type Measurement = measured::Measurement<Subject>;

/// Puts `load` on a server, after a warm-up. Replays find their keys completed then.
pub(crate) fn measure(
    subject: Subject,
    under: &mut Under<'_>,
    wrk: &mut Wrk,
    load: Load,
    round: u32,
) -> Result<Measurement> {
    wrk.renew();
    wrk.run(Load { time: WARM_UP, ..load }, under.server.address())?;
    if load.mode != Mode::Replay {
        wrk.renew();
    }
    let measured = window(under, wrk, load)?;
    Ok(Measurement { subject, mode: load.mode, connections: load.connections, round, measured, more: () })
}
