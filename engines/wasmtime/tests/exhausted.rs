//! What becomes of sandboxes for which the host has nothing left. A process of its own, since it bounds what the process may have.

use contract::{
    Step,
    conformance::guest::{self, Running, grant},
};
use millpond_engine_wasmtime::{Options, Wasmtime};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs;

/// Bytes of writable memory that this process may have, of its own.
fn bound(bytes: Option<u64>) {
    let maximum = getrlimit(Resource::Data).maximum;
    let current = bytes.or(maximum);
    setrlimit(Resource::Data, Rlimit { current, maximum }).expect("a limit may be lowered, and raised again");
}

fn writable() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("the process's own");
    let line = status.lines().find_map(|line| line.strip_prefix("VmData:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    number.expect("its writable memory") << 10
}

/// One instance that the kernel has no memory for is made when it has; while it waits, there is no place for more.
#[test]
fn a_sandbox_that_the_host_refuses_waits_for_it() {
    let engine = Wasmtime::new(&Options {
        sandboxes: 8,
        ..Options::default()
    })
    .expect("the pool can be reserved");
    let large = guest::image(
        &engine,
        &guest::wasm(
            r#"(module
                (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
                (memory (export "memory") 4096)
                (data (i32.const 0) "\08\00\00\00\04\00\00\00made")
                (func (export "_start")
                    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 16)))))"#,
        ),
    );
    let component = fs::read(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../build/guests/http-component.wasm"
    ));
    let component = guest::image(&engine, &component.expect("`make guests` builds it"));
    for (image, slack) in [(large, 64 << 20), (component, 256 << 10)] {
        let mut limits = grant();
        limits.limits.memory = contract::ByteSize::mib(512);
        bound(Some(writable() + slack));
        let mut waiting = Running::spawn(&image, &limits, b"echo");
        let step = waiting.step();
        let busy = image
            .spawn(&std::sync::Arc::new(limits.clone()), guest::input(b"").0)
            .is_err();
        bound(None);
        assert!(matches!(step, Step::Waiting { until: Some(_) }), "{step:?}");
        assert!(busy, "there is a place for another");
        assert!(waiting.finish().is_ok());
        assert!(["made", "echo"].contains(&&*waiting.said().text()));
    }
}
