//! Patch: replaces text in a file, or its whole content. The work runs on when its caller has gone.

use dormouse_files::{
    Fault,
    limits::Limits,
    patch::{self, Change, Edit, PatchPlan},
    revision::Expected,
};
use dormouse_proto::files::v1;
use prost::Message;
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

/// A request up to this size is hashed where it arrives, in some tens of microseconds; one of some MiB takes some
/// milliseconds, on a lane. The way to a lane and back costs more than the hash of a small one.
const DECODED_AT_ONCE_BYTES_MAX: usize = 32 << 10;

fn decode(mut request: v1::PatchRequest, limits: &Limits) -> Result<PatchPlan, Fault> {
    fields::size(&request, limits.request_bytes_max)?;
    fields::workspace(&request.workspace)?;
    let path = fields::path("path", &request.path, &request.raw_path, Names::File)?;
    let expected = fields::expected(request.expected_revision.as_deref())?;
    let mode = fields::mode(request.mode)?;
    let key_text = std::mem::take(&mut request.idempotency_key);
    let key = fields::key(&key_text, "Patch", &request)?;
    let change = match request.change {
        None => return Err(Fault::invalid("change", "set edits or content")),
        Some(v1::patch_request::Change::Content(content)) => Change::Content(content),
        Some(v1::patch_request::Change::Edits(list)) => {
            if expected == Expected::Absent {
                let what = "\"absent\" goes with content only: there is no text to edit in a file that must not exist";
                return Err(Fault::invalid("expected_revision", what));
            }
            let edit = |edit: v1::Edit| Edit {
                old_text: edit.old_text,
                new_text: edit.new_text,
                replace_all: edit.replace_all,
            };
            let edits: Vec<Edit> = list.edits.into_iter().map(edit).collect();
            patch::check_edits(&edits, limits)?;
            Change::Edits(edits)
        }
    };
    let (create_parents, validate_only) = (request.create_parents, request.validate_only);
    Ok(PatchPlan { path, change, expected, mode, create_parents, key, validate_only })
}

impl Files {
    pub(super) async fn do_patch(&self, request: Request<v1::PatchRequest>) -> Result<v1::PatchResponse, Failure> {
        let caller = self.caller(&request)?;
        let workspace = request.get_ref().workspace.clone();
        let request = request.into_inner();
        fields::size(&request, self.limits().request_bytes_max)?;
        // Its bytes are shared, not copied.
        let message = request.clone();
        let plan = if request.encoded_len() <= DECODED_AT_ONCE_BYTES_MAX {
            decode(request, self.limits())?
        } else {
            let host = self.host.clone();
            lane::finish(move || Ok(decode(request, &host.settings().limits)?)).await?
        };
        let (workspace, room) = self.find(&workspace, &caller)?;
        self.host.require(Feature::FilePatch)?;
        self.require_revisions(plan.expected != Expected::Any)?;
        let Writing { files, guard } = self.host.writing(&workspace)?;
        let directory = match files {
            Writable::Directory(directory) => directory,
            Writable::Guest(guest) => {
                let _held = (room, guard);
                return Relay::new(guest, workspace.name(), &caller).patch(message, &plan.path).await;
            }
        };
        let budget = LaneBudget::new(caller.deadline, None);
        let done = lane::finish(move || {
            let _room = room;
            let done = directory.patch(&plan, &budget);
            drop(guard);
            Ok(done?)
        })
        .await?;
        Ok(v1::PatchResponse {
            revision: done.revision.to_string(),
            previous_revision: done.previous_revision.map(|revision| revision.to_string()),
            bytes_written: encode::count(done.bytes_written),
            durable: done.durable,
            replacements: i32::try_from(done.replacements).unwrap_or(i32::MAX),
            file: Some(encode::entry(&done.entry)),
            replayed: done.replayed,
            replaced_open_file: done.replaced_open_file,
        })
    }
}

#[cfg(test)]
mod tests {
    use dormouse_files::revision::Revision;

    use super::*;

    fn request() -> v1::PatchRequest {
        v1::PatchRequest {
            workspace: "a".to_owned(),
            path: "/f".to_owned(),
            change: Some(v1::patch_request::Change::Content("x".into())),
            idempotency_key: "k".to_owned(),
            ..Default::default()
        }
    }

    fn edits(edits: &[(&str, &str)]) -> v1::PatchRequest {
        let edit = |(old, new): &(&str, &str)| v1::Edit {
            old_text: (*old).to_owned(),
            new_text: (*new).to_owned(),
            replace_all: false,
        };
        let edits = edits.iter().map(edit).collect();
        v1::PatchRequest { change: Some(v1::patch_request::Change::Edits(v1::EditList { edits })), ..request() }
    }

    #[track_caller]
    fn check(request: v1::PatchRequest, expect: Result<(), &str>) {
        let found = decode(request, &Limits::default()).map(drop).map_err(|fault| match fault {
            Fault::Invalid { field, .. } => field,
            Fault::RequestTooLarge { limit_bytes, .. } => format!("over {limit_bytes}"),
            other => other.to_string(),
        });
        assert_eq!(found, expect.map_err(str::to_owned));
    }

    #[test]
    fn a_patch_is_sound_or_refused_by_field() {
        let absent = Some("absent".to_owned());
        check(request(), Ok(()));
        check(v1::PatchRequest { expected_revision: absent.clone(), ..request() }, Ok(()));
        check(v1::PatchRequest { expected_revision: Some(String::new()), ..request() }, Err("expected_revision"));
        check(v1::PatchRequest { expected_revision: absent, ..edits(&[("a", "b")]) }, Err("expected_revision"));
        check(v1::PatchRequest { change: None, ..request() }, Err("change"));
        check(v1::PatchRequest { idempotency_key: String::new(), ..request() }, Err("idempotency_key"));
        check(v1::PatchRequest { mode: Some(0o4755), ..request() }, Err("mode"));
        check(v1::PatchRequest { path: "/f/".to_owned(), ..request() }, Err("path"));
        check(edits(&[("a", "b")]), Ok(()));
        check(edits(&[]), Err("edits"));
        check(edits(&[("a", "b"); 100]), Ok(()));
        check(edits(&[("a", "b"); 101]), Err("edits"));
        check(edits(&[("a", "b"), ("", "x")]), Err("edits[1].old_text"));
        check(edits(&[("a", "a")]), Err("edits[0].old_text"));
    }

    #[test]
    fn a_request_over_seven_mebibytes_is_refused_by_its_encoding() {
        let content = |bytes: usize| v1::PatchRequest {
            change: Some(v1::patch_request::Change::Content(vec![0; bytes].into())),
            ..request()
        };
        check(content((7 << 20) - 64), Ok(()));
        check(content(7 << 20), Err("over 7340032"));
    }

    #[test]
    fn the_key_covers_everything_but_itself() {
        let hash = |request| *decode(request, &Limits::default()).unwrap().key.request();
        assert_eq!(hash(request()), hash(v1::PatchRequest { idempotency_key: "other".to_owned(), ..request() }));
        let revision = Some(Revision::of(b"").to_string());
        assert_ne!(hash(request()), hash(v1::PatchRequest { expected_revision: revision, ..request() }));
        assert_ne!(hash(request()), hash(v1::PatchRequest { create_parents: true, ..request() }));
        assert_ne!(hash(request()), hash(v1::PatchRequest { workspace: "b".to_owned(), ..request() }));
    }
}
