//! Features that a host may lack, and what it then says.

use dormouse_proto::files::v1::{self as pb, ErrorReason, Feature};
use dormouse_tests::{
    ask,
    refusal::Refusal,
    site::{ASLEEP, LIVE, Site, put},
    world::Setup,
};

const ALL: [Feature; 5] =
    [Feature::FileSearch, Feature::FilePatch, Feature::FileRevision, Feature::OfflineRead, Feature::FileWrite];

fn features(site: &Site, workspace: &str) -> Vec<Feature> {
    let request = pb::GetCapabilitiesRequest { workspace: workspace.to_owned() };
    let answer = site.wait(site.files.clone().get_capabilities(request)).expect("every host says what it can");
    let mut features: Vec<_> = answer.into_inner().features().collect();
    features.sort();
    features
}

#[test]
fn a_host_says_what_it_can_and_how_much() {
    let site = Site::both("8M", |_| {});
    for workspace in ["", LIVE, ASLEEP] {
        let mut all = ALL.to_vec();
        all.sort();
        assert_eq!(features(&site, workspace), all);
    }
    let request = pb::GetCapabilitiesRequest::default();
    let answer = site.wait(site.files.clone().get_capabilities(request)).expect("an answer").into_inner();
    let limits = answer.limits.expect("its limits");
    assert_eq!(limits.max_request_bytes, 7 << 20);
    assert_eq!((limits.max_patch_file_bytes, limits.max_patch_edits), (64 << 20, 100));
    assert_eq!((limits.max_search_matches, limits.max_search_globs), (5_000, 32));
    assert_eq!((limits.max_search_file_bytes, limits.max_search_result_bytes), (64 << 20, 4 << 20));
    assert_eq!((limits.max_search_pattern_bytes, limits.max_glob_bytes), (4_096, 1_024));
    assert_eq!((limits.max_list_entries, limits.max_list_depth), (1_000_000, 64));
    assert_eq!(limits.max_offline_read_bytes, 1 << 30);
    assert_eq!(limits.search_budget.map(|budget| budget.seconds), Some(10));
    assert_eq!(limits.offline_budget.map(|budget| budget.seconds), Some(10));
    assert_eq!(limits.idempotency_retention.map(|retention| retention.seconds), Some(900));
    assert!(!answer.server_version.is_empty());
}

/// An agent that lacks one feature.
fn without(feature: Feature) -> Site {
    let site = Site::both_with(Setup::new().without(&feature.wire_name()), "8M", |root| put(root, "a", "x"));
    let left = features(&site, "");
    assert!(!left.contains(&feature), "{left:?}");
    assert_eq!(left.len(), ALL.len() - 1, "{left:?}");
    site
}

#[track_caller]
fn check(feature: Feature, refusal: Refusal) {
    refusal.expect(ErrorReason::HostFeatureUnavailable).with("feature", &feature.wire_name());
}

#[test]
fn without_file_search() {
    let site = without(Feature::FileSearch);
    for workspace in [LIVE, ASLEEP] {
        check(Feature::FileSearch, site.search(ask::search(workspace, "/", "x")).expect_err("it is off"));
        site.list(ask::list(workspace, "/")).expect("the rest is there");
    }
}

#[test]
fn without_file_patch() {
    let site = without(Feature::FilePatch);
    check(Feature::FilePatch, site.patch(ask::patch(LIVE, "/a", "x", "y")).expect_err("it is off"));
    assert_eq!(site.content("/a"), b"x");
    site.make_directory(ask::make_directory(LIVE, "/d")).expect("the rest is there");
}

#[test]
fn without_file_write() {
    let site = without(Feature::FileWrite);
    let off = Feature::FileWrite;
    check(off, site.write(ask::write(LIVE, "/b"), vec![], pb::WriteFinish::default()).expect_err("it is off"));
    check(off, site.remove(ask::remove(LIVE, "/a")).expect_err("it is off"));
    check(off, site.rename(ask::rename(LIVE, "/a", "/b")).expect_err("it is off"));
    check(off, site.make_directory(ask::make_directory(LIVE, "/d")).expect_err("it is off"));
    site.patch(ask::patch(LIVE, "/a", "x", "y")).expect("the rest is there");
}

#[test]
fn without_file_revision_none_is_given_and_none_can_be_asked_for() {
    let site = without(Feature::FileRevision);
    for workspace in [LIVE, ASLEEP] {
        assert_eq!(site.file_info(workspace, "/a").revision, None);
        let read = pb::ReadRequest { include_revision: true, ..ask::read(workspace, "/a") };
        assert_eq!(site.read(read).expect("it reads").end.revision, None);
        let pinned = pb::ReadRequest { expected_revision: Some("0".repeat(64)), ..ask::read(workspace, "/a") };
        check(Feature::FileRevision, site.read(pinned).expect_err("a guard is never ignored"));
    }
    let pinned = pb::PatchRequest { expected_revision: Some("0".repeat(64)), ..ask::patch(LIVE, "/a", "x", "y") };
    check(Feature::FileRevision, site.patch(pinned).expect_err("a guard is never ignored"));
    assert_eq!(site.content("/a"), b"x");
}

#[test]
fn without_offline_read() {
    let site = without(Feature::OfflineRead);
    // Not "until the host is upgraded": a caller that wakes the workspace gets its answer.
    let check = |refusal: Refusal| {
        refusal.expect(ErrorReason::OfflineUnavailable).with("workspace", ASLEEP);
    };
    check(site.stat(ask::stat(ASLEEP, "/a")).expect_err("it is off"));
    check(site.read(ask::read(ASLEEP, "/a")).expect_err("it is off"));
    check(site.list(ask::list(ASLEEP, "/")).expect_err("it is off"));
    check(site.search(ask::search(ASLEEP, "/", "x")).expect_err("it is off"));
    site.read(ask::read(LIVE, "/a")).expect("the rest is there");
}
