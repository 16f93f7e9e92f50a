//! Series that requests are counted in, at hand: to look one up by its labels in the recorder costs more than counting.

use std::sync::{PoisonError, RwLock};

/// Series of one name, by their two labels. There are few of each: labels come from fixed sets and from routes.
#[derive(Debug)]
pub(super) struct Series<S>(RwLock<Vec<Labelled<S>>>);

#[derive(Debug)]
struct Labelled<S> {
    labels: [Box<str>; 2],
    series: S,
}

impl<S> Series<S> {
    pub(super) const fn new() -> Self {
        Self(RwLock::new(Vec::new()))
    }

    /// Puts something into the series of `labels`, which is looked up with `find` the first time.
    pub(super) fn put(&self, labels: [&str; 2], find: impl FnOnce() -> S, put: impl FnOnce(&S)) {
        let is_it = |known: &&Labelled<S>| *known.labels[0] == *labels[0] && *known.labels[1] == *labels[1];
        if let Some(known) = self.0.read().unwrap_or_else(PoisonError::into_inner).iter().find(is_it) {
            return put(&known.series);
        }
        let series = find();
        put(&series);
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have been here: the recorder gives both the same series.
        if !all.iter().any(|known| is_it(&known)) {
            all.push(Labelled { labels: labels.map(Into::into), series });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_series_is_looked_up_once_and_told_from_others_by_both_labels() {
        let (series, looked_up) = (Series::new(), Cell::new(0));
        let put = |labels| {
            let find = || Cell::new(looked_up.replace(looked_up.get() + 1));
            let mut found = 0;
            series.put(labels, find, |number: &Cell<i32>| found = number.get());
            found
        };
        assert_eq!(put(["a", "b"]), 0);
        assert_eq!(put(["a", "c"]), 1);
        assert_eq!(put(["b", "b"]), 2);
        assert_eq!(put(["ab", ""]), 3);
        assert_eq!((put(["a", "b"]), put(["b", "b"]), put(["ab", ""])), (0, 2, 3));
        assert_eq!(looked_up.get(), 4);
    }
}
