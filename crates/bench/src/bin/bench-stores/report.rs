//! The results as JSON, one object for each measurement: for whoever draws pictures of them.

use onlyonce_bench::conditions::Conditions;
use serde_json::{Value, json};

use crate::measure::{Behind, Measurement};
use crate::run::Results;

pub(crate) fn value(results: &Results) -> Value {
    let Conditions { rounds, window, is_pinned, file_system, load_before, took } = &results.conditions;
    json!({
        "rounds": rounds,
        "seconds": window.as_secs(),
        "pinned": is_pinned,
        "file_system": file_system,
        "load_before": load_before,
        "minutes": took.as_secs_f64() / 60.0,
        "servers": results.servers,
        "left_out": results.left_out,
        "measurements": results.measurements.iter().map(measurement).collect::<Vec<_>>(),
    })
}

fn measurement(one: &Measurement) -> Value {
    let behind = |behind: Option<Behind>| {
        behind.map(|behind| {
            json!({
                "processor_micros": behind.processor_micros,
                "round_trips": behind.trips,
                "calls": behind.calls,
            })
        })
    };
    json!({
        "subject": one.subject.name(),
        "mode": one.mode.name(),
        "connections": one.connections,
        "round": one.round + 1,
        "requests": one.measured.requests,
        "requests_per_second": one.measured.requests_per_second,
        "p50_micros": one.measured.p50_micros,
        "p99_micros": one.measured.p99_micros,
        "processor_micros": one.measured.processor_micros,
        "busy": one.measured.busy,
        "foreign": one.measured.foreign,
        "redis": behind(one.more.redis),
        "postgres": behind(one.more.postgres),
        "counted": one.more.counted,
        "faults": one.measured.faults,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::Subject;
    use crate::table::sample;

    #[test]
    fn every_measurement_is_told_with_what_was_wrong_with_it() {
        let results = sample(&[(Subject::ExpressRedis, 1000.0, 350.0, &["refused"])]);
        let told = value(&results);
        assert_eq!(told["measurements"][0]["subject"], "Express + ioredis");
        assert_eq!(told["measurements"][0]["faults"][0], "refused");
        assert_eq!(told["measurements"][0]["redis"]["round_trips"], 2.0);
        assert_eq!(told["measurements"][0]["postgres"], Value::Null);
    }
}
