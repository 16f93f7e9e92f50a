//! Reads figures back from the text that Prometheus reads, so that the dashboard shows what alerts are made of.

/// The figures of one moment.
pub(super) struct Figures(String);

impl Figures {
    pub(super) const fn new(text: String) -> Self {
        Self(text)
    }

    /// The one figure of this name that has no labels.
    pub(super) fn plain(&self, name: &str) -> Option<f64> {
        self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
    }

    /// Every figure of this name, by the value of its one label.
    pub(super) fn by_label(&self, name: &str) -> Vec<(&str, u64)> {
        let series = self.0.lines().filter_map(|line| {
            let rest = line.strip_prefix(name)?.strip_prefix('{')?;
            let (labels, number) = rest.rsplit_once("} ")?;
            let (_, value) = labels.split_once("=\"")?;
            Some((value.strip_suffix('"')?, whole(number.parse().ok()?)))
        });
        series.collect()
    }

    /// The buckets of a histogram over all its series: how many were at or below each bound, in the order of bounds.
    pub(super) fn buckets(&self, name: &str) -> Vec<(f64, f64)> {
        let mut buckets: Vec<(f64, f64)> = Vec::new();
        for line in self.0.lines() {
            let Some(rest) = line.strip_prefix(name).and_then(|rest| rest.strip_prefix("_bucket{")) else {
                continue;
            };
            let Some((labels, number)) = rest.rsplit_once("} ") else { continue };
            let bound = labels.rsplit_once("le=\"").and_then(|(_, bound)| bound.strip_suffix('"'));
            let bound = match bound {
                Some("+Inf") => f64::INFINITY,
                Some(bound) => bound.parse().unwrap_or(f64::INFINITY),
                None => continue,
            };
            let Ok(number) = number.parse::<f64>() else { continue };
            match buckets.iter_mut().find(|(known, _)| known.total_cmp(&bound).is_eq()) {
                Some((_, count)) => *count += number,
                None => buckets.push((bound, number)),
            }
        }
        buckets.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        buckets
    }

    /// The `part` quantile of a histogram over all its series, as the upper bound of the bucket that it falls into.
    pub(super) fn quantile(&self, name: &str, part: f64) -> Option<f64> {
        let buckets = self.buckets(name);
        let all = buckets.last().map(|(_, count)| *count).filter(|count| *count > 0.0)?;
        let last = buckets.iter().rev().map(|(bound, _)| *bound).find(|bound| bound.is_finite());
        let found = buckets.iter().find(|(_, count)| *count >= all * part).map(|(bound, _)| *bound);
        // Beyond the last bound there is only that it was longer.
        found.filter(|bound| bound.is_finite()).or(last)
    }
}

/// A count: never negative, and exact below 2^53.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "see above")]
pub(super) fn whole(number: f64) -> u64 {
    number.max(0.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let figures = Figures::new(
            "# HELP x y\nclaims_total{answer=\"granted\"} 5\nclaims_total{answer=\"busy\"} 2\nrunning 3\n\
             s_bucket{op=\"a\",le=\"0.001\"} 90\ns_bucket{op=\"a\",le=\"0.01\"} 99\ns_bucket{op=\"a\",le=\"+Inf\"} 100\n\
             s_bucket{op=\"b\",le=\"0.001\"} 0\ns_bucket{op=\"b\",le=\"0.01\"} 100\ns_bucket{op=\"b\",le=\"+Inf\"} 100\n"
                .to_owned(),
        );
        assert_eq!(figures.by_label("claims_total"), [("granted", 5), ("busy", 2)]);
        assert_eq!(figures.plain("running"), Some(3.0));
        assert_eq!(figures.plain("nothing"), None);
        assert_eq!(figures.quantile("s", 0.4), Some(0.001));
        assert_eq!(figures.quantile("s", 0.5), Some(0.01));
        assert_eq!(figures.quantile("s", 1.0), Some(0.01), "longer than the last bound");
        assert_eq!(figures.quantile("t", 0.5), None);
    }
}
