//! A sealed disk on a file system with reflinks: cloned at Seal, read from the clone, and the clone gone at Unseal.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use dormouse_proto::{
    files::v1::ErrorReason,
    host::v1::{self as host, WorkspaceState},
};
use dormouse_tests::{
    ask, image,
    mount::Mount,
    site::{Site, put, revision_of},
    skip,
    world::Setup,
};

const CLONED: &str = "t/cloned";

/// An xfs with reflinks, and on it the image of a small tree.
struct Sealed {
    image: PathBuf,
    root: PathBuf,
    // Unmounted before its place is removed.
    _mount: Mount,
    place: tempfile::TempDir,
}

impl Sealed {
    fn make() -> Option<Self> {
        const WHAT: &str = "the clone of a sealed disk";
        if !skip::is_root() {
            skip::skip(WHAT, "mounting needs root");
            return None;
        }
        let place = tempfile::tempdir().expect("a temporary directory");
        let (file, root) = (place.path().join("xfs.img"), place.path().join("xfs"));
        fs::File::create(&file).and_then(|file| file.set_len(512 << 20)).expect("a file of holes");
        fs::create_dir(&root).expect("a directory");
        let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
        match Command::new("mkfs.xfs").env("PATH", path).args(["-q", "-m", "reflink=1"]).arg(&file).output() {
            Ok(output) if output.status.success() => {}
            other => {
                skip::skip(WHAT, &format!("mkfs.xfs (Debian package xfsprogs): {other:?}"));
                return None;
            }
        }
        let file = file.to_str().expect("a path of text");
        let mount = Mount::make(WHAT, &["-o", "loop", file], &root)?;
        let tree = place.path().join("tree");
        put(&tree, "a", "one\n");
        put(&tree, "large", vec![b'x'; 3 << 20]);
        let image = image::make(&tree, &root, image::Directories::Linear, "16M");
        Some(Self { image, root, _mount: mount, place })
    }

    fn site(&self, setup: Setup) -> Site {
        Site::of(setup.disk(CLONED, &self.image), &self.place.path().join("tree"))
    }

    /// Files without a name on the xfs that the agent has mapped.
    fn clones(&self, site: &Site) -> usize {
        let maps = fs::read_to_string(format!("/proc/{}/maps", site.world.process())).expect("the agent runs");
        let root = self.root.to_str().expect("a path of text");
        maps.lines().filter(|line| line.contains(root) && line.ends_with("(deleted)")).count()
    }
}

fn check_read(site: &Site) {
    assert_eq!(site.read(ask::read(CLONED, "/a")).expect("it sleeps").bytes, b"one\n");
    let large = site.read(ask::read(CLONED, "/large")).expect("it sleeps").bytes;
    assert!(large == vec![b'x'; 3 << 20], "{} bytes", large.len());
}

fn names(root: &Path) -> usize {
    fs::read_dir(root).expect("it lists").count()
}

#[test]
fn a_clone_is_made_at_seal_and_gone_at_unseal() {
    let Some(sealed) = Sealed::make() else { return };
    let before = revision_of(&fs::read(&sealed.image).expect("an image"));
    let site = sealed.site(Setup::new());
    let client = || site.host();
    let state = |workspace: Option<host::Workspace>| workspace.expect("a workspace").state();
    assert_eq!(sealed.clones(&site), 0, "nobody has sealed or read it since the agent began");
    check_read(&site);
    assert_eq!(sealed.clones(&site), 1);
    check_read(&site);
    assert_eq!(sealed.clones(&site), 1, "one for all reads");

    let unseal = host::UnsealWorkspaceRequest { name: CLONED.to_owned(), ..Default::default() };
    let woken = site.wait(client().unseal_workspace(unseal)).expect("its machine may start").into_inner();
    assert_eq!(state(woken.workspace), WorkspaceState::Resuming);
    assert_eq!(sealed.clones(&site), 0, "it went at Unseal");

    let seal = host::SealWorkspaceRequest { name: CLONED.to_owned(), ..Default::default() };
    let slept = site.wait(client().seal_workspace(seal)).expect("it sleeps").into_inner();
    assert_eq!(state(slept.workspace), WorkspaceState::Suspended);
    assert_eq!(sealed.clones(&site), 1, "made at Seal, before any read");
    check_read(&site);
    assert_eq!((sealed.clones(&site), names(&sealed.root)), (1, 1), "it has no name");
    assert_eq!(revision_of(&fs::read(&sealed.image).expect("an image")), before, "not a byte is written");

    let release = host::ReleaseWorkspaceRequest { name: CLONED.to_owned(), generation: 0 };
    site.wait(client().release_workspace(release)).expect("it is released");
    assert_eq!(sealed.clones(&site), 0, "it went at Release");
}

#[test]
fn a_clone_does_not_answer_for_a_disk_that_was_written() {
    let Some(sealed) = Sealed::make() else { return };
    let mut site = sealed.site(Setup::new().expect_warnings());
    check_read(&site);
    assert_eq!(sealed.clones(&site), 1);
    image::run("debugfs", &["-w", "-R", "rm /a"], &[&sealed.image], &[]);
    let refusal = site.read(ask::read(CLONED, "/a")).expect_err("it was written behind our back");
    assert!(
        matches!(
            refusal.reason,
            ErrorReason::OfflineUnavailable | ErrorReason::OfflineChanged | ErrorReason::WorkspaceQuarantined
        ),
        "{refusal:?}"
    );
    assert!(site.world.terminate().0.success());
}

#[test]
fn no_clone_is_made_where_none_is_wanted() {
    let Some(sealed) = Sealed::make() else { return };
    for setup in
        [Setup::new().argument("--clone").argument("never"), Setup::new().config("[offline]\nclone = \"never\"\n")]
    {
        let site = sealed.site(setup);
        check_read(&site);
        assert_eq!(sealed.clones(&site), 0);
    }
}
