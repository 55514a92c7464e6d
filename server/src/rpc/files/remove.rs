//! Remove: a file, a link, an empty directory, or with `recursive` a whole one. The work runs on when its caller has gone.

use dormouse_files::{Fault, change::RemovePlan, revision::Expected};
use dormouse_proto::files::v1;
use tonic::Request;

use crate::{
    host::{Feature, Writable, Writing, error::Failure},
    rpc::{
        files::{
            Files,
            fields::{self, Names},
        },
        lane::{self, LaneBudget},
        relay::Relay,
    },
};

fn decode(mut request: v1::RemoveRequest) -> Result<RemovePlan, Fault> {
    fields::workspace(&request.workspace)?;
    let path = fields::path("path", &request.path, &request.raw_path, Names::Any)?;
    if path.is_root() {
        return Err(Fault::invalid("path", "the workspace's root is not removed; release the workspace instead"));
    }
    let expected = match fields::expected_content(request.expected_revision.as_deref())? {
        Some(revision) => Expected::Revision(revision),
        None => Expected::Any,
    };
    let key_text = std::mem::take(&mut request.idempotency_key);
    let key = fields::key(&key_text, "Remove", &request)?;
    Ok(RemovePlan { path, expected, recursive: request.recursive, key })
}

impl Files {
    pub(super) async fn do_remove(&self, request: Request<v1::RemoveRequest>) -> Result<v1::RemoveResponse, Failure> {
        let caller = self.caller(&request)?;
        let workspace = request.get_ref().workspace.clone();
        let message = request.into_inner();
        let plan = decode(message.clone())?;
        let (workspace, room) = self.find(&workspace, &caller)?;
        self.host.require(Feature::FileWrite)?;
        self.require_revisions(plan.expected != Expected::Any)?;
        let Writing { files, guard } = self.host.writing(&workspace)?;
        let directory = match files {
            Writable::Directory(directory) => directory,
            Writable::Guest(guest) => {
                let _held = (room, guard);
                return Relay::new(guest, workspace.name(), &caller).remove(message).await;
            }
        };
        let budget = LaneBudget::new(caller.deadline, None);
        let done = lane::finish(move || {
            let _room = room;
            let done = directory.remove(&plan, &budget);
            drop(guard);
            Ok(done?)
        })
        .await?;
        Ok(v1::RemoveResponse {
            previous_revision: done.previous_revision.map(|revision| revision.to_string()),
            durable: done.durable,
            replayed: done.replayed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removal_is_sound_or_refused_by_field() {
        let request = v1::RemoveRequest {
            workspace: "a".to_owned(),
            path: "/d".to_owned(),
            idempotency_key: "k".to_owned(),
            ..Default::default()
        };
        let check = |request: v1::RemoveRequest, expect: Result<(), &str>| {
            let found = decode(request).map(drop).map_err(|fault| match fault {
                Fault::Invalid { field, .. } => field,
                other => other.to_string(),
            });
            assert_eq!(found, expect.map_err(str::to_owned));
        };
        check(request.clone(), Ok(()));
        check(v1::RemoveRequest { path: "/".to_owned(), ..request.clone() }, Err("path"));
        let absent = Some("absent".to_owned());
        check(v1::RemoveRequest { expected_revision: absent, ..request.clone() }, Err("expected_revision"));
        check(v1::RemoveRequest { idempotency_key: " ".to_owned(), ..request }, Err("idempotency_key"));
    }
}
