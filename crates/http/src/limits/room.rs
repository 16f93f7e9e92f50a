//! How much of all request bodies together is held in memory: a bound on the process, beside the one on each request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The bytes that may be held, and those that are.
#[derive(Debug)]
pub(crate) struct Room {
    bytes_max: u64,
    held: AtomicU64,
}

impl Room {
    pub(crate) fn new(bytes_max: u64) -> Arc<Self> {
        Arc::new(Self { bytes_max, held: AtomicU64::new(0) })
    }

    /// A place in it for one body, of no bytes so far.
    pub(crate) fn place(self: &Arc<Self>) -> Held {
        Held { room: Arc::clone(self), bytes: 0 }
    }

    #[cfg(test)]
    pub(crate) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }
}

/// What one body takes up. Dropping it makes room again.
#[derive(Debug)]
pub(crate) struct Held {
    room: Arc<Room>,
    bytes: u64,
}

impl Held {
    /// Takes `bytes` more, if there is room.
    pub(crate) fn take(&mut self, bytes: u64) -> bool {
        let before = self.room.held.fetch_add(bytes, Ordering::Relaxed);
        // Counted in either case: what was given up is given back with the rest.
        self.bytes += bytes;
        before.saturating_add(bytes) <= self.room.bytes_max
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.room.held.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_up_to_the_bound_and_again_once_a_body_is_gone() {
        let room = Room::new(10);
        let (mut one, mut two) = (room.place(), room.place());
        assert!(one.take(4) && two.take(6), "exactly as much as there is");
        assert!(!two.take(1));
        assert_eq!(room.held(), 11);
        drop(two);
        assert_eq!(room.held(), 4);
        assert!(one.take(6));
        drop(one);
        assert_eq!(room.held(), 0);
    }
}
