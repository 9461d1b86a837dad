//! From torn pieces to lines.

use std::borrow::Cow;

/// The most bytes of a line that are kept.
pub(super) const LINE_BYTES: usize = 8 << 10;

/// Assembles lines. Allocates only for a line that came in pieces.
#[derive(Debug, Default)]
pub(super) struct Splitter {
    partial: Vec<u8>,
    /// Bytes of the partial line beyond [`LINE_BYTES`].
    omitted: u64,
    /// A line has begun; it may be empty so far.
    open: bool,
}

impl Splitter {
    /// Takes the next piece; hands each complete line to `line`, with the number of bytes left out of it.
    pub(super) fn push(&mut self, mut piece: &[u8], mut line: impl FnMut(&[u8], u64)) {
        while let Some(end) = memchr::memchr(b'\n', piece) {
            let (head, rest) = piece.split_at(end);
            if self.open {
                self.keep(head);
                self.finish(&mut line);
            } else {
                let kept = head.len().min(LINE_BYTES);
                emit(&head[..kept], (head.len() - kept) as u64, &mut line);
            }
            piece = &rest[1..];
        }
        if !piece.is_empty() {
            self.keep(piece);
        }
    }

    /// The end of the stream: what is left is a line too.
    pub(super) fn finish(&mut self, mut line: impl FnMut(&[u8], u64)) {
        if std::mem::take(&mut self.open) {
            emit(&self.partial, std::mem::take(&mut self.omitted), &mut line);
            self.partial.clear();
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        let kept = bytes.len().min(LINE_BYTES.saturating_sub(self.partial.len()));
        self.partial.extend_from_slice(&bytes[..kept]);
        self.omitted = self.omitted.saturating_add((bytes.len() - kept) as u64);
        self.open = true;
    }
}

fn emit(bytes: &[u8], omitted: u64, line: &mut impl FnMut(&[u8], u64)) {
    let bytes = if omitted == 0 {
        bytes.strip_suffix(b"\r").unwrap_or(bytes)
    } else {
        bytes
    };
    line(bytes, omitted);
}

/// The text of a line: invalid UTF-8 is replaced, and so is a character that was cut where the line was.
pub(super) fn text(line: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<(Vec<u8>, u64)> {
        let mut lines = Vec::new();
        let mut splitter = Splitter::default();
        for piece in pieces {
            splitter.push(piece, |line, omitted| lines.push((line.to_vec(), omitted)));
        }
        splitter.finish(|line, omitted| lines.push((line.to_vec(), omitted)));
        splitter.finish(|_, _| panic!("a second end has nothing left"));
        lines
    }

    #[test]
    fn long_lines_are_cut_and_say_so() {
        let long = vec![b'x'; LINE_BYTES + 5];
        let mut text = long.clone();
        text.extend_from_slice(b"\nshort\r\n\nlast");
        let expected = vec![
            (long[..LINE_BYTES].to_vec(), 5),
            (b"short".to_vec(), 0),
            (Vec::new(), 0),
            (b"last".to_vec(), 0),
        ];
        assert_eq!(split([&text[..]]), expected);
        assert_eq!(split(text.chunks(1)), expected);
        assert_eq!(split([]), []);
        assert_eq!(split([&b""[..]]), []);
    }

    proptest! {
        #[test]
        fn where_it_is_torn_does_not_matter(
            lines in prop::collection::vec(prop::collection::vec(any::<u8>().prop_filter("line end", |b| !b"\r\n".contains(b)), 0..20), 0..20),
            cuts in prop::collection::vec(1usize..9, 1..20),
            ended: bool,
        ) {
            let mut bytes = lines.join(&b'\n');
            if ended && !bytes.is_empty() {
                bytes.push(b'\n');
            }
            let mut pieces = Vec::new();
            let mut rest = &bytes[..];
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (piece, after) = rest.split_at((*cut).min(rest.len()));
                pieces.push(piece);
                rest = after;
            }
            let mut expected: Vec<_> = bytes.split(|b| *b == b'\n').map(|line| (line.to_vec(), 0)).collect();
            if bytes.is_empty() || bytes.ends_with(b"\n") {
                expected.pop();
            }
            prop_assert_eq!(split(pieces), expected);
        }
    }
}
