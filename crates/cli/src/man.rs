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
    let page = String::from_utf8_lossy(&page);
    let lines: Vec<_> = page.lines().collect();
    let mut text = String::new();
    for (at, line) in lines.iter().enumerate() {
        let is_space =
            |at: Option<usize>| at.and_then(|at| lines.get(at)).is_some_and(|line| line.is_empty());
        if line.starts_with(".TH ") {
            text.push_str(&title(command));
        } else if *line != ".br" || !(is_space(at.checked_sub(1)) || is_space(Some(at + 1))) {
            // A break beside an empty line is one too many.
            text.push_str(line);
            text.push('\n');
        }
    }
    Ok(text)
}

/// The title, with a place for the date that is left empty: a page is as old as its binary. Neither stretched nor
/// hyphenated: examples are there to be copied.
fn title(command: &Command) -> String {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    format!(".TH {name} 1 \"\" \"onlyonce {}\" onlyonce\n.ad l\n.nh\n", env!("CARGO_PKG_VERSION"))
}

/// Writes the page of `command` and of everything below it.
fn write_pages(command: &Command, folder: &Path) -> Result<(), Failure> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    fs::write(folder.join(format!("{name}.1")), page(command)?).map_err(Failure::Output)?;
    command.get_subcommands().try_for_each(|below| write_pages(below, folder))
}
