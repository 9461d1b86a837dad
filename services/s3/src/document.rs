//! S3's documents: XML on the wire, a tree here, JSON for the guests that want it.
//!
//! An element with elements in it is an object, one without is its text; elements of the same name in one element are a list.
//! Attributes are left out but `xsi:type`, which is `Type` of its object: it says what a grantee is. The root's name is kept apart.

use quick_xml::{Reader, XmlVersion, escape::resolve_predefined_entity, events::Event};
use serde_json::{Map, Value};

/// A document's bytes, at most.
pub(crate) const MAXIMUM: usize = 16 << 20;
/// S3's own are 6 deep.
const DEPTH: usize = 64;
/// S3's lists are of 1000, with a dozen elements each.
const ELEMENTS: usize = 200_000;

/// Why it cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is not a document of S3's: {0}")]
pub(crate) struct Malformed(String);

/// A root and what it holds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Document {
    pub(crate) root: String,
    pub(crate) content: Value,
}

/// An element that has begun.
struct Open {
    name: String,
    inner: Map<String, Value>,
    text: String,
}

impl Open {
    fn add(&mut self, name: String, value: Value) {
        match self.inner.get_mut(&name) {
            None => drop(self.inner.insert(name, value)),
            // A single element is never a list.
            Some(Value::Array(list)) => list.push(value),
            Some(one) => *one = Value::Array(vec![one.take(), value]),
        }
    }

    fn close(self) -> (String, Value) {
        let value = match self.inner.is_empty() {
            true => Value::String(self.text),
            false => Value::Object(self.inner),
        };
        (self.name, value)
    }
}

impl Document {
    /// Reads XML.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let malformed = |reason: &str| Malformed(reason.to_owned());
        let text = std::str::from_utf8(bytes).map_err(|error| Malformed(error.to_string()))?;
        let mut reader = Reader::from_str(text.trim_start_matches('\u{feff}').trim_start());
        reader.config_mut().expand_empty_elements = true;
        let (mut open, mut root, mut elements) = (Vec::<Open>::new(), None, 0_usize);
        loop {
            let event = reader.read_event();
            match event.map_err(|error| Malformed(error.to_string()))? {
                Event::Start(start) => {
                    elements += 1;
                    if root.is_some() || open.len() == DEPTH || elements > ELEMENTS {
                        return Err(malformed("it is too deep or too long"));
                    }
                    let mut inner = Map::new();
                    for attribute in start.attributes() {
                        let attribute = attribute.map_err(|error| Malformed(error.to_string()))?;
                        if attribute.key.as_ref() == "xsi:type" {
                            let value = attribute.normalized_value(XmlVersion::Implicit1_0);
                            let value = value.map_err(|error| Malformed(error.to_string()))?;
                            inner.insert("Type".to_owned(), value.into_owned().into());
                        }
                    }
                    open.push(Open {
                        name: start.local_name().as_ref().to_owned(),
                        inner,
                        text: String::new(),
                    });
                }
                Event::End(_) => {
                    let ended = open
                        .pop()
                        .ok_or_else(|| malformed("an end without a beginning"))?;
                    let (name, value) = ended.close();
                    match open.last_mut() {
                        Some(outer) => outer.add(name, value),
                        None => root = Some((name, value)),
                    }
                }
                Event::Text(text) => add(&mut open, &text.xml10_content())?,
                Event::CData(text) => add(&mut open, &text.xml10_content())?,
                Event::GeneralRef(reference) => {
                    let known = reference.resolve_char_ref();
                    match known.map_err(|error| Malformed(error.to_string()))? {
                        Some(character) => add(&mut open, character.encode_utf8(&mut [0; 4]))?,
                        None => {
                            let text = resolve_predefined_entity(&reference.xml10_content());
                            add(&mut open, text.ok_or_else(|| malformed("an unknown entity"))?)?;
                        }
                    }
                }
                Event::DocType(_) => return Err(malformed("it has a document type")),
                Event::Decl(_) | Event::PI(_) | Event::Comment(_) => {}
                Event::Eof => break,
                Event::Empty(_) => return Err(malformed("it is empty")),
            }
        }
        let (root, content) = root
            .filter(|_| open.is_empty())
            .ok_or_else(|| malformed("it has no end"))?;
        Ok(Self { root, content })
    }

    /// The elements of this name in the root.
    pub(crate) fn all(&self, name: &str) -> &[Value] {
        list(self.content.get(name))
    }

    /// Adds an element to the root.
    pub(crate) fn add(&mut self, name: &str, value: Value) {
        let inner = match self.content.take() {
            Value::Object(inner) => inner,
            _ => Map::new(),
        };
        let mut open = Open {
            name: String::new(),
            inner,
            text: String::new(),
        };
        open.add(name.to_owned(), value);
        self.content = Value::Object(open.inner);
    }

    /// What the root holds, as JSON.
    pub(crate) fn json(&self) -> Vec<u8> {
        self.content.to_string().into_bytes()
    }

    /// As XML, in S3's namespace unless it is an error.
    pub(crate) fn xml(&self) -> Vec<u8> {
        let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        let space = match &self.root[..] {
            "Error" => "",
            _ => " xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"",
        };
        text.push_str(&format!("<{}{space}>", self.root));
        write(&mut text, &self.content);
        text.push_str(&format!("</{}>", self.root));
        text.into_bytes()
    }
}

/// The values of an element that may be there once, often or not at all.
pub(crate) fn list(value: Option<&Value>) -> &[Value] {
    match value {
        None => &[],
        Some(Value::Array(list)) => list,
        Some(one) => std::slice::from_ref(one),
    }
}

fn add(open: &mut [Open], text: &str) -> Result<(), Malformed> {
    match open.last_mut() {
        Some(element) => element.text.push_str(text),
        None if text.trim().is_empty() => {}
        None => return Err(Malformed("there is text outside its root".to_owned())),
    }
    Ok(())
}

fn write(text: &mut String, value: &Value) {
    match value {
        Value::Object(inner) => {
            for (name, value) in inner {
                for value in list(Some(value)) {
                    text.push_str(&format!("<{name}>"));
                    write(text, value);
                    text.push_str(&format!("</{name}>"));
                }
            }
        }
        Value::String(content) => escape(text, content),
        _ => {}
    }
}

/// Adds a text so that it is read as the same.
pub(crate) fn escape(text: &mut String, content: &str) {
    for character in content.chars() {
        match character {
            '<' => text.push_str("&lt;"),
            '>' => text.push_str("&gt;"),
            '&' => text.push_str("&amp;"),
            '"' => text.push_str("&quot;"),
            character if character.is_control() => text.push_str(&format!("&#{};", u32::from(character))),
            character => text.push(character),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ODD: &str = "(<a>|</a>|<b/>|<a|>|&amp;|&#|;|x| |<!--|-->|<!\\[CDATA\\[|]]>|<\\?|\\?>|=\"){0,24}";

    fn json(xml: &str) -> String {
        let document = Document::parse(xml.as_bytes()).unwrap_or_else(|error| panic!("{xml}: {error}"));
        String::from_utf8(document.json()).unwrap()
    }

    #[test]
    fn xml_as_json() {
        for (xml, expected) in [
            ("<a/>", r#""""#),
            ("<a>x</a>", r#""x""#),
            (
                "<?xml version=\"1.0\"?>\n \n<r xmlns=\"u\">\n <a>1</a>\n <b/>\n</r>\n",
                r#"{"a":"1","b":""}"#,
            ),
            (
                "<r><a>1</a><b/><a>2</a><a>3</a></r>",
                r#"{"a":["1","2","3"],"b":""}"#,
            ),
            (
                "<r><a><b>1</b></a><a><b>2</b></a></r>",
                r#"{"a":[{"b":"1"},{"b":"2"}]}"#,
            ),
            (
                "<r><k> a &amp;&lt;&#x41;&#13;<![CDATA[<&]]> </k></r>",
                r#"{"k":" a &<A\r<& "}"#,
            ),
            (
                "<r xmlns:xsi=\"i\"><g xsi:type=\"Group\" q=\"1\"><URI>u</URI></g><h xsi:type=\"C\"/></r>",
                r#"{"g":{"Type":"Group","URI":"u"},"h":{"Type":"C"}}"#,
            ),
            ("<s:r xmlns:s=\"u\"><s:a>1</s:a></s:r>", r#"{"a":"1"}"#),
            ("\u{feff}<r><!-- c --><?p i?><a>1</a></r>", r#"{"a":"1"}"#),
        ] {
            assert_eq!(json(xml), expected, "{xml}");
        }
    }

    #[test]
    fn what_is_no_document() {
        let deep = format!("{}{}", "<a>".repeat(65), "</a>".repeat(65));
        let long = format!("<r>{}</r>", "<a/>".repeat(ELEMENTS));
        for bad in [
            "",
            "x",
            "<a>",
            "<a><b></a>",
            "</a>",
            "<a/><b/>",
            "<a/>x",
            "<a>&nope;</a>",
            "<a>&#0;</a>",
            "<!DOCTYPE a [<!ENTITY b \"c\">]><a>&b;</a>",
            &deep,
            &long,
        ] {
            let parsed = Document::parse(bad.as_bytes());
            assert!(parsed.is_err(), "{}: {parsed:?}", &bad[..bad.len().min(40)]);
        }
        assert!(Document::parse(b"<a>\xff</a>").is_err());
    }

    proptest! {
        #[test]
        fn whatever_comes_is_read_or_refused(text in ODD) {
            if let Ok(document) = Document::parse(text.as_bytes()) {
                prop_assert!(Document::parse(&document.xml()).is_ok());
            }
        }
    }

    #[test]
    fn what_is_written_is_read_as_the_same() {
        let mut document = Document {
            root: "Error".to_owned(),
            content: Value::String(String::new()),
        };
        document.add("Key", "<a> & \"b\" ]]> \r\n\té".into());
        document.add("Key", "".into());
        let xml = document.xml();
        assert_eq!(Document::parse(&xml), Ok(document));
    }
}
