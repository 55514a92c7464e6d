//! GetCapabilities: what this host, or a workspace on it, can do.

use std::time::Duration;

use dormouse_proto::files::v1;
use tonic::Request;

use crate::{
    host::{Feature, ReadSource, error::Failure},
    rpc::files::{Files, encode, fields},
};

impl Files {
    pub(super) async fn capabilities(
        &self,
        request: Request<v1::GetCapabilitiesRequest>,
    ) -> Result<v1::GetCapabilitiesResponse, Failure> {
        let caller = self.caller(&request)?;
        let name = request.into_inner().workspace;
        let mut guest = None;
        if !name.is_empty() {
            fields::workspace(&name)?;
            let workspace = self.host.find_at(&name, caller.generation)?;
            // Of a workspace that is not running the host's own features are what there is to say.
            let reading = self.host.reading(&workspace, ReadSource::Workspace);
            if let Some(relay) = reading.ok().and_then(|reading| Self::relay(&reading, &name, &caller)) {
                guest = Some(relay.features().await?);
            }
        }
        let by_guest = |feature: Feature| {
            // A disk is read here, whatever the agent inside can do.
            feature == Feature::OfflineRead || guest.as_ref().is_none_or(|guest| guest.contains(&feature))
        };
        let features = Feature::ALL
            .into_iter()
            .filter(|feature| self.host.has(*feature) && by_guest(*feature))
            .map(|feature| wire(feature).into());
        let limits = self.limits();
        let live = &self.host.settings().live;
        let short = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
        Ok(v1::GetCapabilitiesResponse {
            features: features.collect(),
            limits: Some(v1::Limits {
                max_request_bytes: encode::count(limits.request_bytes_max),
                max_patch_file_bytes: encode::count(limits.patch_file_bytes_max),
                max_patch_edits: short(limits.patch_edit_count_max),
                max_search_matches: short(limits.search_match_count_max),
                max_search_globs: short(limits.glob_count_max),
                max_search_file_bytes: encode::count(limits.search_file_bytes_max),
                max_offline_read_bytes: encode::count(limits.offline_read_bytes_max),
                search_budget: duration(limits.search_budget),
                offline_budget: duration(limits.offline_budget),
                idempotency_retention: duration(live.key_retention),
                max_list_entries: short(limits.list_entry_count_max),
                max_list_depth: short(limits.list_depth_max),
                max_search_pattern_bytes: short(limits.pattern_bytes_max),
                max_glob_bytes: short(limits.glob_bytes_max),
                max_search_result_bytes: encode::count(limits.search_result_bytes_max),
            }),
            server_version: concat!("dormouse ", env!("CARGO_PKG_VERSION")).to_owned(),
        })
    }
}

fn duration(duration: Duration) -> Option<prost_types::Duration> {
    prost_types::Duration::try_from(duration).ok()
}

fn wire(feature: Feature) -> v1::Feature {
    match feature {
        Feature::FileSearch => v1::Feature::FileSearch,
        Feature::FilePatch => v1::Feature::FilePatch,
        Feature::FileWrite => v1::Feature::FileWrite,
        Feature::FileRevision => v1::Feature::FileRevision,
        Feature::OfflineRead => v1::Feature::OfflineRead,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_same_here_and_on_the_wire() {
        for feature in Feature::ALL {
            assert_eq!(wire(feature).wire_name(), feature.name());
        }
    }
}
