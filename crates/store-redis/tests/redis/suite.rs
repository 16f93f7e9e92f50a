//! The store suite and the model test, on a server that is killed for every restart.

use onlyonce_testkit::{run, suite};

use crate::stage::{Alone, Damage};

onlyonce_testkit::store_suite!(Alone::new(Damage::Head));

#[test]
fn c16_every_kind_of_damage_is_an_error() {
    run(async {
        for damage in [Damage::Version, Damage::Body] {
            suite::c16_damage_is_an_error_and_never_absence(&Alone::new(damage).await).await;
        }
    });
}
