//! Which keys and common prefixes a listing shows: a walk over ordered keys that jumps over common prefixes.
//!
//! <https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectsV2.html>

use std::ops::Bound;

/// What to list.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query {
    pub(crate) prefix: String,
    /// Empty if there is none.
    pub(crate) delimiter: String,
    pub(crate) after: After,
    /// Keys and common prefixes at most.
    pub(crate) limit: usize,
}

/// Where a listing goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum After {
    #[default]
    Nothing,
    /// Behind a key. If it is a common prefix of this listing, behind all that it stands for.
    Key(String),
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item<V> {
    Key(String, V),
    Prefix(String),
}

/// A page of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Page<V> {
    pub(crate) items: Vec<Item<V>>,
    /// Whether there is more. The last item is where it goes on.
    pub(crate) truncated: bool,
}

impl<V> Page<V> {
    /// The last key or common prefix.
    pub(crate) fn last(&self) -> Option<&str> {
        self.items.last().map(|item| match item {
            Item::Key(text, _) | Item::Prefix(text) => text.as_str(),
        })
    }
}

/// The least text that is greater than all that begin with this; `None` if there is none.
fn beyond(prefix: &str) -> Option<String> {
    let mut text = prefix.to_owned();
    while let Some(last) = text.pop() {
        // A range of characters steps over the surrogates.
        if let Some(next) = (last..=char::MAX).nth(1) {
            text.push(next);
            return Some(text);
        }
    }
    None
}

fn start(query: &Query) -> Option<Bound<String>> {
    let After::Key(after) = &query.after else {
        return Some(Bound::Included(query.prefix.clone()));
    };
    if common_prefix(query, after) == Some(after.as_str()) {
        return beyond(after).map(Bound::Included);
    }
    Some(if *after < query.prefix {
        Bound::Included(query.prefix.clone())
    } else {
        Bound::Excluded(after.clone())
    })
}

/// The common prefix that a key with the query's prefix is shown as.
fn common_prefix<'k>(query: &Query, key: &'k str) -> Option<&'k str> {
    if query.delimiter.is_empty() {
        return None;
    }
    let rest = key.strip_prefix(query.prefix.as_str())?;
    let end = query.prefix.len() + rest.find(&query.delimiter)? + query.delimiter.len();
    key.get(..end)
}

/// Lists what `open` gives, which are keys in order from a bound on with what belongs to them.
pub(crate) fn list<V, E, I>(
    query: &Query,
    mut open: impl FnMut(Bound<&str>) -> Result<I, E>,
) -> Result<Page<V>, E>
where
    I: Iterator<Item = Result<(String, V), E>>,
{
    let mut page = Page {
        items: Vec::new(),
        truncated: false,
    };
    if query.limit == 0 {
        return Ok(page);
    }
    let mut from = start(query);
    while let Some(bound) = from.take() {
        for entry in open(bound.as_ref().map(String::as_str))? {
            let (key, value) = entry?;
            if !key.starts_with(&query.prefix) {
                return Ok(page);
            }
            if page.items.len() == query.limit {
                page.truncated = true;
                return Ok(page);
            }
            match common_prefix(query, &key) {
                Some(prefix) => {
                    page.items.push(Item::Prefix(prefix.to_owned()));
                    from = beyond(prefix).map(Bound::Included);
                    break;
                }
                None => page.items.push(Item::Key(key, value)),
            }
        }
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::{
        cell::Cell,
        collections::{BTreeMap, BTreeSet},
        convert::Infallible,
    };

    fn listed(keys: &BTreeMap<String, usize>, query: &Query, visited: &Cell<usize>) -> Page<usize> {
        let open = |from: Bound<&str>| {
            let range = keys.range::<str, _>((from, Bound::Unbounded));
            Ok(range.map(|(key, value)| {
                visited.set(visited.get() + 1);
                Ok::<_, Infallible>((key.clone(), *value))
            }))
        };
        list(query, open).unwrap()
    }

    /// Every item, by looking at every key.
    fn oracle(keys: &BTreeMap<String, usize>, query: &Query) -> Vec<Item<usize>> {
        let mut seen = BTreeSet::new();
        let mut items = Vec::new();
        for (key, value) in keys {
            let Some(rest) = key.strip_prefix(query.prefix.as_str()) else {
                continue;
            };
            let cut = if query.delimiter.is_empty() {
                None
            } else {
                rest.find(&query.delimiter)
            };
            let common = cut.map(|at| key[..query.prefix.len() + at + query.delimiter.len()].to_owned());
            if let After::Key(after) = &query.after
                && (key <= after || common.as_ref() == Some(after))
            {
                continue;
            }
            match common {
                Some(common) => {
                    if seen.insert(common.clone()) {
                        items.push(Item::Prefix(common));
                    }
                }
                None => items.push(Item::Key(key.clone(), *value)),
            }
        }
        items
    }

    fn text() -> impl Strategy<Value = String> {
        prop::collection::vec(
            prop::sample::select(vec!['a', 'b', '/', '-', 'é', '\u{d7ff}', '\u{10ffff}']),
            0..6,
        )
        .prop_map(|characters| characters.into_iter().collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        #[test]
        fn pages_are_what_looking_at_every_key_gives(
            names in prop::collection::btree_set(text(), 0..30),
            prefix in prop_oneof![Just(String::new()), text()],
            delimiter in prop::sample::select(vec!["", "/", "-", "a/", "\u{10ffff}", "\u{d7ff}"]),
            after in prop::option::of(text()),
            limit in 1_usize..8,
        ) {
            let keys: BTreeMap<_, _> = names.into_iter().enumerate().map(|(value, key)| (key, value)).collect();
            let mut query = Query {
                prefix,
                delimiter: delimiter.to_owned(),
                after: after.map_or(After::Nothing, After::Key),
                limit,
            };
            let expected = oracle(&keys, &query);
            let mut found = Vec::new();
            loop {
                let page = listed(&keys, &query, &Cell::new(0));
                prop_assert!(page.items.len() <= limit);
                prop_assert!(!page.truncated || page.items.len() == limit);
                let last = page.last().map(ToOwned::to_owned);
                let truncated = page.truncated;
                found.extend(page.items);
                if !truncated {
                    break;
                }
                query.after = After::Key(last.unwrap());
            }
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn common_prefixes_are_jumped_over() {
        let keys = (0..10)
            .flat_map(|folder| (0..1000).map(move |file| (format!("{folder}/{file}"), 0)))
            .collect();
        let query = Query {
            delimiter: "/".to_owned(),
            limit: 1000,
            ..Query::default()
        };
        let visited = Cell::new(0);
        assert_eq!(listed(&keys, &query, &visited).items.len(), 10);
        assert_eq!(visited.get(), 10);
    }

    #[test]
    fn no_keys_are_asked_for() {
        let keys = BTreeMap::from([("a".to_owned(), 0)]);
        let page = listed(&keys, &Query::default(), &Cell::new(0));
        assert_eq!((page.items.len(), page.truncated), (0, false));
    }
}
