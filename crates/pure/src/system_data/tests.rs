use super::*;
use proptest::prelude::*;

const AT: u64 = 24;
const BASE: u64 = 0x7000_0000;

fn set(name: &str, items: &[(&str, u64, &'static [u8])]) -> Set {
    let items = items.iter().map(|(name, key, data)| Item {
        name: (*name).to_owned(),
        key: *key,
        data: Bytes::from_static(data),
    });
    Set {
        name: name.to_owned(),
        items: items.collect(),
    }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn text(memory: &Memory<'_>, address: u64, length: u64) -> String {
    String::from_utf8(memory.slice(address, length).unwrap().to_vec()).unwrap()
}

/// Name, key and data.
type Items = Vec<(String, u64, Vec<u8>)>;

/// What a guest makes of the structure: its input sets.
fn inputs<W: Word>(memory: &Memory<'_>) -> Vec<(String, Items)> {
    let word = |at, number| memory.word::<W>(at, number).unwrap();
    let size = W::SIZE as u64;
    let (count, sets, buffers) = (word(AT, 3), word(AT, 4), word(AT, 7));
    let set = |index: u64| sets + index * 3 * size;
    (0..count)
        .map(|index| {
            let items = (word(set(index), 2)..word(set(index + 1), 2)).map(|buffer| {
                let at = buffers + buffer * 5 * size;
                let data = memory.slice(word(at, 2), word(at, 3)).unwrap().to_vec();
                (text(memory, word(at, 0), word(at, 1)), word(at, 4), data)
            });
            (
                text(memory, word(set(index), 0), word(set(index), 1)),
                items.collect(),
            )
        })
        .collect()
}

fn both(test: impl Fn(&mut Memory<'_>, bool)) {
    for wide in [false, true] {
        let mut bytes = vec![0xaa; 8192];
        let base = if wide { BASE } else { 0 };
        test(
            &mut Memory {
                bytes: &mut bytes,
                base,
            },
            wide,
        );
    }
}

fn place_any(
    memory: &mut Memory<'_>,
    wide: bool,
    inputs: &[Set],
    outputs: &[String],
) -> Result<(), BadInputs> {
    let (at, free) = (
        memory.base + AT,
        memory.base + 256..memory.base + memory.bytes.len() as u64,
    );
    if wide {
        place::<u64>(memory, at, free, inputs, outputs)
    } else {
        place::<u32>(memory, at, free, inputs, outputs)
    }
}

/// What [`find`] finds, copied.
fn collect<W: Word>(
    memory: &Memory<'_>,
    at: u64,
    outputs: &[String],
    most: u64,
) -> Result<(i32, Vec<Set>), BadOutputs> {
    let (code, found) = find::<W>(memory, at, outputs, most)?;
    let copy = |data| Bytes::copy_from_slice(&memory.bytes[data]);
    Ok((code, found.into_iter().map(|set| set.with(copy)).collect()))
}

fn collect_any(
    memory: &Memory<'_>,
    wide: bool,
    outputs: &[String],
    most: u64,
) -> Result<(i32, Vec<Set>), BadOutputs> {
    if wide {
        collect::<u64>(memory, memory.base + AT, outputs, most)
    } else {
        collect::<u32>(memory, AT, outputs, most)
    }
}

/// Writes words of the guest's.
fn write(memory: &mut Memory<'_>, wide: bool, at: u64, words: &[u64]) {
    if wide {
        memory.put::<u64>(at, words).unwrap();
    } else {
        memory.put::<u32>(at, words).unwrap();
    }
}

#[test]
fn the_structure_is_that_of_the_sdk() {
    assert_eq!((size::<u32>(), size::<u64>()), (36, 72));
}

#[test]
fn a_guest_finds_its_inputs() {
    let given = [
        set("a", &[("one", 1, b"1"), ("two", 2, b"")]),
        set("none", &[]),
        set("b", &[("three", 3, b"333")]),
    ];
    let found = |memory: &Memory<'_>, wide| {
        if wide {
            // The tests' guest reads the structure at AT without a base.
            let word = |number| memory.word::<u64>(memory.base + AT, number).unwrap();
            assert_eq!((word(3), word(5)), (3, 1));
            assert!(word(1) % 16 == 0 && word(1) > memory.base + 256);
            assert_eq!(word(2), memory.base + 8192);
        } else {
            let wanted: Vec<_> = given
                .iter()
                .map(|set| {
                    let items = set.items.iter();
                    let items = items.map(|item| (item.name.clone(), item.key, item.data.to_vec()));
                    (set.name.clone(), items.collect())
                })
                .collect();
            assert_eq!(inputs::<u32>(memory), wanted);
        }
    };
    both(|memory, wide| {
        place_any(memory, wide, &given, &names(&["out"])).unwrap();
        found(memory, wide);
        let untouched = collect_any(memory, wide, &names(&["out"]), 100);
        assert_eq!(untouched, Ok((UNTOUCHED, Vec::new())));
    });
}

#[test]
fn data_that_fills_a_line_of_the_cache_begins_one() {
    let given = [set(
        "a",
        &[("odd", 0, b"1"), ("line", 0, &[7; 64]), ("more", 0, &[7; 65])],
    )];
    both(|memory, wide| {
        place_any(memory, wide, &given, &[]).unwrap();
        let word = |at, number| {
            if wide {
                memory.word::<u64>(at, number).unwrap()
            } else {
                memory.word::<u32>(at, number).unwrap()
            }
        };
        let buffers = word(memory.base + AT, 7);
        let data = [0, 1, 2].map(|item| word(buffers, item * BUFFER + 2));
        assert_eq!(data[0] % ALIGNMENT, 0);
        assert_eq!([data[1] % LINE, data[2] % LINE], [0, 0]);
    });
}

#[test]
fn inputs_that_do_not_fit_are_refused() {
    both(|memory, wide| {
        let large = Item {
            data: vec![0; 8000].into(),
            ..Item::default()
        };
        let set = Set {
            name: "a".to_owned(),
            items: vec![large],
        };
        let refused = place_any(memory, wide, &[set], &[]);
        assert!(matches!(refused, Err(BadInputs::NoRoom { needed: 8001.., room }) if room == 8192 - 256));
        let refused = place_any(memory, wide, &[self::set("a", &[("x", 1 << 32, b"")])], &[]);
        assert_eq!(refused.is_ok(), wide, "{refused:?}");
    });
}

/// A guest that has left one item, and may then change anything.
fn answered(memory: &mut Memory<'_>, wide: bool) -> (u64, u64) {
    place_any(memory, wide, &[], &names(&["out", "more"])).unwrap();
    let size = if wide { 8 } else { 4 };
    let base = memory.base;
    let read = |memory: &Memory<'_>, number| {
        if wide {
            memory.word::<u64>(base + AT, number)
        } else {
            memory.word::<u32>(AT, number)
        }
    };
    let (heap, sets) = (read(memory, 1).unwrap(), read(memory, 6).unwrap());
    memory.slice_mut(heap, 8).unwrap().copy_from_slice(b"namedata");
    let buffer = heap + 16;
    write(memory, wide, buffer, &[heap, 4, heap + 4, 4, 9]);
    write(memory, wide, sets + 5 * size, &[1]);
    write(memory, wide, sets + 8 * size, &[1]);
    write(memory, wide, base + AT + 8 * size, &[buffer]);
    memory.slice_mut(base + AT, 4).unwrap().fill(0);
    (sets, buffer)
}

#[test]
fn outputs_are_collected() {
    both(|memory, wide| {
        answered(memory, wide);
        let outputs = names(&["out", "more"]);
        let (code, sets) = collect_any(memory, wide, &outputs, 4).unwrap();
        assert_eq!(code, 0);
        assert_eq!(sets, [set("out", &[("name", 9, b"data")]), set("more", &[])]);
        assert_eq!(
            collect_any(memory, wide, &outputs, 3),
            Err(BadOutputs::TooLarge(3))
        );
    });
}

#[test]
fn what_a_guest_must_not_leave_is_named() {
    let outputs = names(&["out", "more"]);
    let far = 0xffff_fff0;
    both(|memory, wide| {
        let size = if wide { 8 } else { 4 };
        let wrong = |memory: &mut Memory<'_>, at: u64, value: u64, expected: &str| {
            let (sets, buffer) = answered(memory, wide);
            let structure = memory.base + AT;
            let at = match at {
                0..100 => structure + at * size,
                100..200 => sets + (at - 100) * size,
                _ => buffer + (at - 200) * size,
            };
            write(memory, wide, at, &[value]);
            let said = collect_any(memory, wide, &outputs, 1 << 40)
                .unwrap_err()
                .to_string();
            assert!(said.contains(expected), "{said}");
        };
        wrong(memory, 5, 3, "3 output sets in place of 2");
        wrong(memory, 6, far, "an output set lies outside");
        wrong(memory, 8, far, "an output buffer lies outside");
        wrong(memory, 102, 1, "do not say which");
        wrong(memory, 105, 2, "do not say which");
        wrong(memory, 108, 70_000, "do not say which");
        wrong(memory, 200, far, "an item's name lies outside");
        wrong(memory, 201, 0, "bad name: a name has 1 to 255 bytes");
        wrong(memory, 201, far, "an item's name lies outside");
        wrong(memory, 202, far, "an item's data lies outside");
        wrong(memory, 203, far, "an item's data lies outside");
    });
}

#[test]
fn items_of_a_set_are_called_differently() {
    both(|memory, wide| {
        let size = if wide { 8 } else { 4 };
        let (sets, buffer) = answered(memory, wide);
        let words: Vec<u8> = memory.slice(buffer, 5 * size).unwrap().to_vec();
        memory
            .slice_mut(buffer + 5 * size, words.len())
            .unwrap()
            .copy_from_slice(&words);
        write(memory, wide, sets + 5 * size, &[2]);
        write(memory, wide, sets + 8 * size, &[2]);
        let said = collect_any(memory, wide, &names(&["out", "more"]), 100);
        assert!(matches!(said, Err(BadOutputs::Twice { .. })), "{said:?}");
    });
}

proptest! {
    #[test]
    fn whatever_a_guest_leaves_is_outputs_or_an_error(
        changes in prop::collection::vec((0_usize..600, any::<u8>()), 0..60),
        wide in any::<bool>(),
    ) {
        let mut bytes = vec![0; 2048];
        let base = if wide { BASE } else { 0 };
        let mut memory = Memory { bytes: &mut bytes, base };
        answered(&mut memory, wide);
        for (at, value) in changes {
            memory.bytes[at] = value;
        }
        if let Ok((_, sets)) = collect_any(&memory, wide, &names(&["out", "more"]), 500) {
            let items = sets.iter().flat_map(|set| &set.items);
            prop_assert!(items.map(|item| item.data.len()).sum::<usize>() <= 500);
        }
    }
}
