//! When a wait is over. The one place of this crate that reads the machine's clock.

use std::time::Duration;

use tokio::time::Instant;

/// The instant that is `duration` away.
pub(crate) fn after(duration: Duration) -> Instant {
    let now = Instant::now();
    // A duration too long to count is for ever; ten years are, for a connection.
    now.checked_add(duration).unwrap_or(now + Duration::from_hours(10 * 366 * 24))
}
