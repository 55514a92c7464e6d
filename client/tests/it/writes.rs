//! Write: the whole content, once under its key, from any kind of source.

use std::io;

use dormouse_client::{Kind, WriteSource, proto::files::v1::*};
use tonic::{Code, Status};

use crate::fake::{Asked, Host, Reply, refusal, unavailable};

fn start() -> WriteStart {
    WriteStart { workspace: "c/main".into(), path: "/a".into(), ..WriteStart::default() }
}

fn content(size: usize) -> Vec<u8> {
    (0..size).map(|place| (place % 251) as u8).collect()
}

fn written() -> Reply {
    Reply::Write(WriteResponse { revision: "r".into(), ..WriteResponse::default() })
}

/// Each attempt arrived whole, with its count and checksum, under one key.
fn check(host: &Host, content: &[u8], attempts: usize) {
    let asked = host.asked();
    assert_eq!(asked.len(), attempts);
    let mut keys = Vec::new();
    for attempt in &asked {
        let Asked::Write(start, data, finish) = attempt else { panic!("{attempt:?}") };
        assert!(data == content, "{} bytes of {}", data.len(), content.len());
        let expect = WriteFinish { size_bytes: content.len() as i64, crc32c: Some(crc32c::crc32c(content)) };
        assert_eq!(finish, &Some(expect));
        keys.push(start.idempotency_key.clone());
    }
    assert!(keys[0].len() == 36 && keys.iter().all(|key| *key == keys[0]), "{keys:?}");
}

#[tokio::test]
async fn bytes_of_any_size_arrive_whole() {
    for size in [0, 1, 256 * 1024, 256 * 1024 + 1, 3_000_000] {
        let host = Host::new([written()]).await;
        let answer = host.files().write(start(), WriteSource::bytes(content(size))).await.unwrap();
        assert_eq!(answer.revision, "r");
        check(&host, &content(size), 1);
    }
}

#[tokio::test]
async fn each_attempt_tells_how_far_it_has_come() {
    let host = Host::new([unavailable(), written()]).await;
    let (sender, receiver) = std::sync::mpsc::channel();
    let source = WriteSource::bytes(content(600_000)).with_progress(move |sent| sender.send(sent).unwrap());
    host.files().write(start(), source).await.unwrap();
    let told: Vec<u64> = receiver.into_iter().collect();
    assert_eq!(told[told.len() - 3..], [262_144, 524_288, 600_000]);
}

#[tokio::test]
async fn a_file_is_sent_again_from_its_start() {
    let path = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&path, content(700_000)).unwrap();
    let host = Host::new([unavailable(), Reply::Cut, written()]).await;
    let source = WriteSource::file(tokio::fs::File::open(&path).await.unwrap());
    host.files().write(start(), source).await.unwrap();
    check(&host, &content(700_000), 3);
}

#[tokio::test]
async fn a_reader_is_sent_again_while_it_is_remembered() {
    let host = Host::new([unavailable(), written()]).await;
    let source = WriteSource::reader(io::Cursor::new(content(1_000_000)));
    host.files().write(start(), source).await.unwrap();
    check(&host, &content(1_000_000), 2);

    let host = Host::new([unavailable(), written()]).await;
    let source = WriteSource::reader(io::Cursor::new(content(9 << 20)));
    let error = host.files().write(start(), source).await.unwrap_err();
    assert_eq!((error.kind(), error.attempts(), host.left()), (&Kind::DependencyUnavailable, 1, 1));
}

#[tokio::test]
async fn a_source_that_fails_is_the_error_and_never_a_finished_write() {
    struct Failing;
    impl tokio::io::AsyncRead for Failing {
        fn poll_read(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
            _: &mut tokio::io::ReadBuf<'_>,
        ) -> std::task::Poll<io::Result<()>> {
            std::task::Poll::Ready(Err(io::Error::other("the tape is torn")))
        }
    }
    let host = Host::new([written()]).await;
    let error = host.files().write(start(), WriteSource::reader(Failing)).await.unwrap_err();
    assert_eq!(error.kind(), &Kind::Source);
    assert!(error.to_string().contains("the tape is torn"));
    let finished = host.asked().iter().any(|asked| matches!(asked, Asked::Write(_, _, Some(_))));
    assert!(!finished);
}

#[tokio::test]
async fn a_refusal_is_told_at_once() {
    let host = Host::new([
        refusal(Code::Aborted, "REVISION_MISMATCH", &[("actual_revision", "absent")]),
        Reply::Refuse(Status::unimplemented("")),
    ])
    .await;
    let error = host.files().write(start(), WriteSource::bytes("x")).await.unwrap_err();
    assert_eq!(error.kind(), &Kind::RevisionMismatch { current: "absent".into() });
    let error = host.files().write(start(), WriteSource::bytes("x")).await.unwrap_err();
    assert_eq!(error.kind(), &Kind::HostFeatureUnavailable { feature: "file_write".into() });
    assert_eq!(host.asked().len(), 2);
}
