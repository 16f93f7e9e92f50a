//! `onlyonce check URL`: finds out from outside whether an endpoint keeps its promise, be it ours or not.
//!
//! It sends no more requests than it announces, and asks before it sends any to another machine.

pub(crate) mod answer;
mod args;
mod case;
mod draft;
mod items;
mod options;
pub(crate) mod probe;
mod report;
mod table;
pub(crate) mod target;
mod verdict;
pub(crate) mod wire;

use std::io::{self, Write as _};

use crate::failure::Failure;

pub(crate) use args::CheckArgs;
use items::{Group, ITEMS, Item};
use probe::Probe;
use report::Report;
use verdict::{Findings, Verdict};
use wire::{Trust, Wire};

/// The exit code when an item failed.
const FAILED: u8 = 1;

pub(crate) fn run(args: &CheckArgs) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let failed = runtime.map_err(|error| Failure::System(Box::new(error)))?.block_on(check(args))?;
    if failed { Err(Failure::Told(FAILED)) } else { Ok(()) }
}

/// Did an item fail?
async fn check(args: &CheckArgs) -> Result<bool, Failure> {
    let options = args.options()?;
    let wanted = args.wanted()?;
    let groups: Vec<Group> =
        Group::ALL.into_iter().filter(|group| wanted.iter().any(|item| item.group == *group)).collect();
    let trust = if args.uses_tls() { Some(Trust::new(args.ca())?) } else { None };
    let wire = args.wire(trust.as_ref()).await?;
    let effects = args.effects_wire(trust.as_ref()).await?;
    // The first group runs whatever was asked for.
    let others = groups.iter().filter(|group| **group != Group::First);
    let announced = others.map(|group| case::requests_max(*group, &options)).sum::<u32>()
        + case::requests_max(Group::First, &options);
    announce(args, &options, &wire, announced, groups.contains(&Group::Mismatch))?;
    let probe = Probe::new(wire, effects, announced, args.verbose);
    let mut findings = Findings::default();
    let progress = table::progress(&groups);
    let base = case::run(&probe, &options, &groups, &mut findings, |group| progress.step(group)).await?;
    progress.finish();
    let report = Report::new(args.url(), &options, &base, &probe, &wanted, &findings);
    if args.json {
        report.write_json()?;
    } else {
        table::write(&report)?;
    }
    Ok(report.count(Verdict::Fail) > 0)
}

/// Says what is about to happen. Another machine needs `--yes`.
fn announce(
    args: &CheckArgs,
    options: &options::Options,
    wire: &Wire,
    most: u32,
    with_other_method: bool,
) -> Result<(), Failure> {
    let other = match options.method.as_str() {
        _ if !with_other_method => "",
        "PATCH" => ", and one POST",
        _ => ", and one PATCH",
    };
    let text = format!(
        "onlyonce check sends at most {most} requests to {}: {}{other}. \
         Most use a new key and are executed for real.",
        args.url(),
        options.method
    );
    if !wire.is_loopback() && !args.yes {
        let text = format!("{text}\nThis is not this machine: add --yes if that is what you want");
        return Err(Failure::Usage(text));
    }
    // Standard output is for the result. If nobody reads the announcement, it was still made.
    let _ = writeln!(io::stderr().lock(), "{text}");
    Ok(())
}

/// The items with these names, or of the groups with these names.
fn named(names: &[String]) -> Result<Vec<&'static Item>, Failure> {
    let mut found = Vec::new();
    for name in names {
        let of_name = ITEMS.iter().filter(|item| item.id == name || item.group.as_str() == name);
        let before = found.len();
        found.extend(of_name.copied());
        if found.len() == before {
            let all: Vec<_> = ITEMS.iter().map(|item| item.id).collect();
            return Err(Failure::Usage(format!("there is no item {name:?}; there are: {}", all.join(", "))));
        }
    }
    Ok(found)
}
