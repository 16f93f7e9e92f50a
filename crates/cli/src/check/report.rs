//! The result of a run, for people and for programs.

use serde::Serialize;

use super::case::Base;
use super::draft::{self, PointResult};
use super::items::Item;
use super::options::Options;
use super::probe::{Exchange, Probe};
use super::verdict::{Findings, Verdict};
use crate::failure::Failure;
use crate::output;

/// One item with its judgement.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) id: &'static str,
    pub(crate) group: &'static str,
    pub(crate) title: &'static str,
    /// The points of the draft that it shows.
    pub(crate) draft: &'static [u8],
    pub(crate) verdict: Verdict,
    pub(crate) why: String,
}

/// How many items got each verdict.
#[derive(Debug, Serialize)]
struct Summary {
    pass: usize,
    fail: usize,
    not_supported: usize,
    not_applicable: usize,
    unknown: usize,
}

/// All that a run found.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) url: String,
    method: String,
    key_header: String,
    /// How keys were written: `quoted`, or `bare` where only that is accepted.
    key_form: &'static str,
    pub(crate) requests: u32,
    summary: Summary,
    pub(crate) items: Vec<Row>,
    pub(crate) points: Vec<PointResult>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) exchanges: Vec<Exchange>,
}

impl Report {
    pub(crate) fn new(
        url: &str,
        options: &Options,
        base: &Base,
        probe: &Probe,
        wanted: &[&'static Item],
        findings: &Findings,
    ) -> Self {
        let items: Vec<Row> = wanted.iter().map(|item| row(item, findings)).collect();
        let count = |verdict| items.iter().filter(|row| row.verdict == verdict).count();
        let summary = Summary {
            pass: count(Verdict::Pass),
            fail: count(Verdict::Fail),
            not_supported: count(Verdict::NotSupported),
            not_applicable: count(Verdict::NotApplicable),
            unknown: count(Verdict::Unknown),
        };
        Self {
            url: url.to_owned(),
            method: options.method.clone(),
            key_header: options.key_name.clone(),
            key_form: base.form.as_str(),
            requests: probe.sent(),
            summary,
            items,
            points: draft::points(findings, wanted),
            exchanges: probe.exchanges(),
        }
    }

    /// How many items have this verdict.
    pub(crate) fn count(&self, verdict: Verdict) -> usize {
        self.items.iter().filter(|row| row.verdict == verdict).count()
    }

    pub(crate) fn write_json(&self) -> Result<(), Failure> {
        let text = serde_json::to_string(self).map_err(|error| Failure::Output(error.into()))?;
        output::write_line(&text)
    }
}

fn row(item: &'static Item, findings: &Findings) -> Row {
    let (verdict, why) = match findings.of(item) {
        Some(judgement) => (judgement.verdict, judgement.why.clone()),
        None => (Verdict::Unknown, "not reached".to_owned()),
    };
    Row { id: item.id, group: item.group.as_str(), title: item.title, draft: item.points, verdict, why }
}
