use super::*;

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn files(room: usize) -> Files {
    let item = |name: &str, data: &'static [u8]| Item {
        name: name.to_owned(),
        key: 0,
        data: Bytes::from_static(data),
    };
    let inputs = [
        Set {
            name: "a".to_owned(),
            items: vec![item("one", b"11"), item("two", b"")],
        },
        Set {
            name: "none".to_owned(),
            items: Vec::new(),
        },
    ];
    Files::new(&inputs, &names(&["x", "y"]), room)
}

const READ: How = How {
    create: false,
    directory: false,
    exclusive: false,
    truncate: false,
    reads: true,
    writes: false,
    appends: false,
};
const WRITE: How = How {
    create: true,
    writes: true,
    ..READ
};

fn whole(files: &mut Files, path: &str) -> Result<Vec<u8>, Errno> {
    let fd = files.open(ROOT, path, READ)?;
    let mut bytes = vec![0; 100];
    let count = files.read(fd, &mut bytes)?;
    bytes.truncate(count);
    files.close(fd)?;
    Ok(bytes)
}

fn put(files: &mut Files, path: &str, bytes: &[u8]) -> Result<(), Errno> {
    let fd = files.open(ROOT, path, WRITE)?;
    let done = files.write(fd, bytes);
    files.close(fd)?;
    done.map(drop)
}

fn listed(files: &Files, fd: u32) -> Vec<String> {
    let entries = files.entries_from(fd, 0).unwrap();
    entries.map(|(name, _)| name.to_owned()).collect()
}

#[test]
fn inputs_are_there_and_cannot_be_changed() {
    let mut files = files(1 << 20);
    assert_eq!(listed(&files, ROOT), [".", "..", "in", "out", "tmp"]);
    assert_eq!(whole(&mut files, "in/a/one"), Ok(b"11".to_vec()));
    assert_eq!(whole(&mut files, "./in//none/../a/one"), Ok(b"11".to_vec()));
    assert_eq!(whole(&mut files, "in/a/two"), Ok(Vec::new()));
    let refused = [
        put(&mut files, "in/a/one", b"x"),
        put(&mut files, "in/a/three", b"x"),
        put(&mut files, "new", b"x"),
        files.create_directory(ROOT, "in/b"),
        files.remove_file(ROOT, "in/a/one"),
        files.remove_directory(ROOT, "in/none"),
        files.remove_directory(ROOT, "tmp"),
        files.rename(ROOT, "in/a/one", ROOT, "out/x/one"),
        files.rename(ROOT, "out/x", ROOT, "in/x"),
    ];
    assert_eq!(refused, [Err(Errno::ROFS); 9]);
}

#[test]
fn outputs_are_what_was_left() {
    let mut files = files(1 << 20);
    put(&mut files, "out/x/b", b"12").unwrap();
    put(&mut files, "tmp/part", b"3").unwrap();
    files.rename(ROOT, "tmp/part", ROOT, "out/x/a").unwrap();
    put(&mut files, "tmp/rest", b"4").unwrap();
    let sets = files.take_outputs(&names(&["x", "y"])).unwrap();
    let found: Vec<_> = sets[0]
        .items
        .iter()
        .map(|item| (item.name.as_str(), &*item.data))
        .collect();
    assert_eq!(found, [("a", b"3".as_slice()), ("b", b"12")]);
    assert!(sets[1].items.is_empty());
}

#[test]
fn items_are_handed_on_where_they_lie() {
    let mut files = files(1 << 20);
    let fd = files.open(ROOT, "out/x/one", WRITE).unwrap();
    files.write(fd, b"answer").unwrap();
    let written = files.content(fd).unwrap().as_ptr();
    let sets = files.take_outputs(&names(&["x", "y"])).unwrap();
    let mut next = Files::new(&sets, &names(&["z"]), 1 << 20);
    let fd = next.open(ROOT, "in/x/one", READ).unwrap();
    let given = next.content(fd).unwrap();
    assert_eq!((given, given.as_ptr()), (b"answer".as_slice(), written));
}

#[test]
fn what_is_no_item_is_named() {
    let outputs = names(&["x", "y"]);
    let stray = |make: &dyn Fn(&mut Files)| {
        let mut files = files(1 << 20);
        make(&mut files);
        files.take_outputs(&outputs).unwrap_err()
    };
    assert!(stray(&|files| put(files, "out/z", b"").unwrap()).contains("`/out/z`"));
    assert!(
        stray(&|files| files.create_directory(ROOT, "out/x/d").unwrap())
            .contains("`/out/x/d` as a directory")
    );
    let replaced = stray(&|files| {
        files.remove_directory(ROOT, "out/x").unwrap();
        put(files, "out/x", b"").unwrap();
    });
    assert!(replaced.contains("`/out/x` as a file"), "{replaced}");
}

#[test]
fn nothing_leads_out() {
    let mut files = files(1 << 20);
    let below = files
        .open(
            ROOT,
            "out",
            How {
                directory: true,
                ..READ
            },
        )
        .unwrap();
    for path in ["..", "../in", "x/../../in/a/one", "/in", "/"] {
        assert_eq!(files.stat_at(below, path), Err(Errno::NOTCAPABLE), "{path}");
    }
    assert!(files.stat_at(below, "x/..").is_ok());
    assert_eq!(files.stat_at(ROOT, "in/a/one/.."), Err(Errno::NOTDIR));
    assert_eq!(files.stat_at(ROOT, ""), Err(Errno::NOENT));
    assert_eq!(files.stat_at(ROOT, &"x".repeat(256)), Err(Errno::NAMETOOLONG));
}

#[test]
fn positions_sizes_and_appending_are_as_in_posix() {
    let mut files = files(1 << 20);
    let fd = files.open(ROOT, "tmp/f", WRITE).unwrap();
    assert_eq!(files.write(fd, b"hello"), Ok(5));
    assert_eq!(files.seek(fd, -1, Whence::Here), Ok(4));
    assert_eq!(files.seek(fd, -5, Whence::Here), Err(Errno::INVAL));
    assert_eq!(files.seek(fd, 2, Whence::End), Ok(7));
    assert_eq!(files.write(fd, b"!"), Ok(1));
    assert_eq!(whole(&mut files, "tmp/f"), Ok(b"hello\0\0!".to_vec()));
    files.set_size(fd, 2).unwrap();
    files.allocate(fd, 1).unwrap();
    files.set_appends(fd, true).unwrap();
    files.seek(fd, 0, Whence::Start).unwrap();
    files.write(fd, b"y").unwrap();
    assert_eq!(whole(&mut files, "tmp/f"), Ok(b"hey".to_vec()));
    assert_eq!(
        files.open(
            ROOT,
            "tmp/f",
            How {
                exclusive: true,
                ..WRITE
            }
        ),
        Err(Errno::EXIST)
    );
    let cut = files
        .open(
            ROOT,
            "tmp/f",
            How {
                truncate: true,
                ..WRITE
            },
        )
        .unwrap();
    assert_eq!(files.stat(cut).unwrap().size, 0);
    assert_eq!(files.read(cut, &mut [0; 4]), Ok(0));
    let blind = files
        .open(
            ROOT,
            "tmp/f",
            How {
                reads: false,
                ..WRITE
            },
        )
        .unwrap();
    assert_eq!(files.read(blind, &mut [0; 4]), Err(Errno::NOTCAPABLE));
    let tight = files.open(ROOT, "tmp/f", READ).unwrap();
    assert_eq!(files.write(tight, b"x"), Err(Errno::NOTCAPABLE));
}

#[test]
fn room_is_bounded_and_comes_back() {
    let mut files = files(10_000);
    let before = files.room;
    assert_eq!(put(&mut files, "tmp/f", &[0; 9_000]), Ok(()));
    assert_eq!(put(&mut files, "tmp/g", &[0; 9_000]), Err(Errno::NOSPC));
    files.remove_file(ROOT, "tmp/g").unwrap();
    let fd = files.open(ROOT, "tmp/f", READ).unwrap();
    files.remove_file(ROOT, "tmp/f").unwrap();
    assert_eq!(files.read(fd, &mut [0; 4]), Ok(4));
    assert!(files.room < before);
    files.close(fd).unwrap();
    assert_eq!(files.room, before);
    assert_eq!(files.seek(fd, 0, Whence::Start), Err(Errno::BADF));
    assert_eq!(files.open(ROOT, "tmp/f", READ), Err(Errno::NOENT));
    let many = (0..)
        .map(|n| put(&mut files, &format!("tmp/{n}"), b""))
        .take_while(Result::is_ok);
    assert!((10..100).contains(&many.count()));
}

#[test]
fn directories_move_but_not_into_themselves() {
    let mut files = files(1 << 20);
    files.create_directory(ROOT, "tmp/a").unwrap();
    files.create_directory(ROOT, "tmp/a/b").unwrap();
    assert_eq!(files.rename(ROOT, "tmp/a", ROOT, "tmp/a/b/c"), Err(Errno::INVAL));
    assert_eq!(files.remove_directory(ROOT, "tmp/a"), Err(Errno::NOTEMPTY));
    put(&mut files, "tmp/f", b"f").unwrap();
    assert_eq!(files.rename(ROOT, "tmp/a", ROOT, "tmp/f"), Err(Errno::NOTDIR));
    assert_eq!(files.rename(ROOT, "tmp/f", ROOT, "tmp/a"), Err(Errno::ISDIR));
    files.rename(ROOT, "tmp/a/b", ROOT, "tmp/c").unwrap();
    files.rename(ROOT, "tmp/c", ROOT, "tmp/a").unwrap();
    files.rename(ROOT, "tmp/f", ROOT, "tmp/f").unwrap();
    assert_eq!(files.create_directory(ROOT, "tmp/a"), Err(Errno::EXIST));
    assert_eq!(files.create_directory(ROOT, "tmp/f"), Err(Errno::EXIST));
    assert_eq!(files.remove_file(ROOT, "tmp/a"), Err(Errno::ISDIR));
    assert_eq!(files.remove_directory(ROOT, "tmp/f"), Err(Errno::NOTDIR));
    files.remove_directory(ROOT, "tmp/a").unwrap();
    let folder = files.open(ROOT, "tmp", READ).unwrap();
    assert_eq!(listed(&files, folder), [".", "..", "f"]);
}

#[test]
fn descriptors_are_bounded_and_move() {
    let mut files = files(1 << 20);
    let first = files.open(ROOT, "in/a/one", READ).unwrap();
    let second = files.open(ROOT, "in/a/two", READ).unwrap();
    files.renumber(first, second).unwrap();
    assert!(!files.has(first));
    assert_eq!(files.read(second, &mut [0; 4]), Ok(2));
    assert_eq!(files.renumber(first, second), Err(Errno::BADF));
    let open = (0..)
        .map(|_| files.open(ROOT, "in/a/one", READ))
        .take_while(Result::is_ok);
    assert_eq!(open.count(), MOST_OPEN - 2);
    assert_eq!(files.open(ROOT, "in/a/one", READ), Err(Errno::MFILE));
}
