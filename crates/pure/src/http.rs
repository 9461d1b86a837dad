//! Sets in requests and responses.
//!
//! A request's body that is no form is one item, `body`, of the function's first input set. A form (`multipart/form-data`, RFC 7578)
//! has a part for each item, called `SET/ITEM`; a part called `SET` has its file's name, or its number among the parts of that set.
//! A part's header `Millpond-Key` is its item's key. The response is the item, if there is one output set with one item, and a form of the same kind
//! else. Items lie in the body that they came in, and are pieces of the response that they leave in: neither copies them.

use crate::{BadName, Item, MOST_ITEMS, Set, check_name};
use bytes::Bytes;
use futures_util::{FutureExt as _, stream};
use std::{collections::HashSet, convert::Infallible, iter};

/// The header of a part that has its item's key.
const KEY: &str = "millpond-key";

/// The item that a body is which is no form.
const BODY: &str = "body";

/// What is wrong with a request, for whoever sent it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRequest {
    /// It is not the form that its content type says.
    #[error("the body is not the `multipart/form-data` that its content type says: {0}")]
    NotAForm(String),
    /// A part has no name.
    #[error("part {0} of the form has no name: call it `SET/ITEM`")]
    Nameless(usize),
    /// A part's set or item has a bad name.
    #[error("`{name}` in the form: {why}")]
    Name {
        /// The part's.
        name: String,
        /// What is wrong with it.
        why: BadName,
    },
    /// A part is of a set that the function does not have.
    #[error("the function has no input set `{set}`; it has {}", list(.known))]
    Unknown {
        /// The set.
        set: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// Two parts are the same item.
    #[error("the form has `{0}` twice")]
    Twice(String),
    /// A key is no number.
    #[error("the key of `{0}` is no number of 64 bits")]
    Key(String),
    /// There are too many.
    #[error("the form has more than {MOST_ITEMS} items")]
    TooMany,
    /// There is a body, and the function takes none.
    #[error("the function has no input sets, and the request has a body")]
    NotWanted,
}

fn list(names: &[String]) -> String {
    match names {
        [] => "none".to_owned(),
        names => format!("`{}`", names.join("`, `")),
    }
}

/// The input sets in a request: each that the function has, in this order, with the items that the request has of it.
pub fn read_request(
    content_type: Option<&[u8]>,
    body: Bytes,
    inputs: &[String],
) -> Result<Vec<Set>, BadRequest> {
    let empty = |name: &String| Set {
        name: name.clone(),
        items: Vec::new(),
    };
    let mut sets: Vec<Set> = inputs.iter().map(empty).collect();
    let content_type = content_type
        .and_then(|value| str::from_utf8(value).ok())
        .unwrap_or_default();
    let is_form = content_type
        .get(..19)
        .is_some_and(|begin| begin.eq_ignore_ascii_case("multipart/form-data"));
    if is_form {
        let boundary =
            multer::parse_boundary(content_type).map_err(|error| BadRequest::NotAForm(error.to_string()))?;
        read_form(&body, boundary, &mut sets)?;
    } else if !body.is_empty() {
        let first = sets.first_mut().ok_or(BadRequest::NotWanted)?;
        first.items.push(Item {
            name: BODY.to_owned(),
            key: 0,
            data: body,
        });
    }
    Ok(sets)
}

fn read_form(body: &Bytes, boundary: String, sets: &mut [Set]) -> Result<(), BadRequest> {
    let (heads, data) = cut(body, &boundary);
    let heads = stream::iter(iter::once(Ok::<_, Infallible>(Bytes::from(heads))));
    let (mut form, mut data) = (multer::Multipart::new(heads, boundary), data.into_iter());
    let mut seen = HashSet::new();
    // The whole body is here: nothing is ever pending.
    let broken = || BadRequest::NotAForm("it ends too early".to_owned());
    let wrong = |error: multer::Error| BadRequest::NotAForm(error.to_string());
    while let Some(part) = form
        .next_field()
        .now_or_never()
        .ok_or_else(broken)?
        .map_err(wrong)?
    {
        if seen.len() == MOST_ITEMS {
            return Err(BadRequest::TooMany);
        }
        let name = part
            .name()
            .ok_or(BadRequest::Nameless(seen.len() + 1))?
            .to_owned();
        let (set, item) = name
            .split_once('/')
            .map_or((&*name, None), |(set, item)| (set, Some(item)));
        let Some(index) = sets.iter().position(|known| known.name == set) else {
            return Err(BadRequest::Unknown {
                set: set.to_owned(),
                known: sets.iter().map(|set| set.name.clone()).collect(),
            });
        };
        let item = item.or(part.file_name()).map(str::to_owned);
        let item = item.unwrap_or_else(|| sets[index].items.len().to_string());
        check_name(&item).map_err(|why| BadRequest::Name {
            name: name.clone(),
            why,
        })?;
        let whole = format!("{set}/{item}");
        let key = match part.headers().get(KEY) {
            None => 0,
            Some(key) => key
                .to_str()
                .ok()
                .and_then(|key| key.parse().ok())
                .ok_or_else(|| BadRequest::Key(whole.clone()))?,
        };
        if !seen.insert(whole.clone()) {
            return Err(BadRequest::Twice(whole));
        }
        sets[index].items.push(Item {
            name: item,
            key,
            data: data.next().ok_or_else(broken)?,
        });
    }
    Ok(())
}

/// A form whose parts have no data, and their data, which stay where they are: who reads forms copies them. What is no form is cut up to where
/// that shows, and no more parts than there may be, and one.
fn cut(body: &Bytes, boundary: &str) -> (Vec<u8>, Vec<Bytes>) {
    const LINE: &str = "\r\n";
    const HEAD: &str = "\r\n\r\n";
    let (mark, end) = (format!("--{boundary}"), format!("{LINE}--{boundary}"));
    let find = |from: usize, what: &str| {
        let at = memchr::memmem::find(body.get(from..)?, what.as_bytes())?;
        Some(from + at)
    };
    let (mut heads, mut data) = (Vec::new(), Vec::new());
    let mut next = find(0, &mark);
    while let Some(at) = next
        && data.len() <= MOST_ITEMS
    {
        let after = at + mark.len();
        if body[after..].starts_with(b"--") {
            heads.extend_from_slice(&body[at..after + 2]);
            break;
        }
        let Some(head) = find(after, LINE).and_then(|line| find(line + LINE.len(), HEAD)) else {
            heads.extend_from_slice(&body[at..]);
            break;
        };
        let begin = head + HEAD.len();
        heads.extend_from_slice(&body[at..begin]);
        heads.extend_from_slice(LINE.as_bytes());
        next = find(begin, &end).map(|stop| {
            data.push(body.slice(begin..stop));
            stop + LINE.len()
        });
    }
    (heads, data)
}

/// A response with these outputs: its content type, and its body in pieces. `content_type` is that of an item that is alone.
pub fn response(mut sets: Vec<Set>, content_type: &Bytes) -> (Bytes, Vec<Bytes>) {
    if let [set] = sets.as_mut_slice()
        && set.items.len() == 1
        && let Some(item) = set.items.pop()
    {
        return (content_type.clone(), vec![item.data]);
    }
    let boundary = boundary(&sets);
    let mut pieces = Vec::new();
    for set in sets {
        for item in set.items {
            let mut begin = format!(
                "--{boundary}\r\ncontent-disposition: form-data; name=\"{}/{}\"\r\n",
                quoted(&set.name),
                quoted(&item.name)
            );
            if item.key != 0 {
                begin += &format!("{KEY}: {}\r\n", item.key);
            }
            begin += "content-type: application/octet-stream\r\n\r\n";
            pieces.extend([begin.into(), item.data, Bytes::from_static(b"\r\n")]);
        }
    }
    pieces.push(format!("--{boundary}--\r\n").into());
    let content_type = format!("multipart/form-data; boundary={boundary}");
    (content_type.into(), pieces)
}

/// As HTML's forms have names: no quotation mark, and no line's end.
fn quoted(name: &str) -> String {
    name.replace('"', "%22")
}

/// What none of the items has in it: equal outputs make equal responses.
fn boundary(sets: &[Set]) -> String {
    let items = || sets.iter().flat_map(|set| &set.items);
    (0..)
        .map(|number: u64| format!("millpond-{number}"))
        .find(|boundary| items().all(|item| memchr::memmem::find(&item.data, boundary.as_bytes()).is_none()))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn item(name: &str, key: u64, data: &'static [u8]) -> Item {
        Item {
            name: name.to_owned(),
            key,
            data: Bytes::from_static(data),
        }
    }

    fn form(body: &'static str, inputs: &[&str]) -> Result<Vec<Set>, BadRequest> {
        let kind: &[u8] = b"Multipart/Form-Data; boundary=\"x\"";
        read_request(Some(kind), Bytes::from_static(body.as_bytes()), &names(inputs))
    }

    #[test]
    fn a_body_is_an_item_of_the_first_set() {
        let sets = read_request(
            Some(b"text/plain"),
            Bytes::from_static(b"hi"),
            &names(&["a", "b"]),
        )
        .unwrap();
        assert_eq!(sets[0].items, [item("body", 0, b"hi")]);
        assert!(sets[1].items.is_empty());
        let sets = read_request(None, Bytes::new(), &names(&["a"])).unwrap();
        assert!(sets[0].items.is_empty());
        assert_eq!(
            read_request(None, Bytes::from_static(b"hi"), &[]),
            Err(BadRequest::NotWanted)
        );
    }

    #[test]
    fn a_form_has_an_item_in_each_part() {
        let body = "--x\r\nContent-Disposition: form-data; name=\"b/one\"\r\nMillpond-Key: 7\r\n\r\n1\r\n\
            --x\r\nContent-Disposition: form-data; name=\"a\"; filename=\"two.txt\"\r\nContent-Type: text/plain\r\n\r\n22\r\n\
            --x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n\r\n--x--\r\n";
        let sets = form(body, &["a", "b"]).unwrap();
        assert_eq!(sets[0].items, [item("two.txt", 0, b"22"), item("1", 0, b"")]);
        assert_eq!(sets[1].items, [item("one", 7, b"1")]);
    }

    #[test]
    fn what_is_wrong_with_a_form_is_said() {
        let part = |more: &str| {
            let body = format!("--x\r\nContent-Disposition: form-data; {more}\r\n\r\n1\r\n--x--\r\n");
            form(body.leak(), &["a", "b"]).unwrap_err().to_string()
        };
        assert_eq!(
            part("name=\"c/x\""),
            "the function has no input set `c`; it has `a`, `b`"
        );
        assert!(part("name=\"a/x/y\"").contains("no `/`"));
        assert!(part("name=\"a/..\"").contains("`..`"));
        assert!(part("filename=\"y\"").contains("part 1 of the form has no name"));
        assert!(part("name=\"a/x\"\r\nMillpond-Key: many").contains("the key of `a/x`"));
        let twice = "--x\r\nContent-Disposition: form-data; name=\"a/i\"\r\n\r\n1\r\n\
            --x\r\nContent-Disposition: form-data; name=\"a/i\"\r\n\r\n1\r\n--x--\r\n";
        assert_eq!(form(twice, &["a"]), Err(BadRequest::Twice("a/i".to_owned())));
        for broken in [
            "",
            "hello",
            "--x\r\n",
            "--x\r\nContent-Disposition: form-data; name=\"a/i\"\r\n\r\n1",
        ] {
            assert!(
                matches!(form(broken, &["a"]), Err(BadRequest::NotAForm(_))),
                "{broken:?}"
            );
        }
    }

    #[test]
    fn parts_are_counted() {
        let read = |count: usize| {
            let part =
                |n: usize| format!("--x\r\ncontent-disposition: form-data; name=\"a/{n}\"\r\n\r\n{n}\r\n");
            let parts: Vec<_> = (0..count).map(part).collect();
            let body = format!("{}--x--", parts.concat());
            read_request(
                Some(b"multipart/form-data; boundary=x"),
                body.into(),
                &names(&["a"]),
            )
        };
        let sets = read(MOST_ITEMS).unwrap();
        assert_eq!(sets[0].items.len(), MOST_ITEMS);
        assert!(sets[0].items.iter().all(|item| item.data == item.name));
        assert_eq!(read(MOST_ITEMS + 1), Err(BadRequest::TooMany));
    }

    #[test]
    fn items_lie_in_the_body() {
        let body = Bytes::from(format!(
            "--x\r\ncontent-disposition: form-data; name=\"a/1\"\r\n\r\n{}\r\n\
                --x\r\ncontent-disposition: form-data; name=\"a/2\"\r\n\r\n22\r\n--x--\r\n",
            "1".repeat(100_000)
        ));
        let kinds: [(&[u8], _); 2] = [(b"multipart/form-data; boundary=x", 2), (b"text/plain", 1)];
        for (kind, count) in kinds {
            let sets = read_request(Some(kind), body.clone(), &names(&["a"])).unwrap();
            assert_eq!(sets[0].items.len(), count);
            for item in &sets[0].items {
                assert!(body.as_ptr_range().contains(&item.data.as_ptr()), "{}", item.name);
            }
        }
    }

    #[test]
    fn items_are_parts_of_the_response() {
        let items = vec![item("x", 0, &[1; 1000]), item("y", 1, &[2; 1000])];
        let addresses: Vec<_> = items.iter().map(|item| item.data.as_ptr()).collect();
        let set = |items| Set {
            name: "out".to_owned(),
            items,
        };
        let (_, alone) = response(vec![set(items[..1].to_vec())], &Bytes::new());
        assert_eq!(alone[0].as_ptr(), addresses[0]);
        let (_, form) = response(vec![set(items)], &Bytes::new());
        let long = form.iter().filter(|piece| piece.len() == 1000);
        assert_eq!(long.map(|piece| piece.as_ptr()).collect::<Vec<_>>(), addresses);
    }

    /// The parts of a form, names and data, or none if it is no form: as they are read where nobody cuts them.
    fn whole_parts(body: Bytes) -> Option<Vec<(Option<String>, Bytes)>> {
        let body = stream::iter(iter::once(Ok::<_, Infallible>(body)));
        let mut form = multer::Multipart::new(body, "x");
        let mut parts = Vec::new();
        while let Some(part) = form.next_field().now_or_never()?.ok()? {
            let name = part.name().map(str::to_owned);
            parts.push((name, part.bytes().now_or_never()?.ok()?));
        }
        Some(parts)
    }

    proptest::proptest! {
        #[test]
        fn a_form_that_is_cut_is_the_same(
            parts in proptest::collection::vec(
                "--x\r\n|--x|--x--|\r\n|--| |a|x|\r\n--x\r\ncontent-disposition: form-data; name=\"a/[a-e]\"\r\n(a: b\r\n)?\r\n",
                0..16,
            ),
            tail in "(\r\n--x--(\r\n)?)?",
        ) {
            let body = Bytes::from(format!("{}{tail}", parts.concat()));
            let read = read_request(Some(b"multipart/form-data; boundary=x"), body.clone(), &names(&["a"]));
            match (read, whole_parts(body)) {
                (Ok(sets), parts) => {
                    let part = |item: &Item| (Some(format!("a/{}", item.name)), item.data.clone());
                    let found: Vec<_> = sets[0].items.iter().map(part).collect();
                    proptest::prop_assert_eq!(Some(found), parts);
                }
                (Err(BadRequest::NotAForm(_)), parts) => proptest::prop_assert_eq!(parts, None),
                // It is one, and has parts that are nobody's.
                (Err(_), _) => {}
            }
        }

        #[test]
        fn whatever_a_form_is_reading_it_ends(
            parts in proptest::collection::vec("(--x|\r\n|--|\r\n\r\n|content-disposition: form-data; name=|\"a/[a-c]\"|a|\")", 0..12),
        ) {
            let kind: &[u8] = b"multipart/form-data; boundary=x";
            let _ = read_request(Some(kind), parts.concat().into(), &names(&["a"]));
        }
    }

    #[test]
    fn one_item_is_the_response() {
        let set = Set {
            name: "out".to_owned(),
            items: vec![item("x", 3, b"data")],
        };
        let (content_type, body) = response(vec![set], &Bytes::from_static(b"image/png"));
        assert_eq!(content_type, "image/png");
        assert_eq!(body, ["data"]);
    }

    #[test]
    fn other_responses_are_forms_that_can_be_read_again() {
        let sets = vec![
            Set {
                name: "a".to_owned(),
                items: vec![item("x", 3, b"\r\n--millpond-0--\r\n"), item("y", 0, b"")],
            },
            Set {
                name: "b".to_owned(),
                items: Vec::new(),
            },
        ];
        let (kind, body) = response(sets.clone(), &Bytes::new());
        assert!(kind.ends_with(b"boundary=millpond-1"), "{kind:?}");
        let again = read_request(Some(&kind), body.concat().into(), &names(&["a", "b"]));
        assert_eq!(again.unwrap(), sets);
    }
}
