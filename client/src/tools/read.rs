//! `read_file`: one line of JSON about the text, then whole lines of it up to the bound, exactly as they stand in the file.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Session, explain::Refusal, json as written};
use crate::{
    FilesClient, ReadStream,
    proto::files::v1::{LineRange, ReadEnd, ReadRequest, read_request::Range},
    words::served_from,
};

/// Bytes that are read beyond an answer's bound only to learn the file's revision and its count of lines.
const DRAIN_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Room for the line of JSON.
const HEAD_BYTES: usize = 512;

/// What the model asks for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadFile {
    path: String,
    start_line: Option<i64>,
    end_line: Option<i64>,
}

pub(super) async fn run(asked: ReadFile, client: &FilesClient, session: &Session) -> Result<String, Refusal> {
    let start = asked.start_line.unwrap_or(1);
    if let Some(end) = asked.end_line.filter(|end| *end < start) {
        return Err(Refusal::invalid(format!("`end_line`: {end} is before the first line, {start}"))
            .with_next("call read_file again with end_line not before start_line"));
    }
    let request = ReadRequest {
        workspace: session.workspace.clone(),
        path: asked.path.clone(),
        range: Some(Range::LineRange(LineRange { start, end: asked.end_line.unwrap_or(0) })),
        include_revision: true,
        ..ReadRequest::default()
    };
    let room = session.output_bytes.saturating_sub(HEAD_BYTES);
    let gathered = async {
        let mut read = client.read(request).await?;
        let text = gather(&mut read, room).await?;
        Ok((text, read.end().cloned(), served_from(&read.header().origin)))
    };
    let (text, end, served_from) =
        gathered.await.map_err(|error: crate::Error| Refusal::from_error(&error, session))?;
    render(&asked.path, start, &text, end.as_ref(), served_from, room)
}

/// The first bytes, one more than fit where there are more; the rest is read only as far as is worth its price.
async fn gather(read: &mut ReadStream, room: usize) -> Result<Vec<u8>, crate::Error> {
    let mut text = Vec::new();
    let mut drained = 0_usize;
    while let Some(piece) = read.next().await? {
        let take = piece.len().min((room + 1).saturating_sub(text.len()));
        text.extend_from_slice(&piece[..take]);
        drained += piece.len() - take;
        if drained > DRAIN_BYTES_MAX {
            break;
        }
    }
    Ok(text)
}

fn render(
    path: &str,
    start: i64,
    bytes: &[u8],
    end: Option<&ReadEnd>,
    served_from: &str,
    room: usize,
) -> Result<String, Refusal> {
    let cut = bytes.len() > room;
    let (shown, clipped) = if cut { whole_lines(&bytes[..room]) } else { (bytes, false) };
    let text = match std::str::from_utf8(shown) {
        Ok(text) => text,
        // A line that is cut may be cut in a character.
        Err(error) if clipped && error.error_len().is_none() => {
            std::str::from_utf8(&shown[..error.valid_up_to()]).expect("the part before the error is UTF-8")
        }
        Err(error) => {
            let fact =
                format!("{path} is no UTF-8 text: see the byte at offset {} of these lines", error.valid_up_to());
            return Err(Refusal::new(
                "conflict",
                "file_not_utf8",
                fact,
                "take another tool for a file that is no text, or search_files for text in it",
            ));
        }
    };
    let lines = i64::try_from(text.lines().count()).unwrap_or(i64::MAX);
    let last = start.saturating_add(lines).saturating_sub(1);
    let mut head = json!({ "start_line": start, "end_line": last.max(start - 1), "served_from": served_from });
    if let Some(revision) = end.and_then(|end| end.revision.as_ref()) {
        head["revision"] = revision.clone().into();
    }
    if let Some(count) = end.and_then(|end| end.line_count) {
        head["line_count"] = count.into();
    }
    if clipped {
        head["clipped"] = Value::from("the line is longer than an answer may be; only its beginning is here");
    }
    if cut {
        head["next_start_line"] = last.saturating_add(1).into();
    }
    Ok(format!("{}\n{text}", written(&head)))
}

/// Up to the last end of a line; where there is none, all of it, as the beginning of a line.
fn whole_lines(bytes: &[u8]) -> (&[u8], bool) {
    match bytes.iter().rposition(|byte| *byte == b'\n') {
        Some(end) => (&bytes[..=end], false),
        None => (bytes, true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(start: i64, bytes: &[u8], room: usize, expect: Result<(Value, &str), &str>) {
        let end = ReadEnd { revision: Some("r".into()), line_count: Some(9), ..ReadEnd::default() };
        match (render("/f", start, bytes, Some(&end), "disk", room), expect) {
            (Ok(answer), Ok((head, text))) => {
                let (line, rest) = answer.split_once('\n').unwrap();
                let mut told: Value = serde_json::from_str(line).unwrap();
                for (name, value) in
                    [("revision", "r".into()), ("line_count", 9.into()), ("served_from", "disk".into())]
                {
                    assert_eq!(told.as_object_mut().unwrap().remove(name), Some(value));
                }
                assert_eq!((told, rest), (head, text));
            }
            (Err(refusal), Err(part)) => assert!(refusal.to_string().contains(part), "{refusal}"),
            (got, expect) => panic!("{got:?}, not {expect:?}"),
        }
    }

    #[test]
    fn the_text_stands_as_it_is_under_one_line_about_it() {
        check(1, b"a\nb", 9, Ok((json!({"start_line": 1, "end_line": 2}), "a\nb")));
        check(3, b"a\r\nb\r\n", 9, Ok((json!({"start_line": 3, "end_line": 4}), "a\r\nb\r\n")));
        check(1, b"", 9, Ok((json!({"start_line": 1, "end_line": 0}), "")));
    }

    #[test]
    fn what_is_too_long_is_cut_between_lines() {
        let head = json!({"start_line": 5, "end_line": 6, "next_start_line": 7});
        check(5, b"aa\nbb\ncc\n", 7, Ok((head, "aa\nbb\n")));
        let head = json!({"start_line": 1, "end_line": 1, "next_start_line": 2,
            "clipped": "the line is longer than an answer may be; only its beginning is here"});
        check(1, "aéé".as_bytes(), 4, Ok((head, "aé")));
    }

    #[test]
    fn what_is_no_text_is_refused() {
        check(1, b"ab\xffcd", 9, Err("conflict (file_not_utf8): /f is no UTF-8 text: see the byte at offset 2"));
        check(1, b"ab\xc3", 9, Err("offset 2"));
    }
}
