//! Native guests on this engine. This program is the spawner, too, so it has a `main` of its own.

use contract::{
    ByteSize, Fault, Grant, Image, Protocol,
    conformance::guest::{Running, compile, grant, load},
};
use millpond_engine_process::{Options, Process, answer};
use std::{
    env,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    process::{Command, ExitCode},
    sync::Arc,
    time::Duration,
};

/// The guests and the engine.
struct World {
    engine: Process,
    folder: tempfile::TempDir,
}

const FREESTANDING: &[&str] = &[
    "-static",
    "-no-pie",
    "-nostdlib",
    "-ffreestanding",
    "-fno-stack-protector",
    "-Wl,-z,separate-code",
];

impl World {
    fn executable(&self, source: &str, options: &[&str]) -> Vec<u8> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guests").join(source);
        let output = self.folder.path().join("guest");
        let done = Command::new("cc")
            .args(["-O1", "-o"])
            .arg(&output)
            .arg(source)
            .args(options)
            .status()
            .expect("there is a C compiler");
        assert!(done.success());
        std::fs::read(output).expect("it has made something")
    }

    fn image(&self, source: &str, options: &[&str]) -> Arc<dyn Image> {
        let artefact = compile(&self.engine, &self.executable(source, options))
            .unwrap_or_else(|error| panic!("{source} is not taken: {error}"));
        load(&self.engine, &artefact).unwrap_or_else(|error| panic!("{source} does not load: {error}"))
    }

    fn pure(&self) -> Arc<dyn Image> {
        self.image("pure.c", FREESTANDING)
    }
}

fn pure_grant() -> Grant {
    Grant {
        protocol: Protocol::Pure {
            inputs: vec!["in".into(), "none".into()],
            outputs: vec!["out".into()],
            content_type: "text/plain".into(),
        },
        ..grant()
    }
}

fn run(image: &Arc<dyn Image>, grant: &Grant, body: &str) -> (Result<(), Fault>, String, String) {
    let mut running = Running::spawn(image, grant, body.as_bytes());
    let ended = running.finish().map(drop).map_err(|(fault, _)| fault);
    let log = String::from_utf8_lossy(&running.said().record().log).into_owned();
    (ended, running.said().text(), log)
}

fn a_program_is_a_command(world: &World) {
    for options in [&[][..], &["-static"]] {
        let image = world.image("program.c", options);
        let grant = Grant {
            arguments: vec!["more".into(), "words".into()],
            environment: vec![("SETTING".into(), "value".into())],
            ..grant()
        };
        for _ in 0..3 {
            let (ended, said, log) = run(&image, &grant, "the body");
            assert_eq!(ended, Ok(()), "{log}");
            assert_eq!(said, "POST query=1 value\n[more][words]the body");
            assert_eq!(log, "a line of log\n");
        }
    }
}

fn wish(world: &World, word: &str) -> (Result<(), Fault>, String, String) {
    let image = world.image("program.c", &[]);
    let grant = Grant {
        arguments: vec![word.into()],
        ..with(|limits| {
            limits.memory = ByteSize::mib(64);
            limits.cpu_time = Duration::from_millis(50);
        })
    };
    run(&image, &grant, "")
}

fn with(change: impl FnOnce(&mut contract::Limits)) -> Grant {
    let mut grant = grant();
    change(&mut grant.limits);
    grant
}

fn programs_fail_as_commands_do(world: &World) {
    assert_eq!(wish(world, "exit").0, Err(Fault::Exit { code: 3 }));
    let trap = |word: &str, reason: &str| match wish(world, word).0 {
        Err(Fault::Trap { reason: found }) => assert!(found.contains(reason), "{word}: {found}"),
        other => panic!("{word}: {other:?}"),
    };
    trap("abort", "or aborted");
    trap("null", "memory that it does not have");
    let limit = Duration::from_millis(50);
    assert_eq!(wish(world, "spin").0, Err(Fault::CpuTime { limit }));
    assert!(matches!(wish(world, "flood").0, Err(Fault::OutputTooLarge { .. })));
}

fn programs_are_kept_in_their_limits(world: &World) {
    assert_eq!(wish(world, "allocate").1, "refused\n");
    assert_eq!(wish(world, "children").1, "some\n");
    for _ in 0..2 {
        let (_, said, log) = wish(world, "scratch");
        assert_eq!(said, "fresh\n", "{log}");
    }
}

fn a_pure_function_gives_sets_for_sets(world: &World) {
    let image = world.pure();
    assert!(image.is_pure());
    for _ in 0..3 {
        let (ended, said, log) = run(&image, &pure_grant(), "some words");
        assert_eq!((ended, &*said, &*log), (Ok(()), "SOME WORDS", ""));
    }
    let large = "x".repeat(1 << 20);
    let (ended, said, _) = run(&image, &pure_grant(), &large);
    assert_eq!(ended, Ok(()));
    assert!(said == large.to_uppercase());
    let (ended, _, _) = run(&image, &pure_grant(), &"x".repeat(5 << 20));
    assert!(matches!(ended, Err(Fault::BadInput { .. })), "{ended:?}");
}

fn pure_functions_fail_as_others_do(world: &World) {
    let image = world.pure();
    let mut grant = pure_grant();
    grant.limits.cpu_time = Duration::from_millis(50);
    let limit = grant.limits.cpu_time;
    let fault = |wish: &str| run(&image, &grant, wish).0.expect_err(wish);
    assert_eq!(fault("spin"), Fault::CpuTime { limit });
    assert_eq!(fault("overflow"), Fault::StackOverflow);
    assert_eq!(fault("exit"), Fault::Exit { code: 7 });
    assert_eq!(fault("silent"), Fault::Exit { code: 256 });
    for (wish, reason) in [
        ("null", "memory that it does not have"),
        ("beyond", "memory that it does not have"),
        ("code", "memory that it does not have"),
        ("time", "memory that it does not have"),
        ("call", "a system call"),
        ("trap", "invalid instruction"),
    ] {
        match fault(wish) {
            Fault::Trap { reason: found } => assert!(found.contains(reason), "{wish}: {found}"),
            other => panic!("{wish}: {other:?}"),
        }
    }
    assert!(matches!(fault("pointer"), Fault::BadOutput { .. }));
}

fn speed(world: &World) {
    let image = world.pure();
    let prog = world.image("program.c", &["-static"]);
    let mut g = pure_grant();
    let mut p = grant();
    g.limits.memory = ByteSize::mib(64);
    for (image, g) in [(&image, &g), (&prog, &p)] {
        let mut times = vec![];
        for _ in 0..1000 {
            let t = std::time::Instant::now();
            let mut running = Running::spawn(image, g, b"hello");
            running.finish().unwrap();
            times.push(t.elapsed().as_nanos() as f64 / 1e3);
        }
        times.sort_by(f64::total_cmp);
        println!("p10 {:.0} p50 {:.0} p99 {:.0}", times[100], times[500], times[990]);
    }
}

const TESTS: &[(&str, fn(&World))] = &[
    ("speed", speed),
    ("a_program_is_a_command", a_program_is_a_command),
    ("programs_fail_as_commands_do", programs_fail_as_commands_do),
    ("programs_are_kept_in_their_limits", programs_are_kept_in_their_limits),
    ("a_pure_function_gives_sets_for_sets", a_pure_function_gives_sets_for_sets),
    ("pure_functions_fail_as_others_do", pure_functions_fail_as_others_do),
];

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args_os().skip(1).collect();
    if let Some(code) = answer(&arguments) {
        return code;
    }
    let wanted = arguments.first().and_then(|word| word.to_str()).filter(|word| !word.starts_with('-'));
    let world = World {
        engine: Process::new(&Options::default()).expect("this host has what it takes"),
        folder: tempfile::tempdir().expect("a folder can be made"),
    };
    let mut failed = 0;
    for (name, test) in TESTS.iter().filter(|(name, _)| wanted.is_none_or(|word| name.contains(word))) {
        let passed = catch_unwind(AssertUnwindSafe(|| test(&world))).is_ok();
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
        failed += u32::from(!passed);
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
