//! MakeDirectory: makes a directory. The work runs on when its caller has gone.

use dormouse_files::{Fault, change::MakeDirectoryPlan};
use dormouse_proto::files::v1;
use tonic::Request;

use crate::{
    host::{Feature, Writable, Writing, error::Failure},
    rpc::{
        files::{
            Files, encode,
            fields::{self, Names},
        },
        lane,
        relay::Relay,
    },
};

fn decode(mut request: v1::MakeDirectoryRequest) -> Result<MakeDirectoryPlan, Fault> {
    fields::workspace(&request.workspace)?;
    let path = fields::path("path", &request.path, &request.raw_path, Names::Any)?;
    let mode = fields::mode(request.mode)?;
    let key_text = std::mem::take(&mut request.idempotency_key);
    let key = fields::key(&key_text, "MakeDirectory", &request)?;
    Ok(MakeDirectoryPlan { path, mode, create_parents: request.create_parents, key })
}

impl Files {
    pub(super) async fn do_make_directory(
        &self,
        request: Request<v1::MakeDirectoryRequest>,
    ) -> Result<v1::MakeDirectoryResponse, Failure> {
        let caller = self.caller(&request)?;
        let workspace = request.get_ref().workspace.clone();
        let message = request.into_inner();
        let plan = decode(message.clone())?;
        let (workspace, room) = self.find(&workspace, &caller)?;
        self.host.require(Feature::FileWrite)?;
        let Writing { files, guard } = self.host.writing(&workspace)?;
        let directory = match files {
            Writable::Directory(directory) => directory,
            Writable::Guest(guest) => {
                let _held = (room, guard);
                return Relay::new(guest, workspace.name(), &caller).make_directory(message, &plan.path).await;
            }
        };
        let done = lane::finish(move || {
            let _room = room;
            let done = directory.make_directory(&plan);
            drop(guard);
            Ok(done?)
        })
        .await?;
        Ok(v1::MakeDirectoryResponse {
            file: Some(encode::entry(&done.entry)),
            durable: done.durable,
            replayed: done.replayed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_sound_or_refused_by_field() {
        let check = |path: &str, mode: Option<u32>, expect: Result<(), &str>| {
            let request = v1::MakeDirectoryRequest {
                workspace: "a".to_owned(),
                path: path.to_owned(),
                mode,
                idempotency_key: "k".to_owned(),
                ..Default::default()
            };
            let found = decode(request).map(drop).map_err(|fault| match fault {
                Fault::Invalid { field, .. } => field,
                other => other.to_string(),
            });
            assert_eq!(found, expect.map_err(str::to_owned), "{path}");
        };
        check("/a/", None, Ok(()));
        check("/a", Some(0o700), Ok(()));
        check("/a", Some(0o2755), Err("mode"));
        check("a", None, Err("path"));
    }
}
