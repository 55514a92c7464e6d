//! Calls with one answer: what is sent again, with what, and what the caller gets in the end.

use std::time::{Duration, Instant};

use dormouse_client::{
    Endpoint, FilesClient, Kind, Options, REQUEST_BYTES_MAX, Token,
    proto::{
        files::v1::*,
        host::v1::{ListWorkspacesRequest, WatchWorkspacesResponse, Workspace},
    },
};
use tonic::{Code, Status};

use crate::fake::{Asked, Host, Reply, file, quick, refusal, unavailable};

fn stat() -> StatRequest {
    StatRequest { workspace: "c/main".into(), path: "/a".into(), ..StatRequest::default() }
}

fn stat_reply() -> Reply {
    Reply::Stat(StatResponse { file: Some(file("/a", 3, "e1")), origin: None })
}

fn patch() -> PatchRequest {
    PatchRequest {
        workspace: "c/main".into(),
        path: "/a".into(),
        change: Some(patch_request::Change::Content("new".into())),
        ..PatchRequest::default()
    }
}

#[tokio::test]
async fn a_read_that_fails_twice_is_one_call_with_three_attempts() {
    let host = Host::new([unavailable(), unavailable(), stat_reply()]).await;
    let answer = host.files().stat(stat()).await.unwrap();
    assert_eq!(answer.file.unwrap().size_bytes, 3);
    assert_eq!(host.asked(), [Asked::Stat(stat()), Asked::Stat(stat()), Asked::Stat(stat())]);
}

#[tokio::test]
async fn five_attempts_are_made_and_no_more() {
    let host = Host::new(vec![unavailable(); 7]).await;
    let error = host.files().stat(stat()).await.unwrap_err();
    assert_eq!((error.kind(), error.attempts(), host.left()), (&Kind::DependencyUnavailable, 5, 2));
    assert_eq!(error.to_string(), "down (after 5 attempts)");
}

#[tokio::test]
async fn a_lost_answer_is_asked_for_again_with_the_same_key() {
    let done = PatchResponse { revision: "r2".into(), replayed: true, ..PatchResponse::default() };
    let host = Host::new([Reply::Cut, unavailable(), Reply::Patch(done)]).await;
    let answer = host.files().patch(patch()).await.unwrap();
    assert!(answer.replayed);
    let keys: Vec<_> = host.patches().into_iter().map(|request| request.idempotency_key).collect();
    assert_eq!(keys.len(), 3);
    assert_eq!(keys[0].len(), 36);
    assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
}

#[tokio::test]
async fn each_mutation_has_a_key_of_its_own_and_a_given_one_is_kept() {
    let host = Host::new([
        Reply::Patch(PatchResponse::default()),
        Reply::Patch(PatchResponse::default()),
        Reply::Patch(PatchResponse::default()),
        Reply::Remove(RemoveResponse::default()),
        Reply::Move(MoveResponse::default()),
        Reply::MakeDirectory(MakeDirectoryResponse::default()),
    ])
    .await;
    let files = host.files();
    files.patch(patch()).await.unwrap();
    files.patch(patch()).await.unwrap();
    files.patch(PatchRequest { idempotency_key: "mine".into(), ..patch() }).await.unwrap();
    files.remove(RemoveRequest::default()).await.unwrap();
    files.rename(MoveRequest::default()).await.unwrap();
    files.make_directory(MakeDirectoryRequest::default()).await.unwrap();
    let keys: Vec<_> = host
        .asked()
        .into_iter()
        .map(|asked| match asked {
            Asked::Patch(request) => request.idempotency_key,
            Asked::Remove(request) => request.idempotency_key,
            Asked::Move(request) => request.idempotency_key,
            Asked::MakeDirectory(request) => request.idempotency_key,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_ne!(keys[0], keys[1]);
    assert_eq!(keys[2], "mine");
    assert!(keys.iter().enumerate().all(|(place, key)| place == 2 || key.len() == 36), "{keys:?}");
}

#[tokio::test]
async fn a_refusal_is_told_at_once_with_its_details() {
    let metadata = [("actual_revision", "r9"), ("code", "conflict"), ("retryable", "false")];
    let host = Host::new([refusal(Code::Aborted, "REVISION_MISMATCH", &metadata)]).await;
    let error = host.files().patch(patch()).await.unwrap_err();
    assert_eq!(error.kind(), &Kind::RevisionMismatch { current: "r9".into() });
    assert_eq!((error.code(), error.attempts(), error.retryable()), (Code::Aborted, 1, false));
    assert_eq!(error.metadata()["code"], "conflict");
}

#[tokio::test]
async fn an_old_host_lacks_the_feature_and_is_asked_once() {
    let host = Host::new([Reply::Refuse(Status::unimplemented("")), Reply::Refuse(Status::unimplemented(""))]).await;
    let error = host.files().search(SearchRequest::default()).await.err().unwrap();
    assert_eq!(error.kind(), &Kind::HostFeatureUnavailable { feature: "file_search".into() });
    let error = host.files().patch(patch()).await.unwrap_err();
    assert_eq!(error.kind(), &Kind::HostFeatureUnavailable { feature: "file_patch".into() });
    assert_eq!((error.attempts(), host.asked().len()), (1, 2));
}

#[tokio::test]
async fn a_host_without_the_service_is_an_old_host_too() {
    let host = Host::without_services().await;
    let error = host.files().patch(patch()).await.unwrap_err();
    assert_eq!(error.kind(), &Kind::HostFeatureUnavailable { feature: "file_patch".into() });
    assert_eq!(error.attempts(), 1);
    let none = host.files().capabilities(GetCapabilitiesRequest::default()).await.unwrap();
    assert_eq!(none, GetCapabilitiesResponse::default());
}

#[tokio::test]
async fn the_caller_s_deadline_holds_and_is_sent_along() {
    let host = Host::new([Reply::Hang]).await;
    let options = Options { timeout: Some(Duration::from_secs(1)), ..quick() };
    let begun = Instant::now();
    let error = host.files().with_options(options).stat(stat()).await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (&Kind::DeadlineExceeded, Code::DeadlineExceeded));
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert!(host.header(0, "grpc-timeout").is_some());
    assert_eq!(host.asked().len(), 1);
}

#[tokio::test]
async fn an_attempt_s_time_out_is_another_attempt_with_the_same_key() {
    let host = Host::new([Reply::Hang, Reply::Patch(PatchResponse::default())]).await;
    let options = Options { attempt_timeout: Some(Duration::from_secs(1)), ..quick() };
    host.files().with_options(options).patch(patch()).await.unwrap();
    let patches = host.patches();
    assert_eq!(patches.len(), 2);
    assert_eq!(patches[0], patches[1]);
}

#[tokio::test]
async fn token_and_generation_are_sent_as_metadata() {
    let host = Host::new([stat_reply()]).await;
    let options = Options { token: Token::new("s3cret"), generation: Some(7), ..quick() };
    host.files().with_options(options).stat(stat()).await.unwrap();
    assert_eq!(host.header(0, "authorization").as_deref(), Some("Bearer s3cret"));
    assert_eq!(host.header(0, "dormouse-generation").as_deref(), Some("7"));
    assert_eq!(host.header(0, "grpc-timeout"), None);
}

#[tokio::test]
async fn a_request_that_is_too_large_is_never_sent() {
    let host = Host::new([Reply::Patch(PatchResponse::default())]).await;
    let content = |size| PatchRequest { change: Some(patch_request::Change::Content(vec![7; size].into())), ..patch() };
    let error = host.files().patch(content(REQUEST_BYTES_MAX)).await.unwrap_err();
    assert_eq!(error.kind(), &Kind::LimitExceeded { limit_bytes: Some(7_340_032) });
    assert!(host.asked().is_empty());
    host.files().patch(content(REQUEST_BYTES_MAX - 100)).await.unwrap();
    assert_eq!(host.asked().len(), 1);
}

#[tokio::test]
async fn nobody_at_the_endpoint_is_unavailable_after_retries() {
    let directory = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::Unix(directory.path().join("nobody.sock"));
    let error = FilesClient::new(endpoint.channel()).with_options(quick()).stat(stat()).await.unwrap_err();
    assert_eq!((error.kind(), error.attempts()), (&Kind::DependencyUnavailable, 5));
    // Something that does not speak HTTP/2, and closes at once.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint: Endpoint = format!("tcp:{}", listener.local_addr().unwrap()).parse().unwrap();
    let closer = tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    let error = FilesClient::new(endpoint.channel()).with_options(quick()).stat(stat()).await.unwrap_err();
    assert_eq!((error.kind(), error.attempts()), (&Kind::DependencyUnavailable, 5));
    closer.abort();
}

#[tokio::test]
async fn a_lost_watch_is_begun_again() {
    let change = |name: &str| WatchWorkspacesResponse {
        workspace: Some(Workspace { name: name.into(), ..Workspace::default() }),
        ..WatchWorkspacesResponse::default()
    };
    let host = Host::new([
        unavailable(),
        Reply::Watch(vec![Ok(change("a")), Err(Status::unavailable("down"))]),
        Reply::Watch(vec![Ok(change("a")), Ok(change("b"))]),
        refusal(Code::Unauthenticated, "CREDENTIALS_REQUIRED", &[]),
    ])
    .await;
    let mut watch = host.host().watch_workspaces().await.unwrap();
    let mut names = Vec::new();
    let error = loop {
        match watch.next().await {
            Ok(change) => names.push(change.workspace.unwrap().name),
            Err(error) => break error,
        }
    };
    assert_eq!(names, ["a", "a", "b"]);
    assert_eq!(error.kind(), &Kind::Unauthenticated);
}

#[tokio::test]
async fn the_host_s_calls_are_retried_by_the_same_rules() {
    let page = vec![Workspace { name: "a".into(), ..Workspace::default() }];
    let host = Host::new([unavailable(), Reply::Workspaces(page)]).await;
    let answer = host.host().list_workspaces(ListWorkspacesRequest::default()).await.unwrap();
    assert_eq!(answer.workspaces.len(), 1);
    assert_eq!(host.asked().len(), 2);
}
