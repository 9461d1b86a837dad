//! What this crate's tests share, and the tests of the functions as a guest calls them.

use crate::{Command, Errno, Poll, Stop, for_each_function};
use bytes::Bytes;
use contract::{
    ByteSize, Fault, Grant, HeadBuilder, Input, Limits, Protocol, RequestId, ResponseHead, ResponseSink,
};
use proptest::prelude::*;
use std::{
    sync::{Arc, Mutex},
    task::Waker,
    time::{Duration, Instant},
};

#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Record>>);

#[derive(Default)]
struct Record {
    head: Option<ResponseHead>,
    body: Vec<Bytes>,
    log: Vec<u8>,
    longest_log: usize,
}

impl ResponseSink for Recorder {
    fn head(&mut self, head: ResponseHead) {
        assert!(self.0.lock().unwrap().head.replace(head).is_none(), "one head");
    }
    fn body(&mut self, chunk: Bytes) {
        self.0.lock().unwrap().body.push(chunk);
    }
    fn log(&mut self, bytes: &[u8]) {
        let mut record = self.0.lock().unwrap();
        record.longest_log = record.longest_log.max(bytes.len());
        record.log.extend_from_slice(bytes);
    }
}

impl Recorder {
    fn body(&self) -> Vec<u8> {
        self.0.lock().unwrap().body.concat()
    }
    fn log(&self) -> Vec<u8> {
        self.0.lock().unwrap().log.clone()
    }
}

pub(crate) fn grant() -> Grant {
    Grant {
        limits: Limits {
            response_body: ByteSize(1000),
            ..Limits::default()
        },
        protocol: Protocol::Raw {
            content_type: "text/plain".into(),
        },
        ..Grant::nothing("shop.echo".parse().unwrap())
    }
}

fn command_of(grant: Grant, body: &[u8]) -> (Command, Recorder) {
    command_with(grant, Bytes::copy_from_slice(body))
}

fn command_with(grant: Grant, body: Bytes) -> (Command, Recorder) {
    let recorder = Recorder::default();
    let input = Input {
        head: HeadBuilder::new("POST", "/x?y", 16).build(RequestId(1)),
        body: body.into(),
        response: Box::new(recorder.clone()),
        services: None,
    };
    (Command::new(Arc::new(grant), input), recorder)
}

fn pure() -> Protocol {
    Protocol::Pure {
        inputs: vec!["a".to_owned(), "b".to_owned()],
        outputs: vec!["x".to_owned()],
        content_type: "image/png".into(),
    }
}

/// As an engine does before the guest begins.
fn complete(command: &mut Command) -> Result<(), Fault> {
    if !command.is_incomplete() {
        return Ok(());
    }
    match command.poll_complete(Waker::noop()) {
        std::task::Poll::Ready(done) => done,
        std::task::Poll::Pending => panic!("the body is whole"),
    }
}

fn command(body: &[u8]) -> (Command, Recorder) {
    command_of(grant(), body)
}

/// A memory whose vectors at address 0 are these.
fn memory(vectors: &[(u32, u32)]) -> Vec<u8> {
    let mut memory = vec![0; 4096];
    for (index, (address, length)) in vectors.iter().enumerate() {
        memory[index * 8..index * 8 + 4].copy_from_slice(&address.to_le_bytes());
        memory[index * 8 + 4..index * 8 + 8].copy_from_slice(&length.to_le_bytes());
    }
    memory
}

fn word(memory: &[u8], address: usize) -> u32 {
    u32::from_le_bytes(memory[address..address + 4].try_into().unwrap())
}

fn long(memory: &[u8], address: usize) -> u64 {
    u64::from_le_bytes(memory[address..address + 8].try_into().unwrap())
}

const OK: Result<Errno, Stop> = Ok(Errno::SUCCESS);

#[test]
fn a_command_can_move_between_threads() {
    fn is_send<T: Send>() {}
    is_send::<Command>();
}

#[test]
fn input_is_read_in_pieces_to_its_end() {
    let (mut command, _) = command(b"hello world");
    let mut memory = memory(&[(100, 3), (200, 0), (300, 4)]);
    assert_eq!(crate::fd_read(&mut command, &mut memory, 0, 0, 3, 80), OK);
    assert_eq!(
        (word(&memory, 80), &memory[100..103], &memory[300..304]),
        (7, &b"hel"[..], &b"lo w"[..])
    );
    assert_eq!(crate::fd_read(&mut command, &mut memory, 0, 0, 3, 80), OK);
    assert_eq!(
        (word(&memory, 80), &memory[100..103], &memory[300..302]),
        (4, &b"orl"[..], &b"do"[..])
    );
    for _ in 0..2 {
        assert_eq!(crate::fd_read(&mut command, &mut memory, 0, 0, 3, 80), OK);
        assert_eq!(word(&memory, 80), 0);
    }
}

#[test]
fn output_becomes_the_body_in_one_piece() {
    let (mut command, recorder) = command(b"");
    let mut memory = memory(&[(100, 3), (100, 3), (101, 1)]);
    memory[100..103].copy_from_slice(b"abc");
    assert_eq!(crate::fd_write(&mut command, &mut memory, 1, 0, 3, 80), OK);
    assert_eq!(word(&memory, 80), 7);
    assert_eq!(command.finish(0), Ok(()));
    let record = recorder.0.lock().unwrap();
    assert_eq!(record.body.len(), 1);
    assert_eq!(record.body[0], "abcabcb");
    let head = record.head.clone().unwrap();
    assert_eq!(
        (head.status, head.headers),
        (200, vec![("content-type".into(), "text/plain".into())])
    );
}

#[test]
fn an_exit_code_is_a_fault_and_no_response() {
    let (mut command, recorder) = command(b"");
    assert_eq!(crate::proc_exit(&mut command, &mut [], u32::MAX), Stop::Exit(-1));
    assert_eq!(command.finish(-1), Err(Fault::Exit { code: -1 }));
    assert!(recorder.0.lock().unwrap().head.is_none());
}

#[test]
fn output_is_bounded() {
    let (mut command, _) = command(b"");
    let mut memory = memory(&[(1000, 600)]);
    assert_eq!(crate::fd_write(&mut command, &mut memory, 1, 0, 1, 80), OK);
    assert_eq!(
        crate::fd_write(&mut command, &mut memory, 1, 0, 1, 80),
        Err(Stop::Fault(Fault::OutputTooLarge {
            limit: ByteSize(1000)
        }))
    );
}

#[test]
fn cgi_output_is_bounded_without_its_header() {
    for (body, fits) in [(1000, true), (1001, false)] {
        let (mut command, recorder) = command_of(
            Grant {
                protocol: Protocol::Cgi,
                ..grant()
            },
            b"",
        );
        let text = format!("Content-Type: a\nX: {}\n\n{}", "x".repeat(500), "b".repeat(body));
        let mut memory = memory(&[(1000, text.len() as u32)]);
        memory[1000..1000 + text.len()].copy_from_slice(text.as_bytes());
        assert_eq!(crate::fd_write(&mut command, &mut memory, 1, 0, 1, 80), OK);
        let limit = ByteSize(1000);
        assert_eq!(
            command.finish(0),
            if fits {
                Ok(())
            } else {
                Err(Fault::OutputTooLarge { limit })
            }
        );
        assert_eq!(recorder.body().len(), if fits { 1000 } else { 0 });
    }
}

#[test]
fn one_call_copies_a_bounded_amount() {
    let (mut command, recorder) = command_of(
        Grant {
            limits: Limits {
                response_body: ByteSize::mib(8),
                ..Limits::default()
            },
            ..grant()
        },
        &vec![7; 3 << 20],
    );
    let mut memory = memory(&[(4096, 3 << 20)]);
    memory.resize(4 << 20, 0);
    assert_eq!(crate::fd_read(&mut command, &mut memory, 0, 0, 1, 80), OK);
    assert_eq!(word(&memory, 80), 1 << 20);
    for fd in [1, 2] {
        assert_eq!(crate::fd_write(&mut command, &mut memory, fd, 0, 1, 80), OK);
        assert_eq!(word(&memory, 80), 1 << 20);
    }
    assert_eq!(recorder.log(), [vec![7; 1 << 20]].concat());
    assert!(recorder.0.lock().unwrap().longest_log <= 16 << 10);
    assert_eq!(
        crate::random_get(&mut command, &mut memory, 0, 2 << 20),
        Ok(Errno::INVAL)
    );
    // 4,294,967,295 vectors would need 32 GiB: those that are read lie in memory, and are 1024.
    memory.fill(0);
    assert_eq!(crate::fd_write(&mut command, &mut memory, 1, 0, u32::MAX, 80), OK);
    assert_eq!(word(&memory, 80), 0);
}

#[test]
fn descriptors_close_and_move() {
    let (mut command, recorder) = command(b"in");
    let mut memory = memory(&[(100, 3)]);
    memory[100..103].copy_from_slice(b"abc");
    assert_eq!(
        crate::fd_write(&mut command, &mut memory, 0, 0, 1, 80),
        Ok(Errno::BADF)
    );
    assert_eq!(
        crate::fd_read(&mut command, &mut memory, 1, 0, 1, 80),
        Ok(Errno::BADF)
    );
    // Standard error to where standard output was.
    assert_eq!(crate::fd_renumber(&mut command, &mut memory, 2, 1), OK);
    assert_eq!(crate::fd_write(&mut command, &mut memory, 1, 0, 1, 80), OK);
    assert_eq!(
        crate::fd_write(&mut command, &mut memory, 2, 0, 1, 80),
        Ok(Errno::BADF)
    );
    assert_eq!(
        crate::fd_renumber(&mut command, &mut memory, 2, 1),
        Ok(Errno::BADF)
    );
    assert_eq!(
        crate::fd_renumber(&mut command, &mut memory, 1, 3),
        Ok(Errno::BADF)
    );
    assert_eq!(crate::fd_renumber(&mut command, &mut memory, 1, 1), OK);
    for fd in [0, 1] {
        assert_eq!(crate::fd_close(&mut command, &mut memory, fd), OK);
        assert_eq!(crate::fd_close(&mut command, &mut memory, fd), Ok(Errno::BADF));
    }
    assert_eq!(
        crate::fd_close(&mut command, &mut memory, u32::MAX),
        Ok(Errno::BADF)
    );
    assert_eq!(
        crate::fd_write(&mut command, &mut memory, 1, 0, 1, 80),
        Ok(Errno::BADF)
    );
    assert_eq!(
        crate::fd_fdstat_get(&mut command, &mut memory, 1, 200),
        Ok(Errno::BADF)
    );
    assert_eq!(command.finish(0), Ok(()));
    assert_eq!((recorder.log(), recorder.body()), (b"abc".to_vec(), vec![]));
}

#[test]
fn streams_are_neither_files_nor_sockets() {
    let (mut command, _) = command(b"");
    let mut memory = memory(&[]);
    memory[200..300].fill(0xff);
    assert_eq!(crate::fd_fdstat_get(&mut command, &mut memory, 1, 200), OK);
    assert_eq!(
        (memory[200], long(&memory, 208), long(&memory, 216)),
        (0, 1 << 6 | 1 << 21 | 1 << 27, 0)
    );
    assert_eq!(crate::fd_filestat_get(&mut command, &mut memory, 0, 200), OK);
    assert_eq!((memory[216], long(&memory, 224), long(&memory, 232)), (0, 1, 0));
    assert_eq!(
        crate::fd_seek(&mut command, &mut memory, 0, 0, 0, 0),
        Ok(Errno::SPIPE)
    );
    assert_eq!(
        crate::fd_seek(&mut command, &mut memory, 3, 0, 0, 0),
        Ok(Errno::BADF)
    );
    assert_eq!(
        crate::fd_prestat_get(&mut command, &mut memory, 3, 0),
        Ok(Errno::BADF)
    );
    assert_eq!(
        crate::path_open(&mut command, &mut memory, 3, 0, 0, 0, 0, 0, 0, 0, 0),
        Ok(Errno::BADF)
    );
    assert_eq!(
        crate::path_open(&mut command, &mut memory, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        Ok(Errno::NOTCAPABLE)
    );
    assert_eq!(
        crate::sock_send(&mut command, &mut memory, 1, 0, 0, 0, 0),
        Ok(Errno::NOTSOCK)
    );
    assert_eq!(
        crate::sock_send(&mut command, &mut memory, 9, 0, 0, 0, 0),
        Ok(Errno::BADF)
    );
}

#[test]
fn arguments_and_environment_reach_the_guest() {
    let mut grant = grant();
    grant.arguments = vec!["--fast".into()];
    grant.environment = vec![("LEVEL".into(), "3".into())];
    let (mut command, _) = command_of(grant, b"");
    let mut memory = memory(&[]);
    assert_eq!(crate::args_sizes_get(&mut command, &mut memory, 0, 4), OK);
    assert_eq!((word(&memory, 0), word(&memory, 4)), (2, 12));
    assert_eq!(crate::args_get(&mut command, &mut memory, 8, 100), OK);
    assert_eq!(
        (word(&memory, 8), word(&memory, 12), &memory[100..112]),
        (100, 105, &b"echo\0--fast\0"[..])
    );
    assert_eq!(crate::environ_sizes_get(&mut command, &mut memory, 0, 4), OK);
    let (count, size) = (word(&memory, 0), word(&memory, 4));
    assert!(count > 10 && size > 200);
    assert_eq!(crate::environ_get(&mut command, &mut memory, 200, 1000), OK);
    assert_eq!(
        (word(&memory, 200), &memory[1000..1008]),
        (1000, &b"LEVEL=3\0"[..])
    );
    // To the last byte of memory, and one byte beyond.
    let end = memory.len() as u32;
    assert_eq!(crate::environ_get(&mut command, &mut memory, 0, end - size), OK);
    assert_eq!(
        crate::environ_get(&mut command, &mut memory, 0, end - size + 1),
        Ok(Errno::FAULT)
    );
    assert_eq!(
        crate::environ_get(&mut command, &mut memory, end - 4 * count, 0),
        OK
    );
    assert_eq!(
        crate::environ_get(&mut command, &mut memory, end - 4 * count + 1, 0),
        Ok(Errno::FAULT)
    );
}

#[test]
fn clocks_advance() {
    let (mut command, _) = command(b"");
    let mut memory = memory(&[]);
    for clock in 0..4 {
        assert_eq!(crate::clock_res_get(&mut command, &mut memory, clock, 8), OK);
        assert!((1..1_000_000).contains(&long(&memory, 8)));
        assert_eq!(crate::clock_time_get(&mut command, &mut memory, clock, 0, 8), OK);
        let before = long(&memory, 8);
        // Work, so that the CPU clocks advance.
        while {
            assert_eq!(crate::clock_time_get(&mut command, &mut memory, clock, 0, 8), OK);
            long(&memory, 8) <= before
        } {}
    }
    assert_eq!(
        crate::clock_time_get(&mut command, &mut memory, 4, 0, 8),
        Ok(Errno::INVAL)
    );
    assert_eq!(
        crate::clock_time_get(&mut command, &mut memory, 0, 0, 4089),
        Ok(Errno::FAULT)
    );
}

#[test]
fn random_bytes_are_never_the_same() {
    let mut seen = std::collections::HashSet::new();
    for _ in 0..100 {
        let (mut command, _) = command(b"");
        let mut memory = vec![0; 16];
        assert_eq!(crate::random_get(&mut command, &mut memory, 0, 16), OK);
        assert!(seen.insert(memory));
    }
}

#[test]
fn signals_end_a_guest_unless_they_are_ignored() {
    let (mut command, _) = command(b"");
    assert_eq!(crate::proc_raise(&mut command, &mut [], 0), OK);
    assert_eq!(crate::proc_raise(&mut command, &mut [], 31), Ok(Errno::INVAL));
    assert!(matches!(
        crate::proc_raise(&mut command, &mut [], 6),
        Err(Stop::Fault(Fault::Trap { .. }))
    ));
}

/// Subscriptions at address 0, each `(kind, clock or fd, timeout, flags)`, with their index as userdata.
fn subscriptions(list: &[(u8, u32, u64, u16)]) -> Vec<u8> {
    let mut memory = vec![0; 4096];
    for (index, (kind, of, timeout, flags)) in list.iter().enumerate() {
        let at = &mut memory[index * 48..];
        at[0..8].copy_from_slice(&(index as u64).to_le_bytes());
        at[8] = *kind;
        at[16..20].copy_from_slice(&of.to_le_bytes());
        at[24..32].copy_from_slice(&timeout.to_le_bytes());
        at[40..42].copy_from_slice(&flags.to_le_bytes());
    }
    memory
}

#[test]
fn a_wait_ends_at_its_earliest_clock() {
    let (mut command, _) = command(b"");
    let milliseconds = 1_000_000;
    let mut memory = subscriptions(&[(0, 1, 3_600_000 * milliseconds, 0), (0, 0, 5 * milliseconds, 0)]);
    let before = Instant::now();
    let mut waits = 0;
    loop {
        match crate::poll_oneoff(&mut command, &mut memory, 0, 1000, 2, 2000).unwrap() {
            Poll::Ready(errno) => break assert_eq!(errno, Errno::SUCCESS),
            Poll::Until(deadline) => {
                waits += 1;
                // Called again too early, it goes on with the same wait.
                assert!(deadline >= before + Duration::from_millis(5));
                assert!(deadline <= Instant::now() + Duration::from_millis(5));
                let again = crate::poll_oneoff(&mut command, &mut memory, 0, 1000, 2, 2000).unwrap();
                assert!(again == Poll::Until(deadline) || again == Poll::Ready(Errno::SUCCESS));
                if again != Poll::Until(deadline) {
                    break;
                }
                std::thread::sleep(deadline.saturating_duration_since(Instant::now()));
            }
        }
    }
    assert!(waits >= 1 && before.elapsed() >= Duration::from_millis(5));
    assert_eq!(
        (word(&memory, 2000), long(&memory, 1000), memory[1010]),
        (1, 1, 0)
    );
    // The next wait begins anew.
    assert!(matches!(
        crate::poll_oneoff(&mut command, &mut memory, 0, 1000, 1, 2000),
        Ok(Poll::Until(_))
    ));
}

#[test]
fn what_has_happened_does_not_wait() {
    let (mut command, _) = command(b"abc");
    let hour = 3_600_000_000_000;
    let mut memory = subscriptions(&[
        (0, 1, hour, 0),
        (1, 0, 0, 0),
        (2, 1, 0, 0),
        (2, 2, 0, 0),
        (1, 7, 0, 0),
        (0, 9, 0, 0),
        (0, 2, 1, 0),
        (0, 1, 0, 1),
        (0, 0, 1, 1),
        (0, 0, 0, 0),
    ]);
    assert_eq!(
        crate::poll_oneoff(&mut command, &mut memory, 0, 1000, 10, 2000),
        Ok(Poll::Ready(Errno::SUCCESS))
    );
    assert_eq!(word(&memory, 2000), 9);
    let event = |index: usize| {
        let at = 1000 + index * 32;
        let error = Errno(u16::from_le_bytes([memory[at + 8], memory[at + 9]]));
        (
            long(&memory, at),
            error,
            memory[at + 10],
            long(&memory, at + 16),
            memory[at + 24],
        )
    };
    assert_eq!(event(0), (1, Errno::SUCCESS, 1, 3, 0));
    assert_eq!(event(1), (2, Errno::SUCCESS, 2, 1000, 0));
    assert_eq!(event(3), (4, Errno::BADF, 1, 0, 0));
    assert_eq!(event(4), (5, Errno::INVAL, 0, 0, 0));
    assert_eq!(event(5), (6, Errno::NOTSUP, 0, 0, 0));
    assert_eq!(event(8), (9, Errno::SUCCESS, 0, 0, 0));
}

#[test]
fn hostile_polls_are_refused() {
    let (mut command, _) = command(b"");
    let mut memory = subscriptions(&[(0, 1, u64::MAX, 0), (9, 0, 0, 0)]);
    let mut poll = |subscriptions, events, count, stored| {
        crate::poll_oneoff(&mut command, &mut memory, subscriptions, events, count, stored).unwrap()
    };
    assert_eq!(poll(0, 1000, 0, 2000), Poll::Ready(Errno::INVAL));
    assert_eq!(poll(0, 1000, u32::MAX, 2000), Poll::Ready(Errno::INVAL));
    assert_eq!(poll(0, 1000, 2, 2000), Poll::Ready(Errno::INVAL));
    assert_eq!(poll(0, 4090, 1, 2000), Poll::Ready(Errno::FAULT));
    assert_eq!(poll(0, 1000, 1, 4093), Poll::Ready(Errno::FAULT));
    assert_eq!(poll(u32::MAX - 10, 1000, 1, 2000), Poll::Ready(Errno::FAULT));
    assert!(matches!(poll(0, 1000, 1, 2000), Poll::Until(deadline) if deadline > Instant::now()));
}

#[test]
fn the_table_says_what_the_functions_are() {
    use crate::{FUNCTIONS, ValueType, function};
    assert_eq!(FUNCTIONS.len(), 46);
    let seek = function("fd_seek").unwrap();
    assert_eq!(
        seek.parameters,
        [ValueType::I32, ValueType::I64, ValueType::I32, ValueType::I32]
    );
    assert_eq!(seek.result, Some(ValueType::I32));
    assert_eq!(function("proc_exit").unwrap().result, None);
    assert_eq!(function("sock_open"), None);
}

/// Arguments that are likely to hit something: small, near the end of memory, near wrap-around.
fn argument() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..8u64,
        0..80u64,
        Just(0),
        (0..40u64).prop_map(|n| 256 - n),
        (0..40u64).prop_map(|n| u64::from(u32::MAX) - n),
        (0..40u64).prop_map(|n| u64::MAX - n),
        any::<u64>(),
    ]
}

trait Argument {
    fn of(value: u64) -> Self;
}
impl Argument for u32 {
    fn of(value: u64) -> Self {
        value as u32
    }
}
impl Argument for u64 {
    fn of(value: u64) -> Self {
        value
    }
}

macro_rules! call {
    (
        answers { $($answers:ident($($a:ident: $at:ty),*);)* }
        waits { $($waits:ident($($w:ident: $wt:ty),*);)* }
        ends { $($ends:ident($($e:ident: $et:ty),*);)* }
    ) => {
        /// Calls a function by its number.
        fn call(number: usize, command: &mut Command, memory: &mut [u8], arguments: &[u64]) -> Option<Errno> {
            let mut arguments = arguments.iter().copied().cycle();
            let mut next = || arguments.next().unwrap_or_default();
            let mut at = 0..;
            let mut is = || at.next() == Some(number);
            $(if is() {
                $(let $a = <$at as Argument>::of(next());)*
                let _ = &mut next;
                return crate::$answers(command, memory, $($a),*).ok();
            })*
            $(if is() {
                $(let $w = <$wt as Argument>::of(next());)*
                return match crate::$waits(command, memory, $($w),*) {
                    Ok(Poll::Ready(errno)) => Some(errno),
                    _ => None,
                };
            })*
            $(if is() {
                $(let $e = <$et as Argument>::of(next());)*
                crate::$ends(command, memory, $($e),*);
                return None;
            })*
            None
        }
    };
}
for_each_function!(call);

/// A pure function's run: its memory holds what a test writes at 0, and answers from 512 on.
struct PureRun(Command, Recorder, Vec<u8>);

impl PureRun {
    fn new(body: &[u8]) -> Self {
        let protocol = pure();
        let (mut command, recorder) = command_of(Grant { protocol, ..grant() }, body);
        complete(&mut command).unwrap();
        Self(command, recorder, vec![0; 1024])
    }

    fn open(&mut self, path: &str, create: bool) -> u32 {
        self.2[..path.len()].copy_from_slice(path.as_bytes());
        let (length, rights) = (path.len() as u32, if create { u64::MAX } else { 1 << 1 });
        let done = crate::path_open(
            &mut self.0,
            &mut self.2,
            3,
            0,
            0,
            length,
            create.into(),
            rights,
            0,
            0,
            512,
        );
        assert_eq!(done, Ok(Errno::SUCCESS), "{path}");
        u32::from_le_bytes(self.2[512..516].try_into().unwrap())
    }

    fn write(&mut self, fd: u32, text: &str) {
        self.2[..8].copy_from_slice(&[8, 0, 0, 0, text.len() as u8, 0, 0, 0]);
        self.2[8..8 + text.len()].copy_from_slice(text.as_bytes());
        assert_eq!(
            crate::fd_write(&mut self.0, &mut self.2, fd, 0, 1, 512),
            Ok(Errno::SUCCESS)
        );
    }

    fn read(&mut self, fd: u32) -> Vec<u8> {
        self.2[..8].copy_from_slice(&[8, 0, 0, 0, 100, 0, 0, 0]);
        assert_eq!(
            crate::fd_read(&mut self.0, &mut self.2, fd, 0, 1, 512),
            Ok(Errno::SUCCESS)
        );
        let count = self.2[512] as usize;
        self.2[8..8 + count].to_vec()
    }

    fn time(&mut self, clock: u32) -> u64 {
        assert_eq!(
            crate::clock_time_get(&mut self.0, &mut self.2, clock, 0, 512),
            Ok(Errno::SUCCESS)
        );
        u64::from_le_bytes(self.2[512..520].try_into().unwrap())
    }

    fn random(&mut self) -> Vec<u8> {
        assert_eq!(
            crate::random_get(&mut self.0, &mut self.2, 512, 32),
            Ok(Errno::SUCCESS)
        );
        self.2[512..544].to_vec()
    }
}

#[test]
fn a_pure_function_reads_items_and_leaves_others() {
    let mut run = PureRun::new(b"some input");
    let given = run.open("in/a/body", false);
    assert_eq!(run.read(given), b"some input");
    assert_eq!(run.read(given), b"");
    let left = run.open("out/x/y", true);
    run.write(left, "answer");
    run.write(1, "said");
    run.0.finish(0).unwrap();
    assert_eq!(run.1.body(), b"answer");
    assert_eq!(run.1.log(), b"said");
    let head = run.1.0.lock().unwrap().head.clone().unwrap();
    assert_eq!(
        head.headers,
        [("content-type".into(), Bytes::from_static(b"image/png"))]
    );
}

#[test]
fn what_one_has_left_the_next_is_given_where_it_lies() {
    let mut run = PureRun::new(b"");
    let left = run.open("out/x/y", true);
    run.write(left, "answer");
    run.0.finish(0).unwrap();
    let answer = run.1.0.lock().unwrap().body[0].clone();
    let protocol = pure();
    let (mut next, _) = command_with(Grant { protocol, ..grant() }, answer.clone());
    complete(&mut next).unwrap();
    let given = &next.pure.as_ref().unwrap().inputs[0].items[0].data;
    assert_eq!((given, given.as_ptr()), (&answer, answer.as_ptr()));
}

#[test]
fn a_pure_function_finds_its_directories() {
    let mut run = PureRun::new(b"");
    assert_eq!(
        crate::fd_prestat_get(&mut run.0, &mut run.2, 3, 512),
        Ok(Errno::SUCCESS)
    );
    assert_eq!(run.2[512..520], [0, 0, 0, 0, 1, 0, 0, 0]);
    assert_eq!(
        crate::fd_prestat_get(&mut run.0, &mut run.2, 4, 512),
        Ok(Errno::BADF)
    );
    assert_eq!(
        crate::fd_readdir(&mut run.0, &mut run.2, 3, 0, 100, 2, 512),
        Ok(Errno::SUCCESS)
    );
    let used = u32::from_le_bytes(run.2[512..516].try_into().unwrap()) as usize;
    assert_eq!(used, 3 * 24 + "inouttmp".len());
    assert_eq!((&run.2[24..26], run.2[20], run.2[0]), (b"in".as_slice(), 3, 3));
    // What has no room is cut off, and asked for again.
    assert_eq!(
        crate::fd_readdir(&mut run.0, &mut run.2, 3, 0, 30, 3, 512),
        Ok(Errno::SUCCESS)
    );
    assert_eq!((run.2[512], &run.2[24..27]), (30, b"out".as_slice()));
    for behind in [5, u64::MAX - 1, u64::MAX] {
        let read = crate::fd_readdir(&mut run.0, &mut run.2, 3, 0, 100, behind, 512);
        assert_eq!((read, run.2[512]), (Ok(Errno::SUCCESS), 0));
    }
}

#[test]
fn equal_inputs_make_equal_worlds() {
    let run = |body: &[u8]| {
        let mut run = PureRun::new(body);
        (run.time(0), run.time(1), run.time(2), run.random(), run.random())
    };
    assert_eq!(run(b"1"), run(b"1"));
    assert_ne!(run(b"1").3, run(b"2").3);
    assert_ne!(run(b"1").3, run(b"1").4);
}

#[test]
fn a_pure_functions_sleep_takes_no_time() {
    let mut run = PureRun::new(b"");
    let before = run.time(1);
    // An hour, by the monotonic clock.
    run.2[16] = 1;
    let hour = 3_600_000_000_000_u64;
    run.2[24..32].copy_from_slice(&hour.to_le_bytes());
    let done = crate::poll_oneoff(&mut run.0, &mut run.2, 0, 100, 1, 512);
    assert_eq!(done, Ok(Poll::Ready(Errno::SUCCESS)));
    assert_eq!(run.2[512], 1);
    assert!((hour..hour + 1_000_000).contains(&(run.time(1) - before)));
}

#[test]
fn what_is_no_input_is_said() {
    let protocol = Protocol::Pure {
        inputs: Vec::new(),
        outputs: Vec::new(),
        content_type: Bytes::new(),
    };
    let (mut command, _) = command_of(Grant { protocol, ..grant() }, b"x");
    assert!(matches!(complete(&mut command), Err(Fault::BadInput { .. })));
}

#[test]
fn a_pure_functions_outputs_are_bounded() {
    let mut run = PureRun::new(b"");
    let left = run.open("out/x/y", true);
    for _ in 0..10 {
        run.write(left, &"x".repeat(101));
    }
    assert_eq!(
        run.0.finish(0),
        Err(Fault::OutputTooLarge {
            limit: ByteSize(1000)
        })
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn no_argument_makes_a_function_panic(
        mut memory in proptest::collection::vec(prop_oneof![Just(0u8), 0..60u8, any::<u8>()], 0..256),
        calls in proptest::collection::vec(
            (0..crate::FUNCTIONS.len(), proptest::collection::vec(argument(), 9)),
            1..40,
        ),
        kind in 0..3,
    ) {
        let protocol = match kind {
            0 => grant().protocol,
            1 => Protocol::Cgi,
            _ => pure(),
        };
        let mut grant = Grant { protocol, ..grant() };
        grant.limits.memory = ByteSize(1 << 16);
        let (mut command, recorder) = command_of(grant, b"some input");
        prop_assert!(complete(&mut command).is_ok());
        for (number, arguments) in calls {
            let errno = call(number, &mut command, &mut memory, &arguments);
            prop_assert!(errno.is_none_or(|errno| errno.0 <= 76));
        }
        let finished = command.finish(0);
        prop_assert_eq!(finished.is_ok(), recorder.0.lock().unwrap().head.is_some());
        prop_assert!(recorder.body().len() <= 1000);
    }

    #[test]
    fn what_a_guest_may_not_name_stays_as_it_was(
        address in any::<u32>(), length in any::<u32>(), fill in any::<u8>(),
    ) {
        let mut memory = vec![fill; 256];
        let inside = u64::from(address) + u64::from(length) <= 256;
        let (mut command, _) = command(b"");
        let errno = crate::random_get(&mut command, &mut memory, address, length).unwrap();
        prop_assert_eq!(errno == Errno::SUCCESS, inside);
        if !inside {
            prop_assert!(memory.iter().all(|byte| *byte == fill));
        }
    }
}
