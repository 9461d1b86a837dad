//! A host and a guest that keep to the rules, on a real region with real doorbells: in two threads, and in two processes.

#![cfg(feature = "std")]

extern crate millpond_ring as ring;

#[path = "channel/mapping.rs"]
mod mapping;
#[path = "channel/random.rs"]
mod random;

use mapping::Mapping;
use random::Random;
use ring::{
    Bell, GuestEnd, Heard, HostEnd, Region, bells,
    channel::{End, Message, SendError},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::dup,
};
use std::{
    env,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    process::{Command, Stdio},
    thread,
};

const SLOTS: u32 = 16;
const SIZE: usize = 1 << 16;

/// The last message, which has no answer.
const END: u64 = u64::MAX;

fn end(mapping: &Mapping) -> End {
    // SAFETY: each test makes one of a mapping, and drops it before.
    unsafe { End::guest(mapping.start, mapping.size) }.unwrap()
}

/// A question: its number, a place (of no length, mostly), and what else.
fn question(number: u64, bulk: usize, random: &mut Random) -> Message {
    let length = match random.below(8) {
        0 => 1 + random.below(300),
        _ => 0,
    };
    // Each question that can be under way has bytes of its own.
    let offset = bulk as u64 + number % u64::from(SLOTS) * 512;
    let mut message = [number, offset, length, 0, 0, 0, 0, 0];
    for word in &mut message[3..] {
        *word = random.next();
    }
    message
}

fn answer(question: &Message) -> Message {
    question.map(|word| word ^ 0xa5a5_5a5a)
}

/// Answers all questions, and inverts the bytes that they are about. Waits for nothing but its doorbell; how often,
/// it answers.
fn serve(end: &mut End, bell: &Bell, mut random: Random) -> u32 {
    let mut waits = 0;
    loop {
        // Now and then it sleeps at once, whatever there is.
        let next = match random.below(4) {
            0 => None,
            _ => end.receive().unwrap(),
        };
        match next {
            Some([END, ..]) => return waits,
            Some(question) => {
                let place = end.layout().place(question[1], question[2]).unwrap();
                let start = end.pointer(place).unwrap();
                for index in 0..place.len() {
                    // SAFETY: the place is in bulk, and the host leaves it alone until the answer.
                    unsafe { start.add(index).write(!start.add(index).read()) };
                }
                if end.send(answer(&question)).unwrap().must_ring {
                    bell.ring().unwrap();
                }
            }
            None if end.sleep().unwrap() => {
                assert!(bell.wait().unwrap());
                waits += 1;
            }
            None => {}
        }
    }
}

/// Its doorbell, which comes, or the test fails.
fn wait(bell: &Bell) {
    let timeout = Timespec {
        tv_sec: 60,
        tv_nsec: 0,
    };
    let rung = poll(&mut [PollFd::new(bell, PollFlags::IN)], Some(&timeout)).unwrap();
    assert_eq!(rung, 1, "nobody rang");
    assert_eq!(bell.heard().unwrap(), Heard::Rung);
}

/// Asks so many questions, never more at a time than there are slots. How often it waited.
fn ask(host: &mut HostEnd, bell: &Bell, questions: u64, mut random: Random) -> u32 {
    let bulk = host.layout().bulk().start;
    let (mut asked, mut answered, mut waits) = (0, 0, 0);
    let mut waiting: Vec<(Message, Vec<u8>)> = Vec::new();
    let send = |host: &mut HostEnd, message| {
        if host.send(message).unwrap().must_ring {
            bell.ring().unwrap();
        }
    };
    while answered < questions {
        let most = random.below(u64::from(SLOTS) + 1);
        while asked < questions && asked - answered < most {
            let question = question(asked, bulk, &mut random);
            let place = host.layout().place(question[1], question[2]).unwrap();
            let bytes: Vec<u8> = (0..place.len()).map(|_| random.next() as u8).collect();
            host.copy_in(place, &bytes).unwrap();
            send(host, question);
            waiting.push((question, bytes));
            asked += 1;
        }
        let most = random.below(u64::from(SLOTS) + 1);
        for _ in 0..most {
            let Some(received) = host.receive().unwrap() else {
                break;
            };
            let (question, bytes) = waiting.remove(0);
            assert_eq!(received, answer(&question));
            let place = host.layout().place(question[1], question[2]).unwrap();
            let mut inverted = vec![0; place.len()];
            host.copy_out(place, &mut inverted).unwrap();
            assert!(bytes.iter().zip(&inverted).all(|(byte, its)| *byte == !its));
            answered += 1;
        }
        if asked > answered && host.sleep().unwrap() {
            wait(bell);
            waits += 1;
        }
    }
    assert_eq!(host.receive(), Ok(None));
    send(host, [END; 8]);
    waits
}

#[test]
fn a_hundred_thousand_questions_are_answered() {
    let (host_bell, guest_bell) = bells().unwrap();
    let mut host = HostEnd::new(Region::new(SIZE).unwrap(), SLOTS).unwrap();
    let mapping = Mapping::new(host.shared().file());
    let guest = thread::spawn(move || serve(&mut end(&mapping), &guest_bell, Random(1)));
    let waits = ask(&mut host, &host_bell, 100_000, Random(2));
    let its = guest.join().unwrap();
    assert!(waits > 0 && its > 0, "nobody slept: {waits} {its}");
}

/// Both send as fast as they can and are held back by full rings.
#[test]
fn two_streams_meet() {
    const MESSAGES: u64 = 100_000;
    fn stream(
        mut send: impl FnMut(Message) -> Result<bool, SendError>,
        mut receive: impl FnMut() -> Option<Message>,
    ) {
        let (mut sent, mut received) = (0, 0);
        while sent < MESSAGES || received < MESSAGES {
            if sent < MESSAGES {
                match send([sent; 8]) {
                    Ok(must_ring) => {
                        assert!(!must_ring);
                        sent += 1;
                    }
                    Err(error) => {
                        assert_eq!(error, SendError::Full([sent; 8]));
                        thread::yield_now();
                    }
                }
            }
            if let Some(message) = receive() {
                assert_eq!(message, [received; 8]);
                received += 1;
            }
        }
    }
    let host = HostEnd::new(Region::new(SIZE).unwrap(), 4).unwrap();
    let mapping = Mapping::new(host.shared().file());
    let guest = thread::spawn(move || {
        let end = std::cell::RefCell::new(end(&mapping));
        stream(
            |message| end.borrow_mut().send(message).map(|sent| sent.must_ring),
            || end.borrow_mut().receive().unwrap(),
        );
    });
    let host = std::cell::RefCell::new(host);
    stream(
        |message| host.borrow_mut().send(message).map(|sent| sent.must_ring),
        || host.borrow_mut().receive().unwrap(),
    );
    guest.join().unwrap();
}

const BELL: &str = "MILLPOND_TEST_CHANNEL";

/// The guest of the test below, if that has started this program.
#[test]
fn guest_process() {
    let Ok(file) = env::var(BELL) else { return };
    // SAFETY: the parent left it open for this function alone.
    let bell = Bell::new(unsafe { OwnedFd::from_raw_fd(file.parse().unwrap()) });
    let mapping = Mapping::new(bell.take().unwrap().unwrap());
    serve(&mut end(&mapping), &bell, Random(3));
}

#[test]
fn another_process_answers() {
    let (host_bell, guest_bell) = bells().unwrap();
    let mut host = HostEnd::new(Region::new(SIZE).unwrap(), SLOTS).unwrap();
    host_bell.give(host.shared().file()).unwrap();
    // Without the flag that closes it.
    let file = dup(&guest_bell).unwrap();
    let mut guest = Command::new(env::current_exe().unwrap())
        .args(["--exact", "guest_process"])
        .env(BELL, file.as_raw_fd().to_string())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    drop((file, guest_bell));
    ask(&mut host, &host_bell, 5_000, Random(4));
    let last = host.layout().place(SIZE as u64 - 5, 5).unwrap();
    host.copy_in(last, b"final").unwrap();
    assert!(guest.wait().unwrap().success());
    while host_bell.heard().unwrap() != Heard::Gone {}
    // SAFETY: the guest has ended, and what was open for it here is closed.
    let region = unsafe { host.into_shared().reclaim() };
    assert_eq!(region.into_parts(&[last.range()]).unwrap(), ["final"]);
}

/// A region has one channel after the other.
#[test]
fn a_channel_begins_anew_in_memory_that_had_one() {
    let mut region = Region::new(SIZE).unwrap();
    for round in 1..=3 {
        let mut host = HostEnd::new(region, SLOTS).unwrap();
        let mapping = Mapping::new(host.shared().file());
        let mut guest = end(&mapping);
        assert_eq!(host.receive(), Ok(None));
        for number in 0..round {
            assert!(!host.send([number; 8]).unwrap().must_ring);
            assert!(!guest.send([number; 8]).unwrap().must_ring);
        }
        assert_eq!(guest.receive(), Ok(Some([0; 8])));
        drop(mapping);
        // SAFETY: the other mapping is gone.
        region = unsafe { host.into_shared().reclaim() };
    }
    assert!(HostEnd::new(region, 1 << 15).is_err());
}

#[test]
fn doorbells_are_heard() {
    let (host, guest) = bells().unwrap();
    assert_eq!(host.heard(), Ok(Heard::Nothing));
    guest.ring().unwrap();
    guest.ring().unwrap();
    wait(&host);
    assert_eq!(host.heard(), Ok(Heard::Nothing));
    // One before the wait, and one after the last.
    host.ring().unwrap();
    assert!(guest.wait().unwrap());
    host.ring().unwrap();
    host.ring().unwrap();
    assert!(guest.wait().unwrap());
    assert_eq!(guest.heard(), Ok(Heard::Nothing));
    // What was rung before the end is heard before it.
    host.ring().unwrap();
    drop(host);
    assert!(guest.wait().unwrap());
    assert!(!guest.wait().unwrap());
    guest.ring().unwrap();
}

#[test]
fn a_guest_has_its_end_by_the_bell() {
    let (host_bell, guest_bell) = bells().unwrap();
    let mut host = HostEnd::new(Region::new(SIZE).unwrap(), SLOTS).unwrap();
    host_bell.give(host.shared().file()).unwrap();
    let mut guest = GuestEnd::open(guest_bell.take().unwrap().unwrap()).unwrap();
    let bulk = guest.bulk();
    assert_eq!(bulk, host.layout().bulk());
    assert_eq!(guest.place(bulk.end as u64, 1), None);
    let place = guest.place(bulk.start as u64, 4).unwrap();
    guest.copy_in(place, b"pond").unwrap();
    let _ = guest.send([7; 8]).unwrap();
    assert_eq!(host.receive(), Ok(Some([7; 8])));
    let mut seen = [0; 4];
    host.copy_out(place, &mut seen).unwrap();
    assert_eq!(&seen, b"pond");

    host_bell.ring().unwrap();
    assert!(guest_bell.take().is_err(), "it was rung, and nothing given");
    drop(host_bell);
    assert!(guest_bell.take().unwrap().is_none());
    let no_channel = Region::new(SIZE).unwrap().share();
    assert!(GuestEnd::open(no_channel.file().try_clone_to_owned().unwrap()).is_err());
}
