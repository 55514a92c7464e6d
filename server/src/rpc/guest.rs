//! GuestService: what a host asks of the agent inside one of its machines, beside its files.

use std::{sync::Arc, time::Duration};

use dormouse_files::{Fault, path::TreePath};
use dormouse_proto::guest::v1::{self, guest_service_server::GuestService};
use tonic::{Request, Response, Status};

use crate::{
    guest::{
        freezer::{FREEZE_TIME_MAX, FreezeError, Freezer},
        mounts::Mount,
    },
    host::{QUIESCE_TIMEOUT, error::Failure, error::HostFault},
    rpc::{files::encode, lane, status},
};

/// The service.
#[derive(Clone)]
pub struct GuestControl {
    freezer: Arc<Freezer>,
    boot_id: String,
}

impl GuestControl {
    /// Over this freezer, in this boot of the machine.
    pub fn new(freezer: Arc<Freezer>, boot_id: String) -> Self {
        Self { freezer, boot_id }
    }
}

fn limit(timeout: Option<prost_types::Duration>) -> Result<Duration, HostFault> {
    match timeout {
        None => Ok(QUIESCE_TIMEOUT),
        Some(timeout) => match Duration::try_from(timeout) {
            Ok(limit) if !limit.is_zero() && limit <= FREEZE_TIME_MAX => Ok(limit),
            _ => {
                let what = format!("give a time above 0 and up to {} s", FREEZE_TIME_MAX.as_secs());
                Err(HostFault::invalid("timeout", what))
            }
        },
    }
}

fn failure(error: FreezeError) -> Failure {
    match error {
        FreezeError::Late => Fault::DeadlineExceeded.into(),
        FreezeError::Unsupported { .. } => HostFault::FeatureUnavailable { feature: "guest_freeze".to_owned() }.into(),
        FreezeError::Io(source) if source.kind() == std::io::ErrorKind::PermissionDenied => {
            Fault::PermissionDenied { path: TreePath::root() }.into()
        }
        FreezeError::Io(source) => Fault::Io { path: TreePath::root(), source }.into(),
        busy @ FreezeError::Busy { .. } => {
            Fault::Io { path: TreePath::root(), source: std::io::Error::other(busy.to_string()) }.into()
        }
    }
}

fn mount((mount, frozen): &(Mount, bool)) -> v1::Mount {
    let (path, raw_path) = encode::path(&mount.path);
    v1::Mount {
        path,
        raw_path,
        file_system_type: mount.kind.clone(),
        file_system_uuid: mount.uuid.clone(),
        root: String::from_utf8_lossy(&mount.root).into_owned(),
        frozen: *frozen,
        read_only: mount.read_only,
    }
}

#[tonic::async_trait]
impl GuestService for GuestControl {
    async fn get_guest(&self, _: Request<v1::GetGuestRequest>) -> Result<Response<v1::GetGuestResponse>, Status> {
        Ok(Response::new(v1::GetGuestResponse {
            server_version: concat!("dormouse ", env!("CARGO_PKG_VERSION")).to_owned(),
            boot_id: self.boot_id.clone(),
            frozen: self.freezer.is_frozen(),
        }))
    }

    async fn freeze(&self, request: Request<v1::FreezeRequest>) -> Result<Response<v1::FreezeResponse>, Status> {
        let limit = limit(request.into_inner().timeout).map_err(|fault| status::of_host(&fault))?;
        let freezer = self.freezer.clone();
        let mounts = lane::finish(move || freezer.freeze(limit).map_err(failure)).await;
        let mounts = mounts.map_err(|failure| status::of("", &failure))?;
        Ok(Response::new(v1::FreezeResponse { mounts: mounts.iter().map(mount).collect() }))
    }

    async fn thaw(&self, _: Request<v1::ThawRequest>) -> Result<Response<v1::ThawResponse>, Status> {
        let freezer = self.freezer.clone();
        let mount_paths = lane::finish(move || Ok(freezer.thaw())).await;
        let mount_paths = mount_paths.map_err(|failure| status::of("", &failure))?;
        Ok(Response::new(v1::ThawResponse { mount_paths }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freeze_lasts_up_to_a_minute() {
        let check = |seconds: i64, nanos: i32, expect: bool| {
            assert_eq!(limit(Some(prost_types::Duration { seconds, nanos })).is_ok(), expect, "{seconds}");
        };
        check(60, 0, true);
        check(0, 1, true);
        check(0, 0, false);
        check(-1, 0, false);
        check(60, 1, false);
        assert_eq!(limit(None).ok(), Some(QUIESCE_TIMEOUT));
    }
}
