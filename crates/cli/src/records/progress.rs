//! A progress bar on a terminal, nothing elsewhere.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar that counts up to `total` of `what`.
pub(crate) fn bar(total: u64, what: &'static str) -> ProgressBar {
    let bar = ProgressBar::new(total);
    if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {human_pos}/{human_len} {eta}") {
        bar.set_style(style);
    }
    bar.with_message(what)
}
