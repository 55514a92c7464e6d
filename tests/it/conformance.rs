//! One story, told alike by a live directory, by images of it, and by clients of an agent that serves all three.

use std::fs;

use dormouse_disk::{DiskLimits, DiskSpec, Format, Layer, Unsealed, Volume};
use dormouse_files::{
    budget::Unbounded,
    limits::Limits,
    list::{self, ListPlan},
    path::TreePath,
    search::globs::GlobSet,
    stat::{Entry, Revisions},
};
use dormouse_live::{LiveLimits, Workspace};
use dormouse_proto::files::v1::ServedFrom;
use dormouse_tests::{
    fixture,
    image::{self, Directories},
    oracle::{self, Mounted},
    skip,
    suite::{self, Local, Remote},
    world::Setup,
};

fn volume(image: &std::path::Path) -> Volume {
    let layers = vec![Layer { path: image.to_owned(), format: Format::Raw }];
    Volume::open(&DiskSpec { layers, partition: None }, Unsealed::Never, &DiskLimits::default())
        .expect("the image opens")
}

/// The first line in which two stories part, with the question it answers.
fn check_same(one: (&str, &str), other: (&str, &str)) {
    let (mut question, mut lines) = ("", other.1.lines());
    for line in one.1.lines() {
        if !line.starts_with(' ') {
            question = line;
        }
        let twin = lines.next().unwrap_or("nothing more");
        assert_eq!(line, twin, "\n{question}\n{}: {line}\n{}: {twin}", one.0, other.0);
    }
    assert_eq!(lines.next(), None, "{} says more than {}", other.0, one.0);
}

#[test]
fn everyone_tells_the_same_story() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let root = directory.path().join("root");
    fs::create_dir(&root).expect("a directory");
    fixture::fill(&root);
    let state = directory.path().join("agent");
    fs::create_dir(&state).expect("a directory");
    let linear = image::make(&root, directory.path(), Directories::Linear, "64M");
    let hashed = image::make(&root, directory.path(), Directories::Hashed, "64M");

    let live = Workspace::open(&root, &state, LiveLimits::default()).expect("the directory opens");
    let story = suite::tell(&mut Local { tree: live.tree() });
    assert!(story.lines().count() > 500, "the story is told to its end:\n{story}");
    check_same(("live", &story), ("linear", &suite::tell(&mut Local { tree: &volume(&linear) })));
    check_same(("live", &story), ("hashed", &suite::tell(&mut Local { tree: &volume(&hashed) })));

    let world = Setup::new().directory("t/live", &root).disk("t/linear", &linear).disk("t/hashed", &hashed).start();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let client = runtime.block_on(world.files());
    for (workspace, served_from) in
        [("t/live", ServedFrom::Workspace), ("t/linear", ServedFrom::Disk), ("t/hashed", ServedFrom::Disk)]
    {
        let mut remote =
            Remote { runtime: &runtime, client: client.clone(), workspace: workspace.to_owned(), served_from };
        check_same(("live", &story), (workspace, &suite::tell(&mut remote)));
    }
}

#[test]
fn a_disk_is_what_the_kernel_sees() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let root = directory.path().join("root");
    fs::create_dir(&root).expect("a directory");
    fixture::fill(&root);
    for directories in [Directories::Linear, Directories::Hashed] {
        let image = image::make(&root, directory.path(), directories, "64M");
        if !skip::is_root() {
            return skip::skip("the kernel's view of an image", "mounting needs root");
        }
        let mounted = match Mounted::copy_of(&image) {
            Ok(mounted) => mounted,
            Err(error) => return skip::skip("the kernel's view of an image", &error.to_string()),
        };
        let limits = Limits::default();
        let plan = ListPlan {
            path: TreePath::root(),
            depth: limits.list_depth_max,
            globs: GlobSet::new(&[], &[], &limits).expect("no globs"),
            entry_count_max: limits.list_entry_count_max,
            include_revision: true,
            start_after: None,
        };
        let mut lines = Vec::new();
        let end = list::run(&volume(&image), &plan, Revisions::Always, &limits, &Unbounded, &mut |entry: Entry| {
            let content = match (&entry.revision, &entry.link_target) {
                (Some(revision), _) => revision.to_string(),
                (None, Some(target)) => target.escape_ascii().to_string(),
                (None, None) => String::new(),
            };
            let meta = entry.meta;
            lines.push(format!(
                "{} {} {} {:o} {}:{} {} {}.{:09} {content}",
                entry.path.as_bytes().escape_ascii(),
                meta.kind,
                meta.size_bytes,
                meta.mode,
                meta.uid,
                meta.gid,
                meta.link_count,
                meta.modify_time.seconds,
                meta.modify_time.nanoseconds
            ));
            std::ops::ControlFlow::Continue(())
        })
        .expect("the image lists");
        assert_eq!((end.stop, end.unreadable), (None, 0));
        lines.sort();
        let truth = oracle::kernel_view(&mounted.root());
        assert!(truth.len() > fixture::MANY_COUNT, "the kernel sees the tree");
        for (ours, kernel) in lines.iter().zip(&truth) {
            assert_eq!(ours, kernel, "ours and the kernel's view of the {directories:?} image");
        }
        assert_eq!(lines.len(), truth.len());
    }
}
