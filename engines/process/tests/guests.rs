//! Native guests on this engine. This program is the spawner, too, so it has a `main` of its own.

use bytes::Bytes;
use confine::Controller;
use contract::{
    ByteSize, Demanded, Fault, Grant, Image, Protocol, ResponseHead, ResponseSink, SpawnError,
    conformance::{
        engine::{Guests, Subject, run_native},
        guest::{Recorder, Running, compile, grant, input, load},
    },
};
use millpond_engine_process::{Options, Process, answer, supported};
use std::{
    collections::BTreeSet,
    env,
    fs::Permissions,
    io::{BufRead as _, BufReader, Write as _},
    os::{
        fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
        unix::{fs::PermissionsExt as _, process::CommandExt as _},
    },
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    process::{self, Command, ExitCode, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
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
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/guests")
            .join(source);
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

/// Also where there are no control groups.
fn anywhere() -> Options {
    Options {
        allow_uncounted: true,
        ..Options::default()
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
            if word == "spin" || word == "child_spins" {
                limits.cpu_time = Duration::from_millis(50);
            }
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
    trap("abort", "it aborted");
    trap("abort_after", "it aborted");
    trap("abort_on_a_thread", "aborted");
    trap("divide", "divided by zero");
    trap("breakpoint", "breakpoint");
    for word in ["overflow", "overflow_told", "overflow_by_arrays"] {
        assert_eq!(wish(world, word).0, Err(Fault::StackOverflow), "{word}");
    }
    for handled in ["handlers", "storm", "signals"] {
        let (ended, said, log) = wish(world, handled);
        assert_eq!((ended, &*said), (Ok(()), "went on\n"), "{handled}: {log}");
    }
    trap("null", "memory that it does not have");
    let limit = Duration::from_millis(50);
    assert_eq!(wish(world, "spin").0, Err(Fault::CpuTime { limit }));
    assert!(matches!(
        wish(world, "flood").0,
        Err(Fault::OutputTooLarge { .. })
    ));
}

/// For all processes and threads of a request together.
fn processors_are_limited(world: &World, groups: &confine::Groups) {
    if groups.counts(Controller::Time) {
        let limit = Duration::from_millis(50);
        assert_eq!(wish(world, "child_spins").0, Err(Fault::CpuTime { limit }));
    } else {
        println!("skipped: time on processors is not counted for groups here");
    }
    if groups.counts(Controller::Cores) {
        let (ended, said, log) = wish(world, "cores");
        assert_eq!(ended, Ok(()), "{log}");
        // Half a second is five periods, of which the last may have begun only.
        let tenths: u32 = said.trim().parse().unwrap();
        assert!(
            tenths <= 13,
            "it had {tenths} tenths of a core at a time, and one was granted"
        );
    } else {
        println!("skipped: cores are not counted for groups here");
    }
}

fn programs_are_kept_in_their_limits(world: &World) {
    let (ended, said, _) = wish(world, "allocate");
    let limit = ByteSize::mib(64);
    match confine::Groups::make() {
        Ok(groups) => {
            // Of the other's processes each keeps within what one may have.
            for (ended, _, log) in [(ended, said, String::new()), wish(world, "share")] {
                let out_of_memory =
                    matches!(ended, Err(Fault::OutOfMemory { limit: found, .. }) if found == limit);
                assert!(out_of_memory, "{ended:?} {log}");
            }
            processors_are_limited(world, &groups);
        }
        Err(reason) => {
            println!("skipped: processes of a guest are limited each by itself here: {reason}");
            assert_eq!((ended, &*said), (Ok(()), "refused\n"));
        }
    }
    // Nothing of that is held against the next.
    assert_eq!(wish(world, "exit").0, Err(Fault::Exit { code: 3 }));
    assert_eq!(wish(world, "children").1, "some\n");
    for _ in 0..2 {
        let (_, said, log) = wish(world, "scratch");
        assert_eq!(said, "fresh\n", "{log}");
    }
}

fn a_pure_function_gives_sets_for_sets(world: &World) {
    let image = world.pure();
    assert_eq!(image.pure(), Ok(()));
    for _ in 0..3 {
        let (ended, said, log) = run(&image, &pure_grant(), "some words");
        assert_eq!((ended, &*said, &*log), (Ok(()), "SOME WORDS", ""));
    }
    let (ended, said, _) = run(&image, &pure_grant(), "constant");
    assert_eq!((ended, &*said), (Ok(()), "what nobody can write to"));
    let large = "x".repeat(1 << 20);
    let (ended, said, _) = run(&image, &pure_grant(), &large);
    assert_eq!(ended, Ok(()));
    assert!(said == large.to_uppercase());
    let (ended, _, _) = run(&image, &pure_grant(), &"x".repeat(5 << 20));
    assert!(matches!(ended, Err(Fault::OutOfMemory { .. })), "{ended:?}");
}

/// Keeps the pieces of a response as they come.
struct Keeping(Recorder, Arc<Mutex<Vec<Bytes>>>);

impl ResponseSink for Keeping {
    fn head(&mut self, head: ResponseHead) {
        self.0.head(head);
    }
    fn body(&mut self, chunk: Bytes) {
        self.1.lock().unwrap().push(chunk.clone());
        self.0.body(chunk);
    }
    fn log(&mut self, bytes: &[u8]) {
        self.0.log(bytes);
    }
}

/// What this process has mapped where these bytes lie, by its name.
fn mapped(bytes: &Bytes) -> String {
    let address = bytes.as_ptr() as usize;
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let name = |line: &str| {
        let mut words = line.split_whitespace();
        let (from, to) = words.next()?.split_once('-')?;
        let [from, to] = [from, to].map(|text| usize::from_str_radix(text, 16).unwrap());
        (from..to)
            .contains(&address)
            .then(|| words.nth(4).unwrap_or_default().to_owned())
    };
    maps.lines().find_map(name).expect("it is mapped")
}

/// Items of this size and more keep the memory of the function that has left them, and what it is given next comes from there.
fn large_outputs_are_handed_on_where_they_lie(world: &World) {
    const REGION: &str = "/memfd:millpond-region";
    const KEPT: usize = 64 << 10;
    let image = world.pure();
    let call = |body: Bytes| {
        let (mut request, recorder) = input(b"");
        let pieces = Arc::<Mutex<Vec<Bytes>>>::default();
        request.body = body.into();
        request.response = Box::new(Keeping(recorder.clone(), pieces.clone()));
        let sandbox = image
            .spawn(&Arc::new(pure_grant()), request)
            .expect("there is room");
        let ended = Running::new(sandbox, recorder).finish();
        assert_eq!(ended.map(drop).map_err(|(fault, _)| fault), Ok(()));
        let pieces = pieces.lock().unwrap();
        assert_eq!(pieces.len(), 1);
        pieces[0].clone()
    };
    let words = Bytes::from("x".repeat(KEPT));
    let large = call(words.clone());
    assert!(large == "X".repeat(KEPT));
    assert_eq!(mapped(&large), REGION);
    let again = call(large.clone());
    assert!(again == large && again.as_ptr() != large.as_ptr());
    assert_eq!(mapped(&again), REGION);
    let small = call(words.slice(1..));
    assert!(small == "X".repeat(KEPT - 1));
    assert_ne!(mapped(&small), REGION);
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
    assert!(matches!(fault("silent"), Fault::BadOutput { .. }));
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

/// Who can go a way where there are no walls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outside {
    NotTried,
    Somebody,
    Anybody,
}

/// A way out, as the program lists it.
struct Way {
    name: String,
    outside: Outside,
    shut_by: Vec<String>,
}

impl Way {
    fn all(listed: &str) -> Vec<Self> {
        let one = |line: &str| {
            let mut words = line.split(' ').map(str::to_owned);
            let (name, outside) = (words.next().unwrap(), words.next().expect(line));
            let outside = match &*outside {
                "not_tried" => Outside::NotTried,
                "somebody" => Outside::Somebody,
                "anybody" => Outside::Anybody,
                other => panic!("{name}: {other}"),
            };
            Self {
                name,
                outside,
                shut_by: words.collect(),
            }
        };
        listed.lines().map(one).collect()
    }

    /// `others`: a process that is none of its, the zygote, and memory of the former.
    fn arguments(&self, [outside, zygote]: [i32; 2], there: &str) -> Vec<String> {
        vec![
            self.name.clone(),
            outside.to_string(),
            zygote.to_string(),
            there.to_owned(),
        ]
    }
}

/// A process that hostile ones may try things on. It ends with this value.
struct Victim {
    process: process::Child,
    there: String,
}

impl Victim {
    fn new(program: &Path) -> Self {
        let mut process = Command::new(program)
            .arg("be_outside")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .expect("the program can be started");
        let mut there = String::new();
        let said = process.stdout.take().expect("it is piped");
        BufReader::new(said).read_line(&mut there).unwrap();
        Self {
            process,
            there: there.trim().to_owned(),
        }
    }

    fn number(&self) -> i32 {
        self.process.id().cast_signed()
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// An error's or a signal's name, or what else became of it. `Err` says what a way out would look like.
fn shut_by(ended: Result<(), Fault>, said: &str) -> Result<String, String> {
    match ended {
        Ok(()) if said.starts_with("refused: ") => Ok(said.trim()["refused: ".len()..].to_owned()),
        Err(Fault::OutOfMemory { .. }) => Ok("OUT_OF_MEMORY".to_owned()),
        Err(Fault::Trap { reason }) => {
            let number = reason.rsplit_once("(signal ").map(|(_, number)| number);
            let signal = match number.and_then(|number| number.trim_end_matches(')').parse().ok()) {
                Some(libc::SIGSYS) => "SIGSYS",
                Some(libc::SIGSEGV) => "SIGSEGV",
                Some(libc::SIGXFSZ) => "SIGXFSZ",
                _ => return Err(reason),
            };
            Ok(signal.to_owned())
        }
        other => Err(format!("{said} {other:?}")),
    }
}

/// Where control groups count less than a manifest demands nothing of it begins, unless the operator allows that. Pure functions need none.
fn what_a_host_does_not_count_does_not_run(world: &World) {
    use Controller::{Cores, Memory, Processes, Time};
    let on = |controllers: &[Controller], allow_uncounted| World {
        engine: Process::new(&Options {
            controllers: controllers.into(),
            allow_uncounted,
            ..Options::default()
        })
        .expect("this host has what it takes"),
        folder: tempfile::tempdir().expect("a folder can be made"),
    };
    let demanding = |cpu_time, cpus| with(|limits| limits.demanded = Demanded { cpu_time, cpus });
    let refused = |other: &World, grant: Grant| {
        let image = other.image("program.c", &[]);
        let kept = image.keeps(&grant.limits, &grant.protocol);
        let (input, _) = input(b"x");
        match (kept, image.spawn(&Arc::new(grant), input)) {
            (Ok(()), Ok(_)) => None,
            (Err(reason), Err(SpawnError::Failed { reason: same })) if reason == same => Some(reason),
            (kept, _) => panic!("it is refused twice or not at all: {kept:?}"),
        }
    };
    let nothing = on(&[], false);
    let reason = refused(&nothing, grant()).expect("it may not run");
    assert!(
        reason.contains("memory") && reason.contains("processes"),
        "{reason}"
    );
    if cfg!(target_arch = "x86_64") {
        assert_eq!(run(&nothing.pure(), &pure_grant(), "some words").1, "SOME WORDS");
    }
    let allowed = on(&[], true);
    let image = allowed.image("program.c", &[]);
    assert_eq!(refused(&allowed, demanding(true, true)), None);
    assert_eq!(run(&image, &grant(), "x").0, Ok(()));
    let kept = image.kept(&grant()).unwrap();
    assert!(kept.contains("each process by itself"), "{kept}");

    if let Err(reason) = confine::Groups::make_with(&[Memory, Processes]) {
        return println!("skipped: there are no control groups here: {reason}");
    }
    let no_more = on(&[Memory, Processes], false);
    let image = no_more.image("program.c", &[]);
    assert_eq!(run(&image, &grant(), "x").0, Ok(()));
    let kept = image.kept(&grant()).unwrap();
    assert!(kept.contains("cores are not limited"), "{kept}");
    assert!(refused(&no_more, demanding(false, true)).is_some_and(|reason| reason.contains("`cpus`")));
    assert!(refused(&no_more, demanding(true, false)).is_some_and(|reason| reason.contains("`cpu_time`")));
    let all = confine::Groups::make().is_ok_and(|groups| groups.counts(Cores) && groups.counts(Time));
    assert_eq!(refused(world, demanding(true, true)), None, "it is allowed there");
    if all {
        assert_eq!(refused(&on(&Controller::ALL, false), demanding(true, true)), None);
    }
}

/// Every way out is shut, by what is to shut it: see the program's source. Neither the zygote nor a neighbour notices any.
fn nobody_gets_out(world: &World) {
    let (other, spawner) = another(world, &anywhere());
    let image = other.image("hostile.c", &[]);
    let grant = |arguments: Vec<String>| Grant {
        arguments,
        ..with(|limits| limits.memory = ByteSize::mib(64))
    };
    let (ended, listed, _) = run(&image, &grant(Vec::new()), "");
    assert_eq!(ended, Ok(()));
    let ways = Way::all(&listed);
    assert!(ways.len() >= 128, "{listed}");
    let zygotes = || children(spawner.number);
    let own = zygotes();
    let [zygote] = &own[..] else {
        panic!("it has one zygote: {own:?}");
    };
    let program = other.image("program.c", &[]);
    let mut neighbour = Running::spawn(&program, &grant(vec!["wait".into()]), b"");
    until(|| {
        assert!(neighbour.turn().is_none());
        neighbour.usage().started
    });
    let neighbours = zygotes();
    assert_eq!(neighbours.len(), 2);
    let numbers = |found: &[Found]| found.iter().map(|found| found.number).collect::<BTreeSet<_>>();

    let file = other.folder.path().join("hostile");
    std::fs::write(&file, other.executable("hostile.c", &[])).unwrap();
    std::fs::set_permissions(&file, Permissions::from_mode(0o755)).unwrap();
    let mut victim = Victim::new(&file);
    let mut open = Vec::new();
    for way in &ways {
        let arguments = way.arguments([victim.number(), zygote.number], &victim.there);
        let (ended, said, _) = run(&image, &grant(arguments), "its input");
        match shut_by(ended, &said) {
            Ok(found) if way.shut_by.contains(&found) => println!("{}: {found}", way.name),
            found => open.push(format!("{}: {found:?}, not {:?}", way.name, way.shut_by)),
        }
        let still = victim.process.try_wait().unwrap().is_none();
        if !still || neighbour.turn().is_some() || numbers(&zygotes()) != numbers(&neighbours) {
            panic!("{}: others are ended by it; before that {open:?}", way.name);
        }
    }
    assert_eq!(open, Vec::<String>::new());
}

/// The same program where there are no walls: what is tried in vain can be seen to work.
fn ways_out_are_ways_where_there_are_no_walls(world: &World) {
    let file = world.folder.path().join("hostile");
    std::fs::write(&file, world.executable("hostile.c", &[])).unwrap();
    std::fs::set_permissions(&file, Permissions::from_mode(0o755)).unwrap();
    let said = |command: &mut Command| {
        let output = command.output().expect("the program can be started");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    let ways = Way::all(&said(&mut Command::new(&file)));
    let (mut seen, mut unseen) = (0, Vec::new());
    for way in ways.iter().filter(|way| way.outside != Outside::NotTried) {
        // Some of them end it.
        let victim = Victim::new(&file);
        let mut input = tempfile::tempfile().unwrap();
        input.write_all(b"its input").unwrap();
        // With a descriptor to be found.
        let mut command = Command::new("sh");
        command
            .args(["-c", "exec \"$0\" \"$@\" 7</dev/null"])
            .arg(&file)
            .args(way.arguments([victim.number(); 2], &victim.there))
            .stdin(input);
        match said(&mut command) {
            said if said.starts_with("escaped") => seen += 1,
            said if way.outside == Outside::Somebody => {
                println!("{}: not to this user on this host: {said}", way.name);
            }
            said => unseen.push(format!("{}: {said}", way.name)),
        }
    }
    assert_eq!(unseen, Vec::<String>::new());
    println!("{seen} of {} ways are open without walls", ways.len());
    let anybodys = |way: &&Way| way.outside == Outside::Anybody;
    assert!(seen >= 40 && ways.iter().filter(anybodys).count() >= 40, "{seen}");
}

/// What a guest has started ends with it, whatever it does.
fn nothing_is_left_of_a_guest(world: &World) {
    let (other, spawner) = another(world, &anywhere());
    let image = other.image("hostile.c", &[]);
    let grant = Grant {
        arguments: vec!["write_after_the_end".into()],
        // More than it writes before anybody has seen it.
        ..with(|limits| limits.response_body = ByteSize::mib(256))
    };
    let mut running = Running::spawn(&image, &grant, b"");
    let mut only = |parent: i32| {
        until(|| {
            assert!(running.turn().is_none());
            children(parent).pop()
        })
    };
    let zygote = only(spawner.number);
    let guest = only(zygote.number);
    let child = only(guest.number);
    let held = [&guest, &child].map(|process| Held::new(process.number));
    assert!(!held.iter().any(Held::has_ended));
    signal(guest.number, libc::SIGUSR1);
    running.finish().expect("it leaves well");
    assert!(held.iter().all(Held::has_ended));
    assert!(children(zygote.number).is_empty());
    let said = running.said().text();
    assert!(said.chars().all(|c| c == 'x'), "{said}");
}

/// A pure function has one system call, and the memory that it was given.
fn a_pure_function_has_no_way_out(world: &World) {
    let image = world.image("hostile_pure.c", FREESTANDING);
    let end = |wish: String| run(&image, &pure_grant(), &wish).0;
    let ended = |wish: String| end(wish.clone()).expect_err(&wish);
    for number in (0..600).filter(|number| ![60, 231].contains(number)) {
        match end(format!("c{number:x}")) {
            Err(Fault::Trap { reason }) if reason.contains("a system call") => {}
            // The kernel's own, for its probes of functions: no filter is asked, and a process without any gets an error or an end.
            Ok(()) if number == 336 => {}
            Err(Fault::Trap { reason }) if number == 335 && reason.contains("invalid instruction") => {}
            other => panic!("{number}: {other:?}"),
        }
    }
    // Where a process has its program, its heap, its libraries, its stack and the kernel's pages, as a rule; and beside what is the guest's.
    let from = |begin: u64, step: i64| (0..16).map(move |times| begin.wrapping_add_signed(times * step));
    let places = from(0x5500_0000_0000, 0x10_0000_0000)
        .chain(from(0x7fff_ffff_e000, -0x1_0000))
        .chain(from(0x7f00_0000_0000, 0x10_0000_0000))
        .chain([
            0,
            0x1000,
            0x1000_0000_0000,
            0x1000_0020_0000 + (1 << 20),
            0xffff_ffff_ff60_0000,
        ]);
    for place in places {
        match ended(format!("r{place:x}")) {
            Fault::StackOverflow => {}
            Fault::Trap { reason } => assert!(
                reason.contains("memory that it does not have"),
                "{place:x}: {reason}"
            ),
            other => panic!("{place:x}: {other:?}"),
        }
    }
    assert!(matches!(ended("i".into()), Fault::Trap { .. }));
}

/// What the processor gives at random is no input's to decide.
fn code_that_asks_for_random_numbers_is_not_pure(world: &World) {
    for (hidden, name) in [
        ("rdrand %rax", "`rdrand`"),
        ("rdseed %ecx", "`rdseed`"),
        (".byte 0xf3, 0x0f, 0xc7, 0xf8", "`rdpid`"),
        ("mov $0xf0c70f90, %eax", "`rdrand`"),
        (".byte 0x66, 0x66, 0x48, 0x0f, 0xc7, 0xf1", "`rdrand`"),
    ] {
        let option = format!("-DHIDDEN=\"{hidden}\"");
        let image = world.image("hostile_pure.c", &[FREESTANDING, &[&option]].concat());
        let reason = image.pure().expect_err(hidden);
        assert!(reason.contains(name), "{hidden}: {reason}");
        let (input, _) = input(b"r0");
        match image.spawn(&Arc::new(pure_grant()), input) {
            Err(SpawnError::Failed { reason }) => assert!(reason.contains(name), "{hidden}: {reason}"),
            _ => panic!("{hidden}: it should not be spawned"),
        }
    }
    for harmless in ["cmpxchg16b (%rsp)", "mov $0xf0c70e90, %eax"] {
        let option = format!("-DHIDDEN=\"{harmless}\"");
        let image = world.image("hostile_pure.c", &[FREESTANDING, &[&option]].concat());
        assert_eq!(image.pure(), Ok(()), "{harmless}");
    }
}

/// A process of this host, as `/proc` tells.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Found {
    number: i32,
    parent: i32,
    state: String,
}

fn children(parent: i32) -> Vec<Found> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("there is /proc").flatten() {
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let Some((number, rest)) = stat
            .split_once(' ')
            .zip(stat.rsplit_once(") "))
            .map(|(a, b)| (a.0, b.1))
        else {
            continue;
        };
        let mut rest = rest.split(' ');
        let (Some(state), Some(Ok(above)), Ok(number)) =
            (rest.next(), rest.next().map(str::parse::<i32>), number.parse())
        else {
            continue;
        };
        if above == parent && state != "Z" {
            let state = state.to_owned();
            found.push(Found {
                number,
                parent,
                state,
            });
        }
    }
    found
}

/// Looks until it is so.
fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "it is never so");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn signal(process: i32, signal: i32) {
    // SAFETY: the call takes numbers; the process is a descendant of this one, which has just been seen.
    assert_eq!(unsafe { libc::kill(process, signal) }, 0);
}

/// A process that cannot be mistaken for another that gets its number later.
struct Held(OwnedFd);

impl Held {
    fn new(process: i32) -> Self {
        // SAFETY: the call takes numbers; what it returns is a descriptor that nobody else has, if it is one.
        Self(unsafe {
            let descriptor = libc::syscall(libc::SYS_pidfd_open, process, 0);
            assert!(descriptor >= 0, "{process} is there");
            OwnedFd::from_raw_fd(descriptor as i32)
        })
    }

    fn has_ended(&self) -> bool {
        let mut watched = libc::pollfd {
            fd: self.0.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: the structure outlives the call.
        unsafe { libc::poll(&mut watched, 1, 0) > 0 }
    }
}

/// Stops a process, and returns once it has stopped.
fn stop(process: &Found) {
    signal(process.number, libc::SIGSTOP);
    until(|| {
        children(process.parent)
            .into_iter()
            .find(|found| found.number == process.number && found.state == "T")
    });
}

/// An engine of its own, and its spawner.
fn another(world: &World, options: &Options) -> (World, Found) {
    let own = process::id().cast_signed();
    let before = children(own);
    let other = World {
        engine: Process::new(options).expect("this host has what it takes"),
        folder: tempfile::tempdir().expect("a folder can be made"),
    };
    let image = load(
        &other.engine,
        &compile(&other.engine, &of_the_suite(world, "says", 0)).unwrap(),
    )
    .unwrap();
    assert_eq!(run(&image, &grant(), "").1, "1 ");
    let new = children(own)
        .into_iter()
        .find(|found| !before.iter().any(|old| old.number == found.number));
    drop(image);
    let spawner = new.expect("there is a spawner");
    until(|| children(spawner.number).is_empty().then_some(()));
    (other, spawner)
}

/// A request whose zygote ends before its guest has begun is served by another zygote, once.
fn what_never_began_begins_again(world: &World) {
    let (other, spawner) = another(world, &anywhere());
    let mut images = vec![(
        other.image("program.c", &[]),
        grant(),
        "POST query=1 (null)\nthe body",
    )];
    if cfg!(target_arch = "x86_64") {
        images.push((other.pure(), pure_grant(), "THE BODY"));
    }
    for (image, grant, expected) in images {
        assert_eq!(run(&image, &grant, "the body").0, Ok(()));
        let zygote = || children(spawner.number).pop();
        let first = zygote().expect("it has a zygote");
        stop(&first);
        let mut running = Running::spawn(&image, &grant, b"the body");
        assert!(running.turn().is_none());
        signal(first.number, libc::SIGKILL);
        running.finish().expect("it is served by another zygote");
        assert_eq!(running.said().text(), expected);
        assert_ne!(zygote().expect("there is a new zygote").number, first.number);
        assert_eq!(run(&image, &grant, "the body").1, expected);
        drop((running, image));
        until(|| children(spawner.number).is_empty().then_some(()));
    }
    // Not for ever: here no zygote comes to anything.
    let without = World {
        engine: Process::new(&Options {
            program: "/bin/false".into(),
            ..anywhere()
        })
        .expect("the program is not asked yet"),
        folder: tempfile::tempdir().expect("a folder can be made"),
    };
    let image = without.image("program.c", &[]);
    let (input, recorder) = input(b"");
    // Or its spawner has ended before it takes any order.
    if let Ok(sandbox) = image.spawn(&Arc::new(grant()), input) {
        let ended = Running::new(sandbox, recorder).finish();
        assert!(matches!(ended, Err((Fault::Trap { .. }, _))), "{ended:?}");
    }
}

/// Zygotes that nobody uses end when others are needed; those of an image end with it.
fn zygotes_come_and_go(world: &World) {
    let options = Options {
        zygotes: 2,
        ..anywhere()
    };
    let (other, spawner) = another(world, &options);
    let image = || other.image("program.c", &[]);
    let numbers = || {
        children(spawner.number)
            .into_iter()
            .map(|found| found.number)
            .collect::<Vec<_>>()
    };
    let serves = |image: &Arc<dyn Image>| assert_eq!(run(image, &grant(), "").0, Ok(()));
    let images = [image(), image(), image()];
    serves(&images[0]);
    let first = numbers();
    serves(&images[1]);
    let second = numbers()
        .into_iter()
        .find(|number| !first.contains(number))
        .expect("another");
    serves(&images[0]);
    serves(&images[2]);
    // The one that was used least recently.
    until(|| (!numbers().contains(&second)).then_some(()));
    assert!(numbers().contains(&first[0]) && numbers().len() == 2);
    // Its image gets another one, and a guest that runs keeps its own.
    let waits = Grant {
        arguments: vec!["wait".into()],
        ..grant()
    };
    let mut waiting = Running::spawn(&images[0], &waits, b"");
    until(|| {
        assert!(waiting.turn().is_none());
        waiting.usage().started
    });
    for _ in 0..3 {
        serves(&images[1]);
        serves(&images[2]);
    }
    assert!(waiting.turn().is_none() && numbers().contains(&first[0]));
    until(|| (numbers().len() <= 2).then_some(()));
    drop(waiting);
    drop(images);
    until(|| numbers().is_empty().then_some(()));
}

/// The suite's guests: see the sources.
fn of_the_suite(world: &World, name: &str, variant: i32) -> Vec<u8> {
    let define = |name: &str, text: &str| format!("-D{name}={text}");
    let Some(pure) = name.strip_prefix("pure_") else {
        let options = [
            define("GUEST", &format!("\"{name}\"")),
            define("VARIANT", &variant.to_string()),
        ];
        return world.executable("conformance.c", &options.each_ref().map(String::as_str));
    };
    let what = match pure {
        "nowhere" => define("NOWHERE", &variant.to_string()),
        "hostile" => define("RUN", &format!("hostile({variant})")),
        guest => define("RUN", &format!("{guest}()")),
    };
    world.executable("conformance_pure.c", &[FREESTANDING, &[&what]].concat())
}

fn the_engine_keeps_its_contract(world: &World) {
    let subject = Subject {
        engine: &world.engine,
        guests: Guests::Native(&|name, variant| of_the_suite(world, name, variant)),
    };
    let groups = confine::Groups::make();
    run_native(&subject, |case| match &groups {
        Err(reason) if case == "a_failure_after_refused_memory_says_so" => Some(reason.to_string()),
        _ if cfg!(not(target_arch = "x86_64")) && PURE.contains(&case) => {
            Some("pure functions in native code run on x86-64 hosts only".to_owned())
        }
        _ => None,
    });
}

const PURE: [&str; 5] = [
    "a_pure_function_has_its_sets_in_its_memory",
    "a_memory_with_sets_is_fresh",
    "a_hostile_structure_is_a_fault",
    "inputs_beyond_the_limit_are_refused",
    "a_structure_without_a_place_is_refused",
];

type Test = fn(&World);

const TESTS: &[(&str, Test)] = &[
    ("a_program_is_a_command", a_program_is_a_command),
    ("programs_fail_as_commands_do", programs_fail_as_commands_do),
    (
        "programs_are_kept_in_their_limits",
        programs_are_kept_in_their_limits,
    ),
    (
        "a_pure_function_gives_sets_for_sets",
        a_pure_function_gives_sets_for_sets,
    ),
    (
        "large_outputs_are_handed_on_where_they_lie",
        large_outputs_are_handed_on_where_they_lie,
    ),
    (
        "pure_functions_fail_as_others_do",
        pure_functions_fail_as_others_do,
    ),
    ("the_engine_keeps_its_contract", the_engine_keeps_its_contract),
    ("what_never_began_begins_again", what_never_began_begins_again),
    ("zygotes_come_and_go", zygotes_come_and_go),
    ("nobody_gets_out", nobody_gets_out),
    (
        "ways_out_are_ways_where_there_are_no_walls",
        ways_out_are_ways_where_there_are_no_walls,
    ),
    ("nothing_is_left_of_a_guest", nothing_is_left_of_a_guest),
    ("a_pure_function_has_no_way_out", a_pure_function_has_no_way_out),
    (
        "code_that_asks_for_random_numbers_is_not_pure",
        code_that_asks_for_random_numbers_is_not_pure,
    ),
    (
        "what_a_host_does_not_count_does_not_run",
        what_a_host_does_not_count_does_not_run,
    ),
];

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args_os().skip(1).collect();
    if let Some(code) = answer(&arguments) {
        return code;
    }
    if let Err(reason) = supported() {
        println!("skipped: {reason}");
        return ExitCode::SUCCESS;
    }
    let wanted = arguments
        .first()
        .and_then(|word| word.to_str())
        .filter(|word| !word.starts_with('-'));
    let world = World {
        engine: Process::new(&anywhere()).expect("this host has what it takes"),
        folder: tempfile::tempdir().expect("a folder can be made"),
    };
    let mut failed = 0;
    for (name, test) in TESTS
        .iter()
        .filter(|(name, _)| wanted.is_none_or(|word| name.contains(word)))
    {
        let passed = catch_unwind(AssertUnwindSafe(|| test(&world))).is_ok();
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
        failed += u32::from(!passed);
    }
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
