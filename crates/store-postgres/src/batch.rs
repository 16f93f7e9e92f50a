//! Commands that travel together: one call with arrays, in the order of their ids, and one answer for each.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::StoreError;
use onlyonce_core::record::codec::CodecError;
use onlyonce_core::transition::{Answer, ClaimAnswer, Command};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::arrays::{ClaimArrays, CompleteArrays, argument, release_arguments, renew_arguments};
use crate::connect::Argument;
use crate::row;

/// The functions that a batch may call, in the order in which one call runs them: what frees a key comes before what
/// asks for it.
const FUNCTIONS: [&str; 4] = ["complete", "release", "renew", "claim"];
/// How their answers name them.
const KINDS: [i64; 4] = [2, 4, 3, 1];

/// How a call treats a row that another transaction holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    millis: i32,
    /// Whether the other commands are done all the same.
    careful: bool,
}

impl Patience {
    /// For commands that travel together: other calls of ours hold rows for no longer than a commit takes.
    pub(crate) const SHORT: Self = Self { millis: 50, careful: false };
    /// For the same when that was not enough: what is held is left out.
    pub(crate) const CAREFUL: Self = Self { millis: 5, careful: true };
    /// For whoever has nothing better to do than to wait.
    pub(crate) const LONG: Self = Self { millis: 1000, careful: false };

    pub(crate) fn of(patience: Duration) -> Self {
        Self { millis: i32::try_from(patience.as_millis()).unwrap_or(i32::MAX), careful: false }
    }

    pub(crate) const fn millis(self) -> i32 {
        self.millis
    }
}

/// What was read of an answer; no answer when another transaction holds the record.
pub(crate) type Read = Result<Option<Answer>, CodecError>;

/// One call: what is asked, and with what.
pub(crate) struct Call {
    /// Which of [`FUNCTIONS`] it calls, as bits; its text is made from these alone.
    pub(crate) functions: u8,
    pub(crate) arguments: Vec<Argument>,
    /// For each function, where its commands are among those of the batch, in the order in which they are sent.
    places: [Vec<usize>; 4],
}

impl Call {
    /// The call for `commands`. `at` is the time in place of the server's, in tests.
    ///
    /// ORDER: within each function by id, so that two calls never wait for each other in a circle.
    pub(crate) fn new(commands: &[Command], patience: Patience, at: Option<i64>) -> Self {
        let mut call = Self { functions: 0, arguments: Vec::new(), places: Default::default() };
        for (at, command) in commands.iter().enumerate() {
            if let Some(function) = function_of(command) {
                call.places[function].push(at);
            }
        }
        for (function, places) in call.places.iter_mut().enumerate().filter(|(_, places)| !places.is_empty())
        {
            // Stable: several claims of one record stay in the order in which they came.
            places.sort_by_key(|at| commands[*at].id());
            call.functions |= 1 << function;
            call.arguments.extend(arguments(function, places.iter().map(|at| &commands[*at])));
            call.arguments.push(argument(patience.millis, Type::INT4));
            call.arguments.push(argument(patience.careful, Type::BOOL));
            call.arguments.extend(at.map(|at| argument(at, Type::INT8)));
        }
        call
    }

    /// The answers of a call in the order of its commands. What a row holds about one record cannot spoil the answers
    /// about others.
    pub(crate) fn answers(&self, rows: &[Row]) -> Result<Vec<Option<Read>>, CodecError> {
        let count = self.places.iter().map(Vec::len).sum();
        let mut answers: Vec<_> = (0..count).map(|_| None).collect();
        for row in rows {
            let (kind, item) = row::place_of(row)?;
            let function = KINDS.iter().position(|known| *known == kind);
            let at = function.and_then(|function| self.places[function].get(item));
            let place = at.and_then(|at| answers.get_mut(*at)).ok_or(row::STRANGE)?;
            *place = Some(row::answer(row));
        }
        Ok(answers)
    }
}

/// Which of [`FUNCTIONS`] a command calls.
const fn function_of(command: &Command) -> Option<usize> {
    match command {
        Command::Complete(_) => Some(0),
        Command::Release(_) => Some(1),
        Command::Renew(_) => Some(2),
        Command::Claim(_) => Some(3),
        // INVARIANT: the store sends no other command in a batch; it would get no answer, which is an error.
        _ => None,
    }
}

/// The arrays of `commands`, which all call the same function.
fn arguments<'c>(function: usize, commands: impl Iterator<Item = &'c Command>) -> Vec<Argument> {
    macro_rules! only {
        ($kind:ident) => {
            commands
                .filter_map(
                    |command| if let Command::$kind(command) = command { Some(command) } else { None },
                )
                .collect::<Vec<_>>()
        };
    }
    match function {
        0 => CompleteArrays::of(&only!(Complete)).into_arguments(),
        1 => release_arguments(&only!(Release)),
        2 => renew_arguments(&only!(Renew)),
        _ => ClaimArrays::of(&only!(Claim)).into_arguments(),
    }
}

/// The text of a call of `functions` in `schema`, with `at` or without.
pub(crate) fn text(schema: &str, functions: u8, has_at: bool) -> Arc<str> {
    const COUNTS: [usize; 4] = [11, 6, 6, 19];
    let mut text = String::new();
    let mut next = 1;
    for (function, name) in
        FUNCTIONS.iter().enumerate().filter(|(function, _)| functions & 1 << function != 0)
    {
        let union = if text.is_empty() { "" } else { " UNION ALL " };
        let _ = write!(text, "{union}SELECT * FROM {schema}.{name}(");
        let count = COUNTS[function] + usize::from(has_at);
        for at in 0..count {
            let _ = write!(text, "{}${}", if at == 0 { "" } else { ", " }, next + at);
        }
        next += count;
        text.push(')');
    }
    text.into()
}

/// What `command` is told; `None` when another transaction holds its record.
pub(crate) fn told(
    command: &Command,
    read: Option<Read>,
    doing: &'static str,
) -> Option<Result<Answer, StoreError>> {
    let read = read.unwrap_or(Err(CodecError::Damaged("no answer")));
    let mut answer = match read.transpose()? {
        Ok(answer) => answer,
        Err(error) => return Some(Err(StoreError::undecodable(error, doing))),
    };
    if let (Command::Claim(claim), Answer::Claim(ClaimAnswer::Mismatch { rules })) = (command, &mut answer) {
        // The rules are named only when they are not those of the claim.
        rules.take_if(|rules| rules == claim.fingerprint.rules());
    }
    Some(Ok(answer))
}
