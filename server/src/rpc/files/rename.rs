//! Move: renames a file or directory within its workspace. The work runs on when its caller has gone.

use dormouse_files::{Fault, change::MovePlan, revision::Expected};
use dormouse_proto::files::v1;
use tonic::Request;

use crate::{
    host::{Feature, Writable, Writing, error::Failure},
    rpc::{
        files::{
            Files, encode,
            fields::{self, Names},
        },
        lane::{self, LaneBudget},
        relay::Relay,
    },
};

fn decode(mut request: v1::MoveRequest) -> Result<MovePlan, Fault> {
    fields::workspace(&request.workspace)?;
    let path = fields::path("path", &request.path, &request.raw_path, Names::Any)?;
    let new_path = fields::path("new_path", &request.new_path, &request.raw_new_path, Names::Any)?;
    if path.is_root() {
        return Err(Fault::invalid("path", "the workspace's root cannot be moved"));
    }
    if new_path.is_within(&path) {
        return Err(Fault::invalid("new_path", "it is the path itself, or lies beneath it"));
    }
    let expected = match fields::expected_content(request.expected_revision.as_deref())? {
        Some(revision) => Expected::Revision(revision),
        None => Expected::Any,
    };
    let key_text = std::mem::take(&mut request.idempotency_key);
    let key = fields::key(&key_text, "Move", &request)?;
    let (replace, create_parents) = (request.replace, request.create_parents);
    Ok(MovePlan { path, new_path, replace, expected, create_parents, key })
}

impl Files {
    pub(super) async fn do_move(&self, request: Request<v1::MoveRequest>) -> Result<v1::MoveResponse, Failure> {
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
                return Relay::new(guest, workspace.name(), &caller).rename(message, &plan.new_path).await;
            }
        };
        let budget = LaneBudget::new(caller.deadline, None);
        let done = lane::finish(move || {
            let _room = room;
            let done = directory.rename(&plan, &budget);
            drop(guard);
            Ok(done?)
        })
        .await?;
        Ok(v1::MoveResponse { file: Some(encode::entry(&done.entry)), durable: done.durable, replayed: done.replayed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_is_sound_or_refused_by_field() {
        let check = |path: &str, new_path: &str, expect: Result<(), &str>| {
            let request = v1::MoveRequest {
                workspace: "a".to_owned(),
                path: path.to_owned(),
                new_path: new_path.to_owned(),
                idempotency_key: "k".to_owned(),
                ..Default::default()
            };
            let found = decode(request).map(drop).map_err(|fault| match fault {
                Fault::Invalid { field, .. } => field,
                other => other.to_string(),
            });
            assert_eq!(found, expect.map_err(str::to_owned), "{path} to {new_path}");
        };
        check("/a", "/b", Ok(()));
        check("/a", "/ab", Ok(()));
        check("/a", "/a", Err("new_path"));
        check("/a", "/a/b", Err("new_path"));
        check("/", "/a", Err("path"));
        check("/a", "", Err("new_path"));
        check("", "/a", Err("path"));
    }
}
