//! The agent inside a machine, as far as a host's transitions need one: it says that it is there, that it froze, and that it
//! thawed, or what a test wants it to.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use dormouse_proto::guest::v1::{
    self as pb,
    guest_service_server::{GuestService, GuestServiceServer},
};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status, transport::Server};

/// What it is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    GetGuest,
    Freeze,
    Thaw,
}

/// The agent of a machine whose root is one ext4 file system.
#[derive(Clone, Default)]
pub struct Guest {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    asked: Vec<Asked>,
    silent: Vec<Asked>,
    mounts: Vec<pb::Mount>,
}

impl Guest {
    /// Serves on a Unix socket for as long as the runtime lives. Must be called within one.
    pub fn serve(path: &Path) -> Self {
        let this = Self::default();
        this.mount("/", "ext4", "");
        let listener = UnixListener::bind(path).expect("a socket is bound");
        let service = GuestServiceServer::new(this.clone());
        tokio::spawn(Server::builder().add_service(service).serve_with_incoming(UnixListenerStream::new(listener)));
        this
    }

    fn with<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        change(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// One more line of its mount table, in place of another one at the same path.
    pub fn mount(&self, path: &str, kind: &str, uuid: &str) {
        let mount = pb::Mount {
            path: path.to_owned(),
            file_system_type: kind.to_owned(),
            file_system_uuid: uuid.to_owned(),
            root: "/".to_owned(),
            frozen: path == "/",
            ..Default::default()
        };
        self.with(|inner| {
            inner.mounts.retain(|known| known.path != path);
            inner.mounts.push(mount);
        });
    }

    /// From now on it says nothing to these calls.
    pub fn silent(&self, calls: &[Asked]) {
        self.with(|inner| inner.silent = calls.to_vec());
    }

    /// What it was asked for so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.with(|inner| inner.asked.clone())
    }

    async fn hear(&self, call: Asked) {
        let silent = self.with(|inner| {
            inner.asked.push(call);
            inner.silent.contains(&call)
        });
        if silent {
            std::future::pending::<()>().await;
        }
    }
}

#[tonic::async_trait]
impl GuestService for Guest {
    async fn get_guest(&self, _: Request<pb::GetGuestRequest>) -> Result<Response<pb::GetGuestResponse>, Status> {
        self.hear(Asked::GetGuest).await;
        Ok(Response::new(pb::GetGuestResponse::default()))
    }

    async fn freeze(&self, _: Request<pb::FreezeRequest>) -> Result<Response<pb::FreezeResponse>, Status> {
        self.hear(Asked::Freeze).await;
        Ok(Response::new(pb::FreezeResponse { mounts: self.with(|inner| inner.mounts.clone()) }))
    }

    async fn thaw(&self, _: Request<pb::ThawRequest>) -> Result<Response<pb::ThawResponse>, Status> {
        self.hear(Asked::Thaw).await;
        Ok(Response::new(pb::ThawResponse::default()))
    }
}
