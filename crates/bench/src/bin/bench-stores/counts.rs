//! What the servers counted themselves: the commands of Redis, the statements of `PostgreSQL`.
//!
//! A round trip is counted by item: commands that travel together in one call count as many as they are. Redis is asked
//! one command for each. A statement of `PostgreSQL` answers one row for each item that it carries, so it counts once for
//! every row, and once when it answers none; how many calls that were is told beside it.

use std::collections::BTreeMap;

use onlyonce_bench::figures::as_float;

use crate::Result;

/// What was asked of the servers until now, or between two moments.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Counts {
    /// Of Redis, by command.
    pub(crate) commands: BTreeMap<String, u64>,
    /// Of `PostgreSQL`.
    pub(crate) calls: u64,
    pub(crate) items: u64,
}

impl Counts {
    /// Takes in what Redis says to `INFO commandstats`.
    pub(crate) fn read_redis(&mut self, info: &str) {
        for line in info.lines() {
            let Some((name, figures)) =
                line.trim().strip_prefix("cmdstat_").and_then(|line| line.split_once(':'))
            else {
                continue;
            };
            let calls = figures.split(',').find_map(|figure| figure.strip_prefix("calls="));
            if let Some(Ok(calls)) = calls.map(str::parse) {
                self.commands.insert(name.to_owned(), calls);
            }
        }
    }

    /// Takes in what `PostgreSQL` says: calls and items, with a bar between.
    pub(crate) fn read_postgres(&mut self, line: &str) -> Result<()> {
        let numbers = line.trim().split_once('|').map(|(calls, items)| (calls.parse(), items.parse()));
        let Some((Ok(calls), Ok(items))) = numbers else {
            return Err(format!("PostgreSQL does not say what it was asked: {line}").into());
        };
        (self.calls, self.items) = (calls, items);
        Ok(())
    }

    /// What was asked since `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let more = |(name, calls): (&String, &u64)| {
            let earlier = before.commands.get(name).copied().unwrap_or_default();
            (name.clone(), calls.saturating_sub(earlier))
        };
        Self {
            commands: self.commands.iter().map(more).filter(|(_, calls)| *calls > 0).collect(),
            calls: self.calls.saturating_sub(before.calls),
            items: self.items.saturating_sub(before.items),
        }
    }

    /// How many of the commands are among `names`.
    pub(crate) fn of(&self, names: &[&str]) -> u64 {
        names.iter().filter_map(|name| self.commands.get(*name)).sum()
    }

    /// Every command that is not rare, for each of `keys`; those that are not among `asked` in brackets.
    pub(crate) fn shown(&self, asked: &[&str], keys: u64) -> String {
        let each = |calls: u64| as_float(calls) / as_float(keys.max(1));
        let mut shown: Vec<_> = self
            .commands
            .iter()
            .filter(|(_, calls)| each(**calls) >= 0.005)
            .map(|(name, calls)| {
                let is_asked = asked.contains(&name.as_str());
                let text = format!("{name} {:.2}", each(*calls));
                if is_asked { text } else { format!("({text})") }
            })
            .collect();
        if self.calls > 0 {
            shown.push(format!("{:.2} calls with {:.2} items", each(self.calls), each(self.items)));
        }
        if shown.is_empty() { "nothing".to_owned() } else { shown.join(" · ").replace('|', "\\|") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(info: &str, line: &str) -> Counts {
        let mut counts = Counts::default();
        counts.read_redis(info);
        counts.read_postgres(line).unwrap();
        counts
    }

    #[test]
    fn what_was_asked_meanwhile_is_told_from_what_was_asked_before() {
        let before = counts("# Commandstats\r\ncmdstat_get:calls=5,usec=9\r\n", "10|20");
        let after = counts(
            "cmdstat_get:calls=205,usec=99\r\ncmdstat_evalsha:calls=200,usec=1\r\ncmdstat_config|get:calls=1\r\n",
            "60|220",
        );
        let asked = after.since(&before);
        assert_eq!((asked.calls, asked.items), (50, 200));
        assert_eq!(
            (asked.of(&["evalsha"]), asked.of(&["get", "evalsha"]), asked.of(&["set"])),
            (200, 400, 0)
        );
        assert_eq!(
            asked.shown(&["evalsha"], 100),
            "(config\\|get 0.01) · evalsha 2.00 · (get 2.00) · 0.50 calls with 2.00 items"
        );
        assert_eq!(Counts::default().shown(&[], 0), "nothing");
    }

    #[test]
    fn an_answer_that_is_none_is_an_error() {
        for bad in ["", "7", "a|b", "1|2|3"] {
            assert!(Counts::default().read_postgres(bad).is_err(), "{bad:?}");
        }
    }
}
