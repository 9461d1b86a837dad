//! The contract of engines, kept by this one.

use contract::Engine as _;
use contract::conformance::guest::{self, Running, grant};
use millpond_engine_wasmtime::{Layout, OnDemand, Options, Wasmtime};

fn engine(options: Options) -> Wasmtime {
    Wasmtime::new(&options).expect("the pool can be reserved")
}

#[test]
fn an_engine_keeps_its_contract() {
    contract::conformance::engine::run_all(&engine(Options::default()));
}

/// Whose memories have little room, and whose accesses are checked.
#[test]
fn an_engine_of_dense_sandboxes_keeps_it_too() {
    let options = Options {
        layout: Layout::Dense,
        ..Options::default()
    };
    let on_demand = OnDemand::new(options.clone()).expect("such an engine can be made");
    let dense = engine(options);
    assert_eq!(
        (on_demand.name(), on_demand.fingerprint()),
        (dense.name(), dense.fingerprint())
    );
    assert_ne!(
        dense.fingerprint(),
        engine(Options::default()).fingerprint(),
        "code of one is not the other's"
    );
    contract::conformance::engine::run_all(&on_demand);
}

/// Where nothing may stay resident, no instance is put back to its first state: each is a new one.
#[test]
fn an_engine_that_makes_each_instance_anew_keeps_it_too() {
    contract::conformance::engine::run_all(&engine(Options {
        keep_resident: 0,
        ..Options::default()
    }));
}

/// Instances wait for their image's next request in slots of the pool: they must leave with their image, and more images
/// than there are slots must not find the pool exhausted.
#[test]
fn images_come_and_go() {
    let engine = engine(Options {
        sandboxes: 1,
        ..Options::default()
    });
    let module = |n: u32| {
        guest::wasm(&format!(
            r#"(module
                (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
                (memory (export "memory") 1)
                (data (i32.const 0) "\08\00\00\00\04\00\00\00{n:04}")
                (func (export "_start")
                    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 16)))
                    (i32.store8 (i32.const 8) (i32.const 88))))"#
        ))
    };
    let mut kept = Vec::new();
    for n in 0..2000 {
        let image = guest::image(&engine, &module(n % 40));
        for _ in 0..2 {
            let mut running = Running::spawn(&image, &grant(), b"");
            running.finish().expect("it answers");
            assert_eq!(running.said().text(), format!("{:04}", n % 40));
        }
        if n < 1000 {
            kept.push(image);
            if n % 3 == 0 {
                kept.remove(0);
            }
        } else {
            kept.pop();
        }
    }
}
