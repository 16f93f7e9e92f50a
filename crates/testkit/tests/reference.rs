//! The reference store keeps the contract: over real bytes, with a crash and with damage.

use onlyonce_testkit::reference::{Defect, Reference};

fn fixture() -> Reference {
    Reference::new(Defect::NONE)
}

onlyonce_testkit::store_suite!(std::future::ready(fixture()));
