//! The results as JSON, one object for each measurement.

use onlyonce_bench::conditions::Conditions;
use serde_json::{Value, json};

use crate::measure::Measurement;
use crate::run::Results;

pub(crate) fn value(results: &Results) -> Value {
    let Conditions { rounds, file_system, load_before, took, .. } = &results.conditions;
    json!({
        "rounds": rounds,
        "batch_max": results.bounds.0,
        "lanes": results.bounds.1,
        "file_system": file_system,
        "load_before": load_before,
        "minutes": took.as_secs_f64() / 60.0,
        "servers": results.servers,
        "measurements": results.measurements.iter().map(measurement).collect::<Vec<_>>(),
    })
}

fn measurement(one: &Measurement) -> Value {
    json!({
        "pair": one.pair.name(),
        "way": one.pair.way(one.way),
        "round": one.round + 1,
        "messages": one.measured.requests,
        "messages_per_second": one.measured.requests_per_second,
        "processor_micros": one.measured.processor_micros,
        "foreign": one.measured.foreign,
        "faults": one.measured.faults,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pair::{Pair, Way};
    use crate::table::sample;

    #[test]
    fn every_measurement_is_told_with_what_was_wrong_with_it() {
        let told = value(&sample(&[(Pair::NatsRedis, Way::Naive, 1000.0, &["lost"])]));
        assert_eq!(told["measurements"][0]["way"], "naive: SET NX; effect; ack");
        assert_eq!(told["measurements"][0]["faults"][0], "lost");
    }
}
