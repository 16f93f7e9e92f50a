//! Random bytes for owners, fetched from the operating system for many at a time: one call for each claim would cost as
//! much as the claim.

use std::cell::RefCell;

use crate::error::RandomError;

/// What one owner takes.
const BYTES: usize = 16;
/// For how many owners is fetched at once.
const OWNERS: usize = 32;

/// Bytes that nobody has had yet, at the end of `bytes`.
struct Stock {
    bytes: [u8; BYTES * OWNERS],
    left: usize,
}

thread_local! {
    static STOCK: RefCell<Stock> = const { RefCell::new(Stock { bytes: [0; BYTES * OWNERS], left: 0 }) };
}

/// Bytes for one owner. They are not kept here.
pub(super) fn take() -> Result<[u8; BYTES], RandomError> {
    STOCK.with_borrow_mut(|stock| {
        if stock.left == 0 {
            getrandom::fill(&mut stock.bytes).map_err(RandomError::new)?;
            stock.left = OWNERS;
        }
        stock.left -= 1;
        let mut taken = [0; BYTES];
        stock.bytes[stock.left * BYTES..][..BYTES].swap_with_slice(&mut taken);
        Ok(taken)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::thread;

    use super::*;

    #[test]
    fn nobody_gets_what_another_has_had() {
        let mut seen = HashSet::new();
        let threads: Vec<_> = (0..4)
            .map(|_| thread::spawn(|| (0..5 * OWNERS).map(|_| take().unwrap()).collect::<Vec<_>>()))
            .collect();
        for taken in threads.into_iter().flat_map(|thread| thread.join().unwrap()) {
            assert!(seen.insert(taken), "taken twice");
        }
        assert_eq!(seen.len(), 20 * OWNERS);
        assert!(!seen.contains(&[0; BYTES]), "never filled");
    }

    #[test]
    fn what_was_taken_is_not_kept() {
        let taken = take().unwrap();
        let is_kept = STOCK.with_borrow(|stock| stock.bytes.chunks(BYTES).any(|kept| kept == taken));
        assert!(!is_kept);
    }
}
