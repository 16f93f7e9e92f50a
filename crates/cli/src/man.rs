//! `onlyonce man`: manual pages, one for each command, made from the definition of the command line.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, Command, CommandFactory as _};
use clap_mangen::Man;

use crate::args::Cli;
use crate::failure::Failure;
use crate::output::write_line;

/// Print a manual page, or write all of them
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  onlyonce man key derive | man -l -
  onlyonce man --folder /usr/local/share/man/man1")]
pub(crate) struct ManArgs {
    /// The command whose page is printed, such as `key derive` [default: the page of onlyonce itself]
    #[arg(value_name = "COMMAND", conflicts_with = "folder")]
    command: Vec<String>,

    /// Write the pages of all commands into this folder, which is made if need be
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

pub(crate) fn run(args: &ManArgs) -> Result<(), Failure> {
    // `help` says what the pages say.
    let mut all = Cli::command().disable_help_subcommand(true);
    all.build();
    if let Some(folder) = &args.folder {
        fs::create_dir_all(folder).map_err(Failure::Output)?;
        return write_pages(&all, folder);
    }
    let mut command = &all;
    for name in &args.command {
        let Some(found) = command.find_subcommand(name) else {
            return Err(Failure::Usage(format!("there is no command `{}`", args.command.join(" "))));
        };
        command = found;
    }
    write_line(page(command)?.trim_end())
}

fn page(command: &Command) -> Result<String, Failure> {
    let mut page = Vec::new();
    Man::new(command.clone()).render(&mut page).map_err(Failure::Output)?;
    // Neither stretched nor hyphenated: examples are there to be copied.
    let page = String::from_utf8_lossy(&page);
    let lines = page.lines().map(|line| {
        if line.starts_with(".TH ") { format!("{line}\n.ad l\n.nh\n") } else { format!("{line}\n") }
    });
    Ok(lines.collect())
}

/// Writes the page of `command` and of everything below it.
fn write_pages(command: &Command, folder: &Path) -> Result<(), Failure> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    fs::write(folder.join(format!("{name}.1")), page(command)?).map_err(Failure::Output)?;
    command.get_subcommands().try_for_each(|below| write_pages(below, folder))
}
