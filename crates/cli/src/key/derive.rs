//! `onlyonce key derive`: a key from entity, action and params.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use onlyonce::key::derive::{Derivation, Form};
use serde::Serialize;

use crate::args::exit_codes;
use crate::failure::Failure;
use crate::input;
use crate::output::{self, OutputArgs};

/// Make a key from what the operation is: the same input gives the same key, in every language.
///
/// The plain form is the first 32 hexadecimal digits of the SHA-256 of "entity:action" or "entity:action:params", with
/// the params as Python's `json.dumps(params, sort_keys=True)` writes them.
///
/// What is likely to differ between an attempt and its retry (times, random numbers, attempt counters) is warned about.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "\
Examples:
  onlyonce key derive --entity order-123 --action create --params '{\"currency\":\"USD\",\"amount\":100}'
  jq .order request.json | onlyonce key derive --entity order-123 --action create --params - --strict

",
    exit_codes!()
))]
pub(crate) struct DeriveArgs {
    /// What is acted upon, such as order-123
    #[arg(long)]
    entity: String,

    /// What is done to it, such as create
    #[arg(long)]
    action: String,

    /// Parameters: a JSON object, or - to read it from standard input
    #[arg(long, value_name = "JSON")]
    params: Option<String>,

    /// Read the parameters from a file
    #[arg(long, value_name = "FILE", conflicts_with = "params")]
    params_file: Option<PathBuf>,

    /// How the fields are laid out before they are hashed
    #[arg(long, value_enum, default_value_t)]
    form: FormArg,

    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Clone, Copy, Default, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum FormArg {
    /// Joined with colons, as other languages do it in one line
    #[default]
    Plain,
    /// Each field after its length: no two operations are laid out alike
    LengthPrefixed,
}

impl From<FormArg> for Form {
    fn from(form: FormArg) -> Self {
        match form {
            FormArg::Plain => Self::Plain,
            FormArg::LengthPrefixed => Self::LengthPrefixed,
        }
    }
}

#[derive(Serialize)]
struct Derived<'a> {
    key: &'a str,
    strategy: &'static str,
    form: FormArg,
}

pub(crate) fn run(args: &DeriveArgs) -> Result<(), Failure> {
    let mut derivation = Derivation::new(&args.entity, &args.action)?.with_form(args.form.into());
    if let Some(params) = params_text(args)? {
        derivation = derivation.with_params(&params)?;
    }
    let key = derivation.key();
    let derived = Derived { key: key.as_str(), strategy: "deterministic", form: args.form };
    output::write_answer(&args.output, key.as_str(), &derived, &derivation.hazards())
}

fn params_text(args: &DeriveArgs) -> Result<Option<String>, Failure> {
    match (&args.params, &args.params_file) {
        (Some(dash), _) if dash == "-" => input::text(input::read_stdin()?, "standard input").map(Some),
        (Some(text), _) => Ok(Some(text.clone())),
        (None, Some(path)) => input::text(input::read_file(path)?, &path.display().to_string()).map(Some),
        (None, None) => Ok(None),
    }
}
