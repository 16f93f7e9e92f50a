//! The table for people: one line for each item, and the bytes where they are asked for.

use std::io;

use indicatif::ProgressBar;

use super::items::Group;
use super::report::{Report, Row};
use super::verdict::Verdict;
use crate::failure::Failure;
use crate::output;
use crate::paint::{Paint, Tone};

/// A bar on standard error while the run goes on, if that is a terminal.
pub(crate) struct Progress(ProgressBar);

pub(crate) fn progress(groups: &[Group]) -> Progress {
    Progress(crate::records::progress::bar(groups.len() as u64, "first"))
}

impl Progress {
    pub(crate) fn step(&self, group: Group) {
        self.0.set_message(group.as_str());
        self.0.inc(1);
    }

    pub(crate) fn finish(&self) {
        self.0.finish_and_clear();
    }
}

/// Writes the whole table.
pub(crate) fn write(report: &Report) -> Result<(), Failure> {
    let paint = Paint::for_stream(&io::stdout());
    let mut lines = vec![String::new(), paint.paint(Tone::Strong, &report.url)];
    let mut group = "";
    for row in &report.items {
        if row.group != group {
            lines.push(String::new());
            group = row.group;
            lines.push(paint.paint(Tone::Strong, group));
        }
        lines.push(line(row, paint));
        if matches!(row.verdict, Verdict::Fail | Verdict::Unknown | Verdict::NotSupported) {
            lines.push(paint.paint(Tone::Quiet, &format!("{:44}expected: {}", "", row.title)));
        }
    }
    lines.push(String::new());
    lines.push(summary(report, paint));
    lines.extend(points(report, paint));
    if !report.exchanges.is_empty() {
        lines.push(exchanges(report, paint));
    }
    output::write_line(&lines.join("\n"))
}

fn line(row: &Row, paint: Paint) -> String {
    let (sign, tone) = match row.verdict {
        Verdict::Pass => ("✓", Tone::Good),
        Verdict::Fail => ("✗", Tone::Bad),
        Verdict::NotSupported => ("○", Tone::Care),
        Verdict::Unknown => ("?", Tone::Care),
        Verdict::NotApplicable => ("–", Tone::Quiet),
    };
    let verdict = paint.paint(tone, &format!("{sign} {:<14}", row.verdict.as_str()));
    let points: Vec<_> = row.draft.iter().map(ToString::to_string).collect();
    let points = if points.is_empty() { String::new() } else { format!("  [{}]", points.join(" ")) };
    let points = paint.paint(Tone::Quiet, &points);
    let why = if row.verdict == Verdict::Fail { paint.paint(Tone::Bad, &row.why) } else { row.why.clone() };
    format!("  {verdict}  {:<21}   {why}{points}", row.id)
}

fn summary(report: &Report, paint: Paint) -> String {
    let parts: Vec<_> = Verdict::ALL
        .iter()
        .map(|verdict| (report.count(*verdict), verdict))
        .filter(|(count, verdict)| *count > 0 || matches!(verdict, Verdict::Pass | Verdict::Fail))
        .map(|(count, verdict)| {
            let text = format!("{count} {}", verdict.as_str());
            match verdict {
                Verdict::Fail if count > 0 => paint.paint(Tone::Bad, &text),
                Verdict::Pass => paint.paint(Tone::Good, &text),
                _ => text,
            }
        })
        .collect();
    format!(
        "{}; {} requests.\nPoints of draft-ietf-httpapi-idempotency-key-header-07 (the numbers in brackets):",
        parts.join(", "),
        report.requests
    )
}

/// The 39 points, by what was seen of them.
fn points(report: &Report, paint: Paint) -> Vec<String> {
    let of = |verdict: &Verdict| {
        let points = report.points.iter().filter(|point| point.verdict == *verdict);
        let numbers: Vec<_> = points.map(|point| point.number.to_string()).collect();
        let name = match verdict {
            Verdict::NotApplicable => "not seen in this run",
            verdict => verdict.as_str(),
        };
        (!numbers.is_empty())
            .then(|| format!("  {name:<21}  {}", paint.paint(Tone::Quiet, &numbers.join(" "))))
    };
    Verdict::ALL.iter().filter_map(of).collect()
}

fn exchanges(report: &Report, paint: Paint) -> String {
    let mut lines = Vec::new();
    for (number, exchange) in (1..).zip(&report.exchanges) {
        let title = format!("#{number} {} {}", exchange.group, exchange.note);
        lines.extend([String::new(), paint.paint(Tone::Strong, &title)]);
        lines.extend(exchange.sent.lines().map(|line| format!("> {line}")));
        lines.extend(exchange.received.lines().map(|line| format!("< {line}")));
    }
    lines.join("\n")
}
