//! Write: a file of any size, whole or not at all.

use bytes::Bytes;
use dormouse_proto::files::v1::{self as pb, ErrorReason};
use dormouse_tests::{
    ask,
    refusal::Refusal,
    site::{self, LIVE, Site, crc32c, put, revision_of, snapshot},
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

fn start(path: &str) -> pb::WriteStart {
    ask::write(LIVE, path)
}

fn finish(bytes: &[u8]) -> pb::WriteFinish {
    pb::WriteFinish { size_bytes: bytes.len() as i64, crc32c: Some(crc32c(bytes)) }
}

/// Asserts that messages are refused and change nothing.
#[track_caller]
fn check_refused(site: &Site, messages: Vec<pb::WriteRequest>, reason: ErrorReason) -> Refusal {
    let before = snapshot(&site.root);
    let status = site.wait(site.files.clone().write(tokio_stream::iter(messages))).expect_err("it is refused");
    let refusal = Refusal::from(status);
    assert_eq!(snapshot(&site.root), before, "a refused write leaves everything alone: {refusal:?}");
    refusal.expect(reason)
}

#[test]
fn a_write_answers_all_that_was_done() {
    let site = Site::live(|root| put(root, "a", "old"));
    let answer = site
        .write(start("/a"), vec!["one ".into(), Bytes::new(), "two".into()], finish(b"one two"))
        .expect("it is written");
    assert_eq!(answer.revision, revision_of(b"one two"));
    assert_eq!(answer.previous_revision, Some(revision_of(b"old")));
    assert_eq!((answer.bytes_written, answer.durable, answer.replayed), (7, true, false));
    assert_eq!(answer.file.expect("the file"), site.file_info(LIVE, "/a"));
    let answer = site.write(start("/empty"), vec![], pb::WriteFinish::default()).expect("it is written");
    assert_eq!((answer.revision, answer.previous_revision), (revision_of(b""), None));
}

#[test]
fn a_hundred_mebibytes_arrive() {
    let site = Site::live(|_| {});
    let piece = Bytes::from((0..1_u32 << 20).map(|place| (place % 251) as u8).collect::<Vec<_>>());
    let answer = site
        .write(start("/large"), vec![piece.clone(); 100], pb::WriteFinish { size_bytes: 100 << 20, crc32c: None })
        .expect("it is written");
    let content = site.content("/large");
    assert_eq!((answer.bytes_written, content.len()), (100 << 20, 100 << 20));
    assert!(content.chunks(1 << 20).all(|chunk| chunk == piece));
    assert_eq!(answer.revision, revision_of(&content));
    let read = site.read(ask::bytes(LIVE, "/large", -3, 0)).expect("it reads");
    assert_eq!(read.bytes, piece[piece.len() - 3..]);
}

#[test]
fn what_was_not_sent_as_said_is_not_written() {
    let site = Site::live(|root| put(root, "a", "old"));
    let send = |start, finish| site::write_messages(start, vec!["new".into()], finish);
    let wrong = pb::WriteFinish { size_bytes: 4, crc32c: None };
    check_refused(&site, send(start("/a"), Some(wrong)), ErrorReason::InvalidRequest);
    let wrong = pb::WriteFinish { size_bytes: 3, crc32c: Some(1) };
    check_refused(&site, send(start("/a"), Some(wrong)), ErrorReason::InvalidRequest);
    let wrong = pb::WriteStart { content_revision: Some(revision_of(b"other")), ..start("/a") };
    check_refused(&site, send(wrong, Some(finish(b"new"))), ErrorReason::InvalidRequest);
    // A stream that ends without `finish` was cut.
    let parents = pb::WriteStart { create_parents: true, ..start("/d/a") };
    check_refused(&site, send(parents, None), ErrorReason::InvalidRequest);
    check_refused(&site, vec![], ErrorReason::InvalidRequest);
    check_refused(&site, vec![pb::WriteRequest { message: None }], ErrorReason::InvalidRequest);
    let twice = [send(start("/a"), None), send(start("/b"), Some(finish(b"newnew")))].concat();
    check_refused(&site, twice, ErrorReason::InvalidRequest);
    let data_first = send(start("/a"), Some(finish(b"new"))).split_off(1);
    check_refused(&site, data_first, ErrorReason::InvalidRequest);
    let mut after = send(start("/a"), Some(finish(b"new")));
    after.push(after[1].clone());
    check_refused(&site, after, ErrorReason::InvalidRequest);
}

#[test]
fn only_the_expected_revision_is_written() {
    let site = Site::live(|root| put(root, "a", "old"));
    let pinned = |path: &str, revision: &str| {
        let start = pb::WriteStart { expected_revision: Some(revision.to_owned()), ..start(path) };
        site::write_messages(start, vec!["new".into()], Some(finish(b"new")))
    };
    check_refused(&site, pinned("/a", "absent"), ErrorReason::RevisionMismatch)
        .with("actual_revision", &revision_of(b"old"));
    check_refused(&site, pinned("/b", &revision_of(b"old")), ErrorReason::RevisionMismatch)
        .with("actual_revision", "absent");
    check_refused(&site, pinned("/a", "x"), ErrorReason::InvalidRequest).with("field", "expected_revision");
    for (path, revision) in [("/a", revision_of(b"old")), ("/b", "absent".to_owned())] {
        let messages = tokio_stream::iter(pinned(path, &revision));
        site.wait(site.files.clone().write(messages)).expect("it is that revision");
        assert_eq!(site.content(path), b"new");
    }
}

#[test]
fn a_replay_is_answered_before_its_data_where_the_content_is_named() {
    let site = Site::live(|_| {});
    let start = pb::WriteStart { content_revision: Some(revision_of(b"data")), ..start("/a") };
    let first = site.write(start.clone(), vec!["data".into()], finish(b"data")).expect("it is written");
    let answer = site.wait(async {
        let (sender, receiver) = mpsc::channel(1);
        let messages = site::write_messages(start.clone(), vec![], None);
        for message in messages {
            sender.send(message).await.expect("the stream takes it");
        }
        // No data follows, and the stream stays open: only an answer at once ends this.
        let answer = site.files.clone().write(ReceiverStream::new(receiver)).await;
        drop(sender);
        answer.expect("the stored answer").into_inner()
    });
    assert!(answer.replayed);
    assert_eq!(answer.revision, first.revision);
    // Without a name the data decides; other data under the key is another request.
    let plain = ask::write(LIVE, "/b");
    site.write(plain.clone(), vec!["data".into()], finish(b"data")).expect("it is written");
    let again = site.write(plain.clone(), vec!["da".into(), "ta".into()], finish(b"data")).expect("the stored answer");
    assert!(again.replayed);
    let messages = site::write_messages(plain, vec!["more".into()], Some(finish(b"more")));
    check_refused(&site, messages, ErrorReason::IdempotencyKeyReused);
}

#[test]
fn a_write_whose_caller_has_gone_leaves_nothing() {
    let site = Site::live(|root| put(root, "a", "old"));
    let before = snapshot(&site.root);
    let parents = pb::WriteStart { create_parents: true, ..start("/d/e/a") };
    site.wait(async {
        let (sender, receiver) = mpsc::channel(1);
        let mut files = site.files.clone();
        let call = tokio::spawn(async move { files.write(ReceiverStream::new(receiver)).await });
        for message in site::write_messages(parents, vec![Bytes::from(vec![b'x'; 1 << 20]); 4], None) {
            sender.send(message).await.expect("the stream takes it");
        }
        call.abort();
        call.await.expect_err("it was given up");
    });
    // A later change in the same workspace is done after it, or beside it: either way nothing of it shows.
    site.patch(ask::content(LIVE, "/a", &b"old"[..])).expect("it is so already");
    assert_eq!(snapshot(&site.root), before);
}
