//! Guests that try to leave their sandbox, whatever keeps memory bounded. (`none` keeps nothing, and is not asked.)

use millpond_engine_aot::{Aot, Bounds, Options, Toolchain};
use native::{
    Outside,
    escape::{Subject, run_all},
};

fn contained(bounds: Bounds, outside: Outside) {
    let options = Options {
        bounds,
        ..Options::default()
    };
    match Toolchain::find() {
        Ok(toolchain) => run_all(Subject {
            engine: &Aot::new(toolchain, &options).expect("handlers can be installed"),
            outside,
            vectors: true,
        }),
        Err(reason) => println!("skipped: {reason}"),
    }
}

#[test]
fn guard_pages_contain_every_guest() {
    contained(Bounds::Guard, Outside::Faults);
}

#[test]
fn checks_contain_every_guest() {
    contained(Bounds::Software, Outside::Faults);
}

#[test]
fn with_masks_what_is_outside_is_inside() {
    contained(Bounds::Mask, Outside::Inside);
}
