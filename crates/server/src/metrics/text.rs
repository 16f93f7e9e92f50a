//! Reads figures back from the text that Prometheus reads, so that the dashboard shows what alerts are made of, and a
//! collector is sent the same.

/// The figures of one moment.
pub(crate) struct Figures(String);

/// Everything under one name.
pub(crate) struct Family<'t> {
    pub(crate) name: &'t str,
    pub(crate) help: &'t str,
    pub(crate) kind: Kind,
    pub(crate) samples: Vec<Sample<'t>>,
}

/// What a figure does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts by size.
    Histogram,
}

/// One line.
#[derive(Debug)]
pub(crate) struct Sample<'t> {
    /// With `_bucket`, `_sum` or `_count` at its end where it is a part of a histogram.
    pub(crate) name: &'t str,
    pub(crate) labels: Vec<(&'t str, String)>,
    /// As it is written.
    pub(crate) number: &'t str,
}

impl Figures {
    pub(crate) const fn new(text: String) -> Self {
        Self(text)
    }

    /// All figures, by their names.
    pub(crate) fn families(&self) -> Vec<Family<'_>> {
        let (mut families, mut help): (Vec<Family<'_>>, _) = (Vec::new(), "");
        let mut is_known = false;
        for line in self.0.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                help = rest.split_once(' ').map_or("", |(_, help)| help);
            } else if let Some((name, kind)) =
                line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
            {
                let kind = Kind::read(kind);
                is_known = kind.is_some();
                let family =
                    |kind| Family { name, help: std::mem::take(&mut help), kind, samples: Vec::new() };
                families.extend(kind.map(family));
            } else if let (true, Some(family)) = (is_known, families.last_mut()) {
                family.samples.extend(Sample::read(line));
            }
        }
        families
    }

    fn samples(&self) -> impl Iterator<Item = Sample<'_>> {
        self.0.lines().filter(|line| !line.starts_with('#')).filter_map(Sample::read)
    }

    /// The one figure of this name that has no labels.
    pub(crate) fn plain(&self, name: &str) -> Option<f64> {
        let found = self.samples().find(|sample| sample.name == name && sample.labels.is_empty());
        found.and_then(|sample| sample.number.parse().ok())
    }

    /// Every figure of this name, by the value of its one label.
    pub(crate) fn by_label(&self, name: &str) -> Vec<(String, u64)> {
        let series = self.samples().filter(|sample| sample.name == name).filter_map(|mut sample| {
            let (_, value) = sample.labels.pop().filter(|_| sample.labels.is_empty())?;
            Some((value, whole(sample.number.parse().ok()?)))
        });
        series.collect()
    }

    /// The buckets of a histogram over all its series: how many were at or below each bound, in the order of bounds.
    pub(crate) fn buckets(&self, name: &str) -> Vec<(f64, f64)> {
        let mut buckets: Vec<(f64, f64)> = Vec::new();
        for sample in self.samples().filter(|sample| sample.name.strip_prefix(name) == Some("_bucket")) {
            let bound = sample.labels.iter().find(|(label, _)| *label == "le");
            // `+Inf` is a number.
            let Some(bound) = bound.and_then(|(_, bound)| bound.parse::<f64>().ok()) else { continue };
            let Ok(number) = sample.number.parse::<f64>() else { continue };
            match buckets.iter_mut().find(|(known, _)| known.total_cmp(&bound).is_eq()) {
                Some((_, count)) => *count += number,
                None => buckets.push((bound, number)),
            }
        }
        buckets.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        buckets
    }

    /// The `part` quantile of a histogram over all its series, as the upper bound of the bucket that it falls into.
    pub(crate) fn quantile(&self, name: &str, part: f64) -> Option<f64> {
        let buckets = self.buckets(name);
        let all = buckets.last().map(|(_, count)| *count).filter(|count| *count > 0.0)?;
        let last = buckets.iter().rev().map(|(bound, _)| *bound).find(|bound| bound.is_finite());
        let found = buckets.iter().find(|(_, count)| *count >= all * part).map(|(bound, _)| *bound);
        // Beyond the last bound there is only that it was longer.
        found.filter(|bound| bound.is_finite()).or(last)
    }
}

impl Kind {
    fn read(word: &str) -> Option<Self> {
        match word {
            "counter" => Some(Self::Counter),
            "gauge" => Some(Self::Gauge),
            "histogram" => Some(Self::Histogram),
            _ => None,
        }
    }
}

impl<'t> Sample<'t> {
    /// `name{label="value",…} number`
    fn read(line: &'t str) -> Option<Self> {
        let (name, rest) = line.split_at(line.find(['{', ' '])?);
        let (labels, rest) = rest.strip_prefix('{').map_or(Some((Vec::new(), rest)), labels)?;
        Some(Self { name, labels, number: rest.trim() })
    }
}

/// Labels, and what follows them.
fn labels(mut text: &str) -> Option<(Vec<(&str, String)>, &str)> {
    let mut labels = Vec::new();
    loop {
        if let Some(rest) = text.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, rest) = text.strip_prefix(',').unwrap_or(text).split_once("=\"")?;
        let (value, rest) = quoted(rest)?;
        labels.push((name, value));
        text = rest;
    }
}

/// What stands before the quotation mark that ends it, and what follows.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    loop {
        match characters.next()? {
            (at, '"') => return Some((value, &text[at + 1..])),
            (_, '\\') => match characters.next()?.1 {
                'n' => value.push('\n'),
                escaped => value.push(escaped),
            },
            (_, character) => value.push(character),
        }
    }
}

/// A count: never negative, and exact below 2^53.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "see above")]
pub(crate) fn whole(number: f64) -> u64 {
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
        assert_eq!(figures.by_label("claims_total"), [("granted".to_owned(), 5), ("busy".to_owned(), 2)]);
        assert_eq!(figures.plain("running"), Some(3.0));
        assert_eq!(figures.plain("nothing"), None);
        assert_eq!(figures.quantile("s", 0.4), Some(0.001));
        assert_eq!(figures.quantile("s", 0.5), Some(0.01));
        assert_eq!(figures.quantile("s", 1.0), Some(0.01), "longer than the last bound");
        assert_eq!(figures.quantile("t", 0.5), None);
    }

    #[test]
    fn what_is_escaped_is_read_as_it_was() {
        let line = r#"x{route="/v1/\"pay\"\n,a=\\}",answer="ran"} 1.5"#;
        let sample = Sample::read(line).expect("a sample");
        let labels = [("route", "/v1/\"pay\"\n,a=\\}".to_owned()), ("answer", "ran".to_owned())];
        assert_eq!((sample.name, &*sample.labels, sample.number), ("x", &labels[..], "1.5"));
        for broken in ["", "x", "x{a=\"b\" 1", "x{a=\"b} 1", "x{a} 1", "# TYPE x counter"] {
            assert!(Sample::read(broken).is_none_or(|sample| sample.name == "#"), "{broken}");
        }
    }

    #[test]
    fn figures_are_told_apart_by_name_and_kind() {
        let text = "# HELP a_total What happened\n# TYPE a_total counter\na_total{b=\"c\"} 1\na_total 2\n\n\
                    # TYPE d gauge\nd 3\n\n# TYPE e summary\ne 4\n";
        let figures = Figures::new(text.to_owned());
        let families = figures.families();
        let told: Vec<_> = families
            .iter()
            .map(|family| (family.name, family.help, family.kind, family.samples.len()))
            .collect();
        assert_eq!(told, [("a_total", "What happened", Kind::Counter, 2), ("d", "", Kind::Gauge, 1)]);
    }
}
