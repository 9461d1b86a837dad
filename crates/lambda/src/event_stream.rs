//! Messages of `application/vnd.amazon.eventstream`: a prelude of two lengths and their checksum, headers, a payload, and a
//! checksum of it all, big-endian (the AWS SDKs' event stream encoding).

/// Bytes of a payload that one event carries.
pub(crate) const LARGEST_PAYLOAD: usize = 64 << 10;

/// Appends one event.
pub(crate) fn event(out: &mut Vec<u8>, kind: &str, content_type: &str, payload: &[u8]) {
    let mut headers = Vec::new();
    for (name, value) in [
        (":message-type", "event"),
        (":event-type", kind),
        (":content-type", content_type),
    ] {
        /// A text, with a length of two bytes.
        const STRING: u8 = 7;
        headers.push(length(name.len()) as u8);
        headers.extend_from_slice(name.as_bytes());
        headers.push(STRING);
        headers.extend_from_slice(&(length(value.len()) as u16).to_be_bytes());
        headers.extend_from_slice(value.as_bytes());
    }
    const PRELUDE: usize = 12;
    const CHECKSUM: usize = 4;
    let total = PRELUDE + headers.len() + payload.len() + CHECKSUM;
    let start = out.len();
    out.extend_from_slice(&length(total).to_be_bytes());
    out.extend_from_slice(&length(headers.len()).to_be_bytes());
    out.extend_from_slice(&crc32fast::hash(&out[start..]).to_be_bytes());
    out.extend_from_slice(&headers);
    out.extend_from_slice(payload);
    out.extend_from_slice(&crc32fast::hash(&out[start..]).to_be_bytes());
}

/// Nothing here is longer than [`LARGEST_PAYLOAD`] and a few headers.
fn length(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_framed_as_the_encoding_says() {
        let mut out = b"before".to_vec();
        event(&mut out, "PayloadChunk", "text/plain", b"hello");
        let event = &out[6..];
        let word = |at: usize| u32::from_be_bytes(event[at..at + 4].try_into().unwrap());
        assert_eq!(word(0) as usize, event.len());
        assert_eq!(word(8), crc32fast::hash(&event[..8]));
        assert_eq!(word(event.len() - 4), crc32fast::hash(&event[..event.len() - 4]));
        let headers = word(4) as usize;
        assert_eq!(&event[12 + headers..event.len() - 4], b"hello");
        assert!(event[12..12 + headers].starts_with(b"\x0d:message-type\x07\x00\x05event"));
    }
}
