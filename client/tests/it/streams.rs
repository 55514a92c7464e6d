//! Read, List and Search: what arrives is whole, in order and unbroken, or it is an error.

use dormouse_client::{Error, FilesClient, Kind, proto::files::v1::*};
use tonic::{Code, Status};

use crate::fake::{Asked, Host, Reply, file, from_disk, from_workspace, refusal, unavailable};

const TEXT: &[u8] = b"0123456789abcdefghij";

/// The messages of a read of `TEXT` from `start`, five bytes each, with their `end`.
fn pieces(start: usize, etag: &str) -> Vec<ReadResponse> {
    let data = &TEXT[start..];
    let mut messages: Vec<_> = data
        .chunks(5)
        .enumerate()
        .map(|(place, piece)| ReadResponse {
            offset: (start + place * 5) as i64,
            data: piece.to_vec().into(),
            ..ReadResponse::default()
        })
        .collect();
    let end = ReadEnd { bytes_sent: data.len() as i64, crc32c: crc32c::crc32c(data), ..ReadEnd::default() };
    messages.push(ReadResponse { offset: TEXT.len() as i64, end: Some(end), ..ReadResponse::default() });
    messages[0].file = Some(file("/a", TEXT.len() as i64, etag));
    messages[0].origin = Some(from_disk());
    messages
}

fn whole(messages: Vec<ReadResponse>) -> Reply {
    Reply::Read(messages.into_iter().map(Ok).collect())
}

fn broken(messages: Vec<ReadResponse>, keep: usize, status: Status) -> Reply {
    Reply::Read(messages.into_iter().take(keep).map(Ok).chain([Err(status)]).collect())
}

fn request() -> ReadRequest {
    ReadRequest { workspace: "c/main".into(), path: "/a".into(), ..ReadRequest::default() }
}

async fn read(files: &FilesClient, request: ReadRequest) -> Result<(Vec<u8>, ReadEnd), Error> {
    let mut stream = files.read(request).await?;
    let mut bytes = Vec::new();
    while let Some(piece) = stream.next().await? {
        bytes.extend_from_slice(&piece);
    }
    Ok((bytes, stream.end().cloned().unwrap()))
}

/// The byte range that a resumed read asked for.
fn range(request: &ReadRequest) -> (i64, i64) {
    match request.range {
        Some(read_request::Range::ByteRange(range)) => (range.offset, range.length),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_read_hands_out_all_pieces_and_says_where_they_came_from() {
    let host = Host::new([whole(pieces(0, "e1"))]).await;
    let mut stream = host.files().read(request()).await.unwrap();
    assert_eq!(stream.header().origin, from_disk());
    assert_eq!(stream.end(), None);
    let mut bytes = Vec::new();
    while let Some(piece) = stream.next().await.unwrap() {
        bytes.extend_from_slice(&piece);
    }
    assert_eq!(bytes, TEXT);
    assert_eq!(stream.end().unwrap().bytes_sent, 20);
    assert_eq!(stream.next().await.unwrap(), None);
}

#[tokio::test]
async fn a_collected_read_is_whole_and_bounded() {
    let host = Host::new([whole(pieces(0, "e1")), whole(pieces(0, "e1"))]).await;
    let (header, bytes, end) = host.files().read(request()).await.unwrap().collect(20).await.unwrap();
    assert_eq!((header.origin, &*bytes, end.bytes_sent), (from_disk(), TEXT, 20));
    let error = host.files().read(request()).await.unwrap().collect(19).await.unwrap_err();
    assert_eq!(error.kind(), &Kind::LimitExceeded { limit_bytes: Some(19) });
}

#[tokio::test]
async fn an_empty_file_is_an_empty_read() {
    let end = ReadEnd::default();
    let only = ReadResponse { file: Some(file("/a", 0, "e")), end: Some(end), ..ReadResponse::default() };
    let host = Host::new([whole(vec![only])]).await;
    assert_eq!(read(&host.files(), request()).await.unwrap().0, b"");
}

#[tokio::test]
async fn a_read_broken_midway_goes_on_at_its_offset_pinned_to_the_etag() {
    let host = Host::new([
        unavailable(),
        broken(pieces(0, "e1"), 2, Status::unavailable("down")),
        unavailable(),
        whole(pieces(10, "e1")),
    ])
    .await;
    let asked = ReadRequest { expected_revision: Some("r1".into()), ..request() };
    let (bytes, _) = read(&host.files(), asked).await.unwrap();
    assert_eq!(bytes, TEXT);
    let reads = host.reads();
    assert_eq!(reads.len(), 4);
    assert_eq!((&reads[1].expected_etag, &reads[1].range), (&None, &None));
    assert_eq!(reads[3].expected_etag.as_deref(), Some("e1"));
    assert_eq!(range(&reads[3]), (10, 0));
    assert_eq!(reads[3].expected_revision, None);
}

#[tokio::test]
async fn a_read_survives_a_lost_connection() {
    let first: Vec<_> = pieces(0, "e1").into_iter().take(1).collect();
    let host = Host::new([Reply::ReadThenHang(first), whole(pieces(5, "e1"))]).await;
    let mut stream = host.files().read(request()).await.unwrap();
    assert_eq!(stream.next().await.unwrap().unwrap(), &TEXT[..5]);
    host.cut();
    let mut rest = Vec::new();
    while let Some(piece) = stream.next().await.unwrap() {
        rest.extend_from_slice(&piece);
    }
    assert_eq!(rest, &TEXT[5..]);
    assert_eq!(range(&host.reads()[1]), (5, 0));
}

#[tokio::test]
async fn a_stream_without_its_end_is_not_complete() {
    let cut: Vec<_> = pieces(0, "e1").into_iter().take(4).collect();
    let mut last = pieces(15, "e1");
    let end = ReadEnd { bytes_sent: 1, crc32c: crc32c::crc32c(b"j"), ..ReadEnd::default() };
    last[0].offset = 19;
    last[0].data = "j".into();
    last[1].end = Some(end);
    let host = Host::new([whole(cut), whole(last)]).await;
    let (bytes, _) = read(&host.files(), request()).await.unwrap();
    // The last byte was asked for again, for its `end`, and not handed out twice.
    assert_eq!(bytes, TEXT);
    assert_eq!(range(&host.reads()[1]), (19, 0));
}

#[tokio::test]
async fn lines_are_asked_for_again_and_what_is_known_is_skipped() {
    let lines = read_request::Range::LineRange(LineRange { start: 2, end: 3 });
    let part = |keep| {
        let mut messages = pieces(5, "e1");
        messages.truncate(keep);
        messages
    };
    let host = Host::new([broken(part(2), 2, Status::unavailable("down")), whole(part(9))]).await;
    let (bytes, _) = read(&host.files(), ReadRequest { range: Some(lines), ..request() }).await.unwrap();
    assert_eq!(bytes, &TEXT[5..]);
    assert_eq!(host.reads()[1].range, Some(lines));
}

#[tokio::test]
async fn another_file_under_the_path_ends_a_resumed_read() {
    let host = Host::new([broken(pieces(0, "e1"), 1, Status::unavailable("down")), whole(pieces(5, "e2"))]).await;
    let error = read(&host.files(), request()).await.unwrap_err();
    assert_eq!(error.kind(), &Kind::ChangedWhileRead);
    // The host's own refusal says the same, and is never repeated.
    let refused = refusal(Code::Aborted, "REVISION_MISMATCH", &[("actual_revision", "r2")]);
    let host = Host::new([broken(pieces(0, "e1"), 1, Status::unavailable("down")), refused]).await;
    let error = read(&host.files(), request()).await.unwrap_err();
    assert_eq!((error.kind(), host.asked().len()), (&Kind::RevisionMismatch { current: "r2".into() }, 2));
}

#[tokio::test]
async fn a_disk_that_was_resumed_midway_is_read_on_from_the_workspace() {
    let refused = Status::unavailable("moved");
    let host = Host::new([
        broken(pieces(0, "e1"), 2, refused),
        refusal(Code::Unavailable, "OFFLINE_CHANGED", &[]),
        refusal(Code::Unavailable, "WORKSPACE_IN_TRANSITION", &[]),
        whole(pieces(10, "e1")),
    ])
    .await;
    assert_eq!(read(&host.files(), request()).await.unwrap().0, TEXT);
    assert_eq!(host.asked().len(), 4);
}

async fn check_broken_answer(change: impl Fn(&mut Vec<ReadResponse>), fact: &str) {
    let mut messages = pieces(0, "e1");
    change(&mut messages);
    let host = Host::new([whole(messages), whole(pieces(0, "e1"))]).await;
    let error = read(&host.files(), request()).await.unwrap_err();
    assert_eq!(error.kind(), &Kind::BrokenAnswer, "{error}");
    assert!(error.to_string().contains(fact), "{error}");
    assert_eq!(host.left(), 1, "never asked again");
}

#[tokio::test]
async fn an_answer_that_contradicts_itself_is_an_error() {
    check_broken_answer(|messages| messages[1].offset = 6, "data for offset 6 came where 5 was due").await;
    check_broken_answer(|messages| drop(messages.remove(2)), "data for offset 15 came where 10 was due").await;
    check_broken_answer(|messages| messages[2].data = "ABCDE".into(), "CRC-32C").await;
    check_broken_answer(|messages| messages[4].end.as_mut().unwrap().bytes_sent = 21, "20 bytes arrived of 21").await;
    check_broken_answer(|messages| messages[0].file = None, "names no file").await;
    check_broken_answer(|messages| messages[0].offset = -4, "no place in a file").await;
}

#[tokio::test]
async fn a_read_that_cannot_be_pinned_is_not_resumed() {
    let host = Host::new([broken(pieces(0, ""), 1, Status::unavailable("down")), whole(pieces(5, ""))]).await;
    let error = read(&host.files(), request()).await.unwrap_err();
    assert_eq!(error.kind(), &Kind::DependencyUnavailable);
    assert!(error.to_string().contains("no etag"), "{error}");
    assert_eq!(host.left(), 1);
}

fn matches(lines: &[i32]) -> SearchResponse {
    let found = |line: &i32| Match { path: "/a".into(), line: *line, ..Match::default() };
    SearchResponse { origin: Some(from_workspace()), matches: lines.iter().map(found).collect(), end: None }
}

fn search_end() -> SearchResponse {
    SearchResponse { end: Some(SearchEnd { files_scanned: 2, ..SearchEnd::default() }), ..SearchResponse::default() }
}

async fn search(files: &FilesClient) -> (Vec<i32>, Option<Error>) {
    let mut lines = Vec::new();
    let mut stream = match files.search(SearchRequest::default()).await {
        Ok(stream) => stream,
        Err(error) => return (lines, Some(error)),
    };
    loop {
        match stream.next().await {
            Ok(Some(found)) => lines.push(found.line),
            Ok(None) => return (lines, None),
            Err(error) => return (lines, Some(error)),
        }
    }
}

#[tokio::test]
async fn a_search_is_retried_like_any_read() {
    let good = Reply::Search(vec![Ok(matches(&[3, 4])), Ok(search_end())]);
    let host = Host::new([unavailable(), unavailable(), good]).await;
    let (lines, error) = search(&host.files()).await;
    assert_eq!((lines, error.is_none(), host.asked().len()), (vec![3, 4], true, 3));
}

#[tokio::test]
async fn a_search_broken_before_its_first_match_is_begun_again() {
    let empty = SearchResponse { origin: Some(from_disk()), ..SearchResponse::default() };
    let host = Host::new([
        Reply::Search(vec![Ok(empty), Err(Status::unavailable("down"))]),
        Reply::Search(vec![Ok(matches(&[3])), Ok(search_end())]),
    ])
    .await;
    let (lines, error) = search(&host.files()).await;
    assert_eq!((lines, error.is_none()), (vec![3], true));
}

#[tokio::test]
async fn a_search_broken_after_matches_were_handed_out_is_an_error() {
    let host = Host::new([
        Reply::Search(vec![Ok(matches(&[3])), Err(Status::unavailable("down"))]),
        Reply::Search(vec![Ok(matches(&[3])), Ok(search_end())]),
    ])
    .await;
    let (lines, error) = search(&host.files()).await;
    assert_eq!(lines, [3]);
    assert_eq!(error.unwrap().kind(), &Kind::DependencyUnavailable);
    assert_eq!(host.left(), 1);
}

#[tokio::test]
async fn a_collected_search_is_begun_again_from_anywhere() {
    let host = Host::new([
        Reply::Search(vec![Ok(matches(&[3])), Err(Status::unavailable("down"))]),
        Reply::Search(vec![Ok(matches(&[3, 5]))]),
        Reply::Search(vec![Ok(matches(&[3])), Ok(matches(&[5])), Ok(search_end())]),
    ])
    .await;
    let found = host.files().search(SearchRequest::default()).await.unwrap().collect().await.unwrap();
    let lines: Vec<_> = found.0.iter().map(|found| found.line).collect();
    assert_eq!((lines, found.1.files_scanned, found.2), (vec![3, 5], 2, from_workspace()));
    assert_eq!(host.left(), 0);
}

#[tokio::test]
async fn more_matches_than_were_asked_for_are_not_collected() {
    let host = Host::new([Reply::Search(vec![Ok(matches(&[1, 2, 3])), Ok(search_end())])]).await;
    let request = SearchRequest { max_matches: Some(2), ..SearchRequest::default() };
    let error = host.files().search(request).await.unwrap().collect().await.unwrap_err();
    assert_eq!(error.kind(), &Kind::BrokenAnswer);
}

fn entries(paths: &[&str], sent: Option<i64>) -> Result<ListResponse, Status> {
    Ok(ListResponse {
        origin: Some(from_disk()),
        entries: paths.iter().map(|path| file(path, 1, "")).collect(),
        end: sent.map(|entries_sent| ListEnd { entries_sent, ..ListEnd::default() }),
    })
}

#[tokio::test]
async fn a_listing_broken_midway_goes_on_after_its_last_entry() {
    let host = Host::new([
        Reply::List(vec![entries(&["/p/a", "/p/b"], None), Err(Status::unavailable("down"))]),
        unavailable(),
        Reply::List(vec![entries(&["/p/c"], Some(1))]),
    ])
    .await;
    let request = ListRequest { path: "/p".into(), max_entries: Some(5), ..ListRequest::default() };
    let mut list = host.files().list(request).await.unwrap();
    let mut paths = Vec::new();
    while let Some(entry) = list.next().await.unwrap() {
        paths.push(entry.path);
    }
    assert_eq!(paths, ["/p/a", "/p/b", "/p/c"]);
    assert_eq!(list.end().unwrap().entries_sent, 3);
    let Asked::List(resumed) = &host.asked()[2] else { panic!() };
    assert_eq!((&*resumed.start_after, resumed.max_entries), ("/p/b", Some(3)));
}

#[tokio::test]
async fn a_listing_that_lost_only_its_end_learns_whether_it_was_cut() {
    for (more, truncated) in [(vec!["/p/c"], true), (vec![], false)] {
        let count = more.len() as i64;
        let host = Host::new([
            Reply::List(vec![entries(&["/p/a", "/p/b"], None), Err(Status::unavailable("down"))]),
            Reply::List(vec![entries(&more, Some(count))]),
        ])
        .await;
        let request = ListRequest { max_entries: Some(2), ..ListRequest::default() };
        let (found, end, _) = host.files().list(request).await.unwrap().collect().await.unwrap();
        assert_eq!((found.len(), end.entries_sent, end.truncated), (2, 2, truncated));
        assert_eq!(end.stop_reason() == StopReason::MaxEntries, truncated);
    }
}

#[tokio::test]
async fn more_entries_than_were_asked_for_are_not_collected() {
    let both = || Reply::List(vec![entries(&["/p/a", "/p/b"], Some(2))]);
    let host = Host::new([both(), both()]).await;
    let list = |max| ListRequest { max_entries: Some(max), ..ListRequest::default() };
    let (found, end, _) = host.files().list(list(2)).await.unwrap().collect().await.unwrap();
    assert_eq!((found.len(), end.entries_sent), (2, 2));
    let error = host.files().list(list(1)).await.unwrap().collect().await.unwrap_err();
    assert_eq!(error.kind(), &Kind::BrokenAnswer);
}

#[tokio::test]
async fn a_listing_whose_count_does_not_hold_is_an_error() {
    let host = Host::new([Reply::List(vec![entries(&["/p/a"], Some(2))])]).await;
    let error = host.files().list(ListRequest::default()).await.err().unwrap();
    assert_eq!(error.kind(), &Kind::BrokenAnswer);
}
