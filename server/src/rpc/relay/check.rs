//! What a machine's own agent answers, as far as it is believed: paths must be paths, and those that were asked for or lie
//! beneath; sizes and counts must be what the contract and the request allow. Whoever is root in a machine can make its
//! agent say anything, and clients were promised that a path never leads out.

use dormouse_files::{Fault, path::TreePath, revision::Revision};
use dormouse_proto::files::v1;
use prost::Message;

/// Longest piece of a Read, in bytes.
pub const PIECE_BYTES_MAX: usize = 1 << 20;
/// Longest text of a line, in bytes: 1,000 of the file, each shown as U+FFFD at the worst.
const LINE_TEXT_BYTES_MAX: usize = 3 * 1_000;
/// Longest true bytes of a line.
const LINE_RAW_BYTES_MAX: usize = 1_000;
/// Most lines of context on one side.
const CONTEXT_COUNT_MAX: usize = 5;
/// Longest etag, in bytes.
const ETAG_BYTES_MAX: usize = 256;
/// Longest target of a link (`PATH_MAX`), as it is shown, in bytes.
const TARGET_BYTES_MAX: usize = 3 * 4_096;

/// What an entry of a List has in the mean at most, in bytes.
const ENTRY_BYTES_MAX: usize = 2 << 10;
/// What an answer may have whatever was asked for, in bytes.
const ANSWER_BYTES_LEAST: usize = 1 << 20;

/// The answer breaks the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lie(pub &'static str);

impl Lie {
    /// As a failure of the call.
    pub fn told(self, workspace: &str) -> Fault {
        tracing::warn!(workspace, what = self.0, "the machine's own agent broke the contract");
        Fault::Internal("the machine's own agent broke the contract")
    }
}

/// What a path of an answer must be.
#[derive(Debug, Clone, Copy)]
pub enum Place<'a> {
    /// This one.
    At(&'a TreePath),
    /// This one or one beneath.
    Within(&'a TreePath),
}

/// A path of an answer.
///
/// # Errors
/// Where it is none, is not shown as it should be, or is of another place.
pub fn path(text: &str, raw: &[u8], place: Place<'_>) -> Result<TreePath, Lie> {
    let bytes = if raw.is_empty() { text.as_bytes() } else { raw };
    let path = TreePath::parse(bytes).map_err(|_| Lie("a path makes no sense"))?;
    if path.as_bytes() != bytes || (!raw.is_empty() && path.to_text() != text) {
        return Err(Lie("a path is not shown as it is"));
    }
    let allowed = match place {
        Place::At(at) => path == *at,
        Place::Within(within) => path.is_within(within),
    };
    if allowed { Ok(path) } else { Err(Lie("a path lies outside of what was asked for")) }
}

/// A file or directory of an answer. Its revision is taken out where none may be given.
///
/// # Errors
/// Where it breaks the contract.
pub fn file(file: &mut v1::FileInfo, place: Place<'_>, revisions: bool) -> Result<(), Lie> {
    path(&file.path, &file.raw_path, place)?;
    if file.size_bytes < 0 {
        return Err(Lie("a size is negative"));
    }
    if file.etag.len() > ETAG_BYTES_MAX {
        return Err(Lie("an etag is too long"));
    }
    if file.symlink_target.len().max(file.raw_symlink_target.len()) > TARGET_BYTES_MAX {
        return Err(Lie("a link's target is too long"));
    }
    if !revisions {
        file.revision = None;
    }
    revision(file.revision.as_deref())
}

/// A revision of an answer.
///
/// # Errors
/// Where it is none.
pub fn revision(text: Option<&str>) -> Result<(), Lie> {
    match text {
        Some(text) if Revision::parse(text).is_none() => Err(Lie("a revision makes no sense")),
        _ => Ok(()),
    }
}

/// A line that matches.
///
/// # Errors
/// Where it breaks the contract.
pub fn found(found: &v1::Match, within: &TreePath) -> Result<(), Lie> {
    path(&found.path, &found.raw_path, Place::Within(within))?;
    let text = |text: &str, raw: &[u8]| text.len() <= LINE_TEXT_BYTES_MAX && raw.len() <= LINE_RAW_BYTES_MAX;
    let lines =
        |lines: &[v1::Line]| lines.len() <= CONTEXT_COUNT_MAX && lines.iter().all(|line| text(&line.text, &line.raw));
    if !text(&found.text, &found.raw_text) || !lines(&found.before) || !lines(&found.after) {
        return Err(Lie("a match is too long"));
    }
    Ok(())
}

/// The order of a stream: an origin only in the first message, nothing after the end, and no end missing.
#[derive(Debug, Default)]
pub struct Order {
    begun: bool,
    ended: bool,
}

impl Order {
    /// The next message; whether it is the first.
    ///
    /// # Errors
    /// Where it comes after the end.
    pub fn next(&mut self, is_end: bool) -> Result<bool, Lie> {
        if self.ended {
            return Err(Lie("a message comes after the end"));
        }
        self.ended = is_end;
        Ok(!std::mem::replace(&mut self.begun, true))
    }

    /// The stream is over.
    ///
    /// # Errors
    /// Where no end came.
    pub fn close(&self) -> Result<(), Lie> {
        if self.ended { Ok(()) } else { Err(Lie("the stream is over without an end")) }
    }
}

/// All bytes of an answer that streams. Each message and their number are bounded already; what a machine may send in all
/// is bounded here.
#[derive(Debug)]
pub struct Total {
    left: usize,
}

impl Total {
    /// Of a List of at most so many entries: far more for each than names and links are in any tree.
    pub fn of_list(entry_count_max: usize) -> Self {
        Self { left: entry_count_max.saturating_mul(ENTRY_BYTES_MAX).saturating_add(ANSWER_BYTES_LEAST) }
    }

    /// Of a Search, whose results are capped by the contract.
    pub fn of_search(result_bytes_max: u64) -> Self {
        Self { left: usize::try_from(result_bytes_max).unwrap_or(usize::MAX).saturating_mul(2) + ANSWER_BYTES_LEAST }
    }

    /// The next message.
    ///
    /// # Errors
    /// Where the answer is longer than it may be.
    pub fn next(&mut self, message: &impl Message) -> Result<(), Lie> {
        self.left = self.left.checked_sub(message.encoded_len()).ok_or(Lie("the answer is too long"))?;
        Ok(())
    }
}

/// The pieces of a Read.
#[derive(Debug, Default)]
pub struct Pieces {
    next_offset: Option<i64>,
    bytes: i64,
}

impl Pieces {
    /// The next piece.
    ///
    /// # Errors
    /// Where it is too long, or does not follow the one before.
    pub fn next(&mut self, message: &v1::ReadResponse) -> Result<(), Lie> {
        let length = message.data.len();
        if length > PIECE_BYTES_MAX {
            return Err(Lie("a piece is too long"));
        }
        let length = i64::try_from(length).map_err(|_| Lie("a piece is too long"))?;
        if length > 0 {
            if message.offset < 0 || self.next_offset.is_some_and(|offset| offset != message.offset) {
                return Err(Lie("a piece does not follow the one before"));
            }
            self.next_offset = Some(message.offset.checked_add(length).ok_or(Lie("a piece is past every end"))?);
            self.bytes = self.bytes.saturating_add(length);
        }
        if let Some(end) = &message.end {
            if end.bytes_sent != self.bytes {
                return Err(Lie("the end counts other bytes than came"));
            }
            revision(end.revision.as_deref())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> TreePath {
        TreePath::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_path_is_the_one_asked_for_or_lies_beneath() {
        let check = |text: &str, raw: &[u8], at: Option<&str>, expect: bool| {
            let within = parse("/d");
            let asked = at.map(parse);
            let place = asked.as_ref().map_or(Place::Within(&within), Place::At);
            assert_eq!(path(text, raw, place).is_ok(), expect, "{text}");
        };
        check("/d", b"", None, true);
        check("/d/e", b"", None, true);
        check("/d/\u{fffd}", b"/d/\xff", None, true);
        check("/d/e", b"", Some("/d/e"), true);
        for bad in ["/e", "/dd", "/d/../e", "d", "", "/d/", "/d//e"] {
            check(bad, b"", None, false);
        }
        check("/d/x", b"/d/\xff", None, false);
        check("/d/\u{fffd}", b"/e/\xff", None, false);
        check("/d/f", b"", Some("/d/e"), false);
    }

    #[test]
    fn pieces_follow_each_other_and_are_counted() {
        let piece = |offset, bytes: usize, end: Option<i64>| v1::ReadResponse {
            offset,
            data: vec![0; bytes].into(),
            end: end.map(|bytes_sent| v1::ReadEnd { bytes_sent, ..Default::default() }),
            ..Default::default()
        };
        let check = |pieces: &[v1::ReadResponse], expect: bool| {
            let mut state = Pieces::default();
            assert_eq!(pieces.iter().all(|piece| state.next(piece).is_ok()), expect, "{:?}", pieces.len());
        };
        check(&[piece(5, 3, None), piece(8, 2, Some(5))], true);
        check(&[piece(0, 0, Some(0))], true);
        check(&[piece(0, PIECE_BYTES_MAX, Some(1 << 20))], true);
        check(&[piece(0, PIECE_BYTES_MAX + 1, None)], false);
        check(&[piece(0, 3, None), piece(4, 2, None)], false);
        check(&[piece(-1, 3, None)], false);
        check(&[piece(i64::MAX, 3, None)], false);
        check(&[piece(0, 3, Some(4))], false);
    }

    #[test]
    fn a_file_is_sound_and_bare_where_no_revision_may_be_given() {
        let at = parse("/f");
        let info = |change: fn(&mut v1::FileInfo)| {
            let mut info = v1::FileInfo { path: "/f".to_owned(), ..Default::default() };
            change(&mut info);
            info
        };
        let check =
            |mut info: v1::FileInfo, expect: bool| assert_eq!(file(&mut info, Place::At(&at), true).is_ok(), expect);
        check(info(|_| ()), true);
        check(info(|info| info.size_bytes = -1), false);
        check(info(|info| info.revision = Some("abc".to_owned())), false);
        check(info(|info| info.etag = "x".repeat(257)), false);
        check(info(|info| info.symlink_target = "x".repeat(20_000)), false);
        let mut bare = info(|info| info.revision = Some("abc".to_owned()));
        file(&mut bare, Place::At(&at), false).unwrap();
        assert_eq!(bare.revision, None);
    }

    #[test]
    fn an_answer_is_bounded_as_a_whole() {
        let message = v1::ListResponse {
            entries: vec![v1::FileInfo { path: "x".repeat(4_000), ..Default::default() }; 16],
            ..Default::default()
        };
        let told = |mut total: Total| (0..100_000).take_while(|_| total.next(&message).is_ok()).count();
        let (few, many) = (told(Total::of_list(1)), told(Total::of_list(10_000)));
        assert!((15..=17).contains(&few) && (300..400).contains(&many), "{few} {many}");
        assert!((100..200).contains(&told(Total::of_search(4 << 20))));
        assert_eq!(told(Total::of_list(usize::MAX)), 100_000);
    }

    #[test]
    fn a_stream_has_one_beginning_and_one_end() {
        let mut order = Order::default();
        assert_eq!((order.next(false), order.next(false)), (Ok(true), Ok(false)));
        assert!(order.close().is_err());
        assert_eq!(order.next(true), Ok(false));
        assert!(order.close().is_ok() && order.next(false).is_err());
    }
}
