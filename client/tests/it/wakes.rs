//! Waking: once in a call, only when the host asks for it, and both causes are told when it fails.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use dormouse_client::{
    FilesClient, HostWaker, Kind, Options, WakeError, Waker, Waking,
    proto::{
        files::v1::*,
        host::v1::{ResumeWorkspaceRequest, Workspace},
    },
};
use tonic::{Code, Status};

use crate::fake::{Asked, Host, Reply, file, from_workspace, quick, refusal};

/// Counts; and fails where it has a reason to.
struct Counter {
    wakes: AtomicUsize,
    failure: Option<&'static str>,
}

impl Counter {
    fn new(failure: Option<&'static str>) -> Arc<Self> {
        Arc::new(Self { wakes: AtomicUsize::new(0), failure })
    }

    fn wakes(&self) -> usize {
        self.wakes.load(Ordering::SeqCst)
    }
}

impl Waker for Counter {
    fn wake<'a>(&'a self, workspace: &'a str) -> Waking<'a> {
        assert_eq!(workspace, "c/main");
        self.wakes.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { self.failure.map_or(Ok(()), |failure| Err(WakeError(failure.into()))) })
    }
}

fn asleep(reason: &str) -> Reply {
    refusal(Code::FailedPrecondition, reason, &[("code", "workspace_not_running")])
}

fn moving() -> Reply {
    refusal(Code::Unavailable, "WORKSPACE_IN_TRANSITION", &[("state", "resuming")])
}

fn patched() -> Reply {
    Reply::Patch(PatchResponse { revision: "r2".into(), ..PatchResponse::default() })
}

async fn patch(files: &FilesClient) -> Result<PatchResponse, dormouse_client::Error> {
    files.patch(PatchRequest { workspace: "c/main".into(), ..PatchRequest::default() }).await
}

#[tokio::test]
async fn a_patch_of_a_suspended_workspace_wakes_it_once_and_is_applied_once() {
    let host = Host::new([asleep("WORKSPACE_NOT_RUNNING"), moving(), moving(), patched()]).await;
    let waker = Counter::new(None);
    let answer = patch(&host.files().with_waker(waker.clone())).await.unwrap();
    assert_eq!((&*answer.revision, waker.wakes()), ("r2", 1));
    let keys: Vec<_> = host.patches().into_iter().map(|request| request.idempotency_key).collect();
    assert_eq!(keys.len(), 4);
    assert!(keys.iter().all(|key| *key == keys[0]));
}

#[tokio::test]
async fn a_workspace_that_will_not_stay_awake_is_not_woken_twice() {
    let host = Host::new([asleep("WORKSPACE_NOT_RUNNING"), asleep("WORKSPACE_NOT_RUNNING"), patched()]).await;
    let waker = Counter::new(None);
    let error = patch(&host.files().with_waker(waker.clone())).await.unwrap_err();
    assert_eq!(error.kind(), &Kind::WorkspaceNotRunning { reason: "workspace_not_running".into() });
    assert_eq!((waker.wakes(), host.left()), (1, 1));
    // The next call is another call.
    patch(&host.files().with_waker(waker.clone())).await.unwrap();
    assert_eq!(waker.wakes(), 1);
}

#[tokio::test]
async fn without_a_waker_the_typed_error_comes_at_once() {
    let host = Host::new([asleep("OFFLINE_BUDGET")]).await;
    let error = patch(&host.files()).await.unwrap_err();
    assert_eq!(error.kind(), &Kind::WorkspaceNotRunning { reason: "offline_budget".into() });
    assert_eq!((error.attempts(), error.wake_failure()), (1, None));
}

#[tokio::test]
async fn a_failed_wake_tells_both_causes() {
    let host = Host::new([asleep("WORKSPACE_NOT_RUNNING"), patched()]).await;
    let waker = Counter::new(Some("no capacity"));
    let error = patch(&host.files().with_waker(waker.clone())).await.unwrap_err();
    assert_eq!(error.kind(), &Kind::WorkspaceNotRunning { reason: "workspace_not_running".into() });
    assert_eq!(error.wake_failure(), Some("no capacity"));
    assert_eq!(error.to_string(), "refused: workspace_not_running; waking the workspace failed: no capacity");
    assert_eq!((waker.wakes(), host.left()), (1, 1));
}

#[tokio::test]
async fn a_wake_that_takes_too_long_is_given_up() {
    struct Endless;
    impl Waker for Endless {
        fn wake<'a>(&'a self, _: &'a str) -> Waking<'a> {
            Box::pin(std::future::pending())
        }
    }
    let host = Host::new([asleep("WORKSPACE_NOT_RUNNING"), asleep("WORKSPACE_NOT_RUNNING")]).await;
    let mut options = quick();
    options.policy.wake = Duration::from_millis(20);
    let error = patch(&host.files().with_waker(Arc::new(Endless)).with_options(options)).await.unwrap_err();
    assert_eq!(error.wake_failure(), Some("it took too long"));
    let options = Options { timeout: Some(Duration::from_secs(1)), ..quick() };
    let error = patch(&host.files().with_waker(Arc::new(Endless)).with_options(options)).await.unwrap_err();
    assert_eq!(error.kind(), &Kind::WorkspaceNotRunning { reason: "workspace_not_running".into() });
}

#[tokio::test]
async fn reads_that_the_disk_cannot_answer_wake_it_too() {
    let data = ReadResponse {
        file: Some(file("/a", 1, "e1")),
        origin: Some(from_workspace()),
        data: "x".into(),
        end: Some(ReadEnd { bytes_sent: 1, crc32c: crc32c::crc32c(b"x"), ..ReadEnd::default() }),
        ..ReadResponse::default()
    };
    for reason in ["OFFLINE_UNAVAILABLE", "OFFLINE_BUDGET"] {
        let host = Host::new([asleep(reason), Reply::Read(vec![Ok(data.clone())])]).await;
        let waker = Counter::new(None);
        let request = ReadRequest { workspace: "c/main".into(), ..ReadRequest::default() };
        let mut read = host.files().with_waker(waker.clone()).read(request).await.unwrap();
        assert_eq!(read.next().await.unwrap().unwrap(), "x");
        assert_eq!(read.next().await.unwrap(), None);
        assert_eq!((waker.wakes(), read.header().origin), (1, from_workspace()));
    }
}

#[tokio::test]
async fn a_transition_is_waited_out_and_never_woken() {
    let host = Host::new([moving(), refusal(Code::Unavailable, "OFFLINE_CHANGED", &[]), patched()]).await;
    let waker = Counter::new(None);
    patch(&host.files().with_waker(waker.clone())).await.unwrap();
    assert_eq!(waker.wakes(), 0);
}

#[tokio::test]
async fn the_host_itself_can_wake() {
    let host = Host::new([asleep("WORKSPACE_NOT_RUNNING"), Reply::Workspace(Workspace::default()), patched()]).await;
    let files = host.files().with_waker(Arc::new(HostWaker::new(host.host())));
    patch(&files).await.unwrap();
    let resume = ResumeWorkspaceRequest { name: "c/main".into(), generation: 0 };
    assert_eq!(host.asked()[1], Asked::Resume(resume));

    let refused = Reply::Refuse(Status::permission_denied("not yours"));
    let host = Host::new([asleep("WORKSPACE_NOT_RUNNING"), refused]).await;
    let error = patch(&host.files().with_waker(Arc::new(HostWaker::new(host.host())))).await.unwrap_err();
    assert_eq!(error.wake_failure(), Some("not yours"));
}
