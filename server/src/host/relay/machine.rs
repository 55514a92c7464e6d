//! What the host says to a machine's own agent about the machine: are you there, freeze, thaw. Every call has a deadline of
//! its own: a stopped machine neither answers nor refuses.

use std::time::Duration;

use dormouse_files::path::TreePath;
use dormouse_proto::guest::v1::{self, guest_service_client::GuestServiceClient};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout_at};
use tonic::{Code, Status};

use crate::host::relay::Link;

/// Longest answer of the guest to one of these calls, in bytes.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Longest sum of the mount paths that are kept, in bytes: they go into the workspace's record.
const PATHS_BYTES_MAX: usize = 64 << 10;
/// Most mounts of a machine.
const MOUNT_COUNT_MAX: usize = 4_096;
/// One try of finding the guest.
const TRY_TIME: Duration = Duration::from_secs(2);
/// Between two tries.
const TRY_PAUSE: Duration = Duration::from_millis(100);
/// Beyond the freeze's own time, for its answer to arrive.
const ANSWER_TIME: Duration = Duration::from_secs(2);

/// What a guest told when it froze, as far as a Seal needs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Frozen {
    /// Of the file system of the workspace's root; empty where it has none.
    pub root_uuid: String,
    /// Where in that file system the workspace's root is.
    pub root: String,
    /// Mount points beneath the root; none of them beneath another.
    pub mount_paths: Vec<String>,
}

/// Why a guest did not do as it was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuestFault {
    /// It does not answer.
    Unreachable,
    /// It is too old, or its file system cannot.
    Unsupported,
    /// It answers, and says this.
    Refused(String),
}

fn fault(status: &Status) -> GuestFault {
    use std::error::Error;
    match status.code() {
        Code::Unimplemented => GuestFault::Unsupported,
        Code::Unavailable | Code::DeadlineExceeded => GuestFault::Unreachable,
        _ if status.source().is_some() => GuestFault::Unreachable,
        code => GuestFault::Refused(format!("{code:?}: {}", status.message())),
    }
}

impl Link {
    fn machine(&self) -> GuestServiceClient<tonic::transport::Channel> {
        GuestServiceClient::new(self.channel()).max_decoding_message_size(ANSWER_BYTES_MAX)
    }

    /// Freezes the machine's file systems for at most so long.
    ///
    /// # Errors
    /// See [`GuestFault`].
    pub async fn freeze(&self, limit: Duration) -> Result<Frozen, GuestFault> {
        let timeout = prost_types::Duration::try_from(limit).ok();
        let mut machine = self.machine();
        let call = machine.freeze(self.request(v1::FreezeRequest { timeout }));
        match timeout_at(Instant::now() + limit + ANSWER_TIME, call).await {
            Err(_) => Err(GuestFault::Unreachable),
            Ok(Err(status)) => Err(fault(&status)),
            Ok(Ok(answer)) => frozen(&answer.into_inner().mounts).map_err(GuestFault::Refused),
        }
    }

    /// Lets the machine's file systems go on. A guest without that call has frozen nothing.
    ///
    /// # Errors
    /// `Unreachable`, `Refused`.
    pub async fn thaw(&self, limit: Duration) -> Result<(), GuestFault> {
        let mut machine = self.machine();
        let call = machine.thaw(self.request(v1::ThawRequest {}));
        match timeout_at(Instant::now() + limit, call).await {
            Err(_) => Err(GuestFault::Unreachable),
            Ok(Err(status)) => match fault(&status) {
                GuestFault::Unsupported => Ok(()),
                fault => Err(fault),
            },
            Ok(Ok(_)) => Ok(()),
        }
    }

    /// Waits until the guest answers, and thaws it; no longer than until `until`.
    ///
    /// # Errors
    /// `Unreachable`, `Refused`.
    pub async fn open(&self, until: Instant) -> Result<(), GuestFault> {
        loop {
            let mut machine = self.machine();
            let call = machine.get_guest(self.request(v1::GetGuestRequest {}));
            let answers = match timeout_at(until.min(Instant::now() + TRY_TIME), call).await {
                Err(_) => false,
                Ok(Ok(_)) => true,
                Ok(Err(status)) => match fault(&status) {
                    // An older agent answers too, if only that it does not know the call.
                    GuestFault::Unsupported => true,
                    GuestFault::Unreachable => false,
                    refused @ GuestFault::Refused(_) => return Err(refused),
                },
            };
            if answers {
                return self.thaw(until.saturating_duration_since(Instant::now())).await;
            }
            if Instant::now() + TRY_PAUSE >= until {
                return Err(GuestFault::Unreachable);
            }
            tokio::time::sleep(TRY_PAUSE).await;
        }
    }
}

/// A guest's mount table, of which nothing is believed but what makes the host more careful.
fn frozen(mounts: &[v1::Mount]) -> Result<Frozen, String> {
    if mounts.len() > MOUNT_COUNT_MAX {
        return Err(format!("it has more than {MOUNT_COUNT_MAX} mounts"));
    }
    let mut root = None;
    let mut paths: Vec<TreePath> = Vec::new();
    for mount in mounts {
        let bytes = if mount.raw_path.is_empty() { mount.path.as_bytes() } else { mount.raw_path.as_ref() };
        let path = TreePath::parse(bytes).map_err(|error| format!("a mount point makes no sense: {error}"))?;
        if path.is_root() {
            root = Some(mount);
        } else {
            paths.push(shown(&path));
        }
    }
    let root = root.ok_or("its mount table has no root")?;
    if !root.frozen {
        return Err("it did not freeze the file system of the workspace's root".to_owned());
    }
    paths.sort_by(|one, other| one.as_bytes().len().cmp(&other.as_bytes().len()).then_with(|| one.cmp(other)));
    let mut outermost: Vec<TreePath> = Vec::new();
    let mut bytes = 0;
    for path in paths {
        if outermost.iter().any(|outer| path.is_within(outer)) {
            continue;
        }
        bytes += path.as_bytes().len();
        if bytes > PATHS_BYTES_MAX {
            return Err(format!("its mount points have more than {PATHS_BYTES_MAX} bytes"));
        }
        outermost.push(path);
    }
    if root.file_system_uuid.len() > 64 || root.root.len() > 4096 {
        return Err("its root makes no sense".to_owned());
    }
    Ok(Frozen {
        root_uuid: root.file_system_uuid.clone(),
        root: root.root.clone(),
        mount_paths: outermost.iter().map(ToString::to_string).collect(),
    })
}

/// The path up to its first name that is not UTF-8: a record holds text, and more that is foreign is the careful side.
fn shown(path: &TreePath) -> TreePath {
    let mut shown = TreePath::root();
    for name in path.components() {
        if std::str::from_utf8(name).is_err() {
            break;
        }
        shown = shown.join(name);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(path: &str, frozen: bool) -> v1::Mount {
        v1::Mount { path: path.to_owned(), frozen, root: "/".to_owned(), ..Default::default() }
    }

    #[track_caller]
    fn check(mounts: &[v1::Mount], expect: Result<&[&str], &str>) {
        match (frozen(mounts), expect) {
            (Ok(found), Ok(paths)) => assert_eq!(found.mount_paths, paths),
            (Err(found), Err(part)) => assert!(found.contains(part), "{found}"),
            (found, _) => panic!("{found:?}"),
        }
    }

    #[test]
    fn a_mount_table_is_kept_as_far_as_it_makes_the_host_careful() {
        check(&[mount("/", true)], Ok(&[]));
        check(&[mount("/", true), mount("/proc/sys", false), mount("/proc", false)], Ok(&["/proc"]));
        let raw = v1::Mount { raw_path: b"/mnt/\xff/x".to_vec().into(), ..mount("", false) };
        check(&[mount("/", true), raw], Ok(&["/mnt"]));
        check(&[], Err("no root"));
        check(&[mount("/", false)], Err("did not freeze"));
        check(&[mount("/", true), mount("/../x", false)], Err("makes no sense"));
        let many: Vec<_> = (0..400)
            .map(|number| mount(&format!("/{number}{}", "x".repeat(250)), false))
            .chain([mount("/", true)])
            .collect();
        check(&many, Err("bytes"));
    }
}
