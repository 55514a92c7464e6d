//! A machine with more than one disk: a host, and an agent on file systems that are mounted here from images.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use dormouse_proto::files::v1 as files;
use tokio_stream::StreamExt;
use tonic::Code;

use crate::{
    skip::skip,
    world::{Agent, World, content, read, search, stat},
};

/// Longest wait for a disk that the agent is to let go.
const IDLE_TIME_MAX: Duration = Duration::from_secs(60);

pub fn run(program: &str, words: &[&str]) -> bool {
    Command::new(program).args(words).output().is_ok_and(|output| output.status.success())
}

/// What is mounted here; unmounted when it is dropped, once the agent on it has gone.
pub struct Mounts(pub Vec<PathBuf>);

impl Mounts {
    /// A disk at this place, as the machine's root.
    fn new(place: &Path) -> Option<Self> {
        let mut this = Self(Vec::new());
        if !nix::unistd::geteuid().is_root() || !this.disk(place) {
            skip("a second disk", "no file system can be mounted here: that needs root, a loop device and mke2fs");
            return None;
        }
        Some(this)
    }

    pub fn disk(&mut self, place: &Path) -> bool {
        // On the disk that it is mounted on, so that a freeze must hold the one before the other.
        self.disk_of(&place.with_extension("img"), place, &["mke2fs", "-q", "-t", "ext4", "-F"], 64 << 20)
    }

    /// Made by this command.
    pub fn disk_of(&mut self, image: &Path, place: &Path, make: &[&str], bytes: u64) -> bool {
        fs::create_dir_all(image.parent().unwrap()).unwrap();
        fs::File::create(image).unwrap().set_len(bytes).unwrap();
        let image = image.to_str().unwrap();
        run(make[0], &[&make[1..], &[image]].concat()) && self.mount(place, &["-o", "loop", image])
    }

    pub fn mount(&mut self, place: &Path, words: &[&str]) -> bool {
        fs::create_dir_all(place).unwrap();
        let done = run("mount", &[words, &[place.to_str().unwrap()]].concat());
        if done {
            self.0.push(place.to_owned());
        }
        done
    }

    /// As an operator unmounts a disk that somebody may still use: again, until it is let go.
    pub fn unmount(&mut self, place: &Path) {
        let until = Instant::now() + IDLE_TIME_MAX;
        while !run("umount", &[place.to_str().unwrap()]) {
            assert!(Instant::now() < until, "{} stays busy", place.display());
            std::thread::yield_now();
        }
        self.0.retain(|known| known != place);
    }
}

impl Drop for Mounts {
    fn drop(&mut self) {
        for place in self.0.iter().rev() {
            // A freeze outlives the process that made it, and an unmount would wait for the thaw.
            let _ = Command::new("fsfreeze").arg("-u").arg(place).output();
            let _ = Command::new("umount").arg(place).status();
        }
    }
}

/// A host, and a machine of two disks, the second one at `/home`. What is dropped first ends first.
pub struct Machine {
    pub agent: Option<Agent>,
    pub mounts: Mounts,
    pub world: World,
    pub root: PathBuf,
}

impl Machine {
    pub async fn new(prepare: impl FnOnce(&Path, &mut Mounts)) -> Option<Self> {
        let world = World::new(|_| ()).await;
        let root = world.at("machine");
        let mut mounts = Mounts::new(&root)?;
        assert!(mounts.disk(&root.join("home")));
        prepare(&root, &mut mounts);
        let mut this = Self { agent: None, mounts, world, root };
        this.start();
        let address = this.world.unix("g.sock");
        this.world.register("m", address, Vec::new()).await;
        Some(this)
    }

    fn start(&mut self) {
        self.agent = None;
        let listen = format!("unix:{}", self.world.at("g.sock").display());
        // Its own state is beside the machine's disk, as it would be in memory or on another one.
        self.agent = Some(Agent::start(&self.root, &listen, &[]).0);
    }

    /// Kills the agent and starts it again, and waits until the host has found it.
    pub async fn restart(&mut self) {
        self.start();
        let until = Instant::now() + IDLE_TIME_MAX;
        while let Err(status) = self.world.files.stat(stat("m", "/")).await {
            assert!(status.code() == Code::Unavailable && Instant::now() < until, "{status:?}");
            tokio::task::yield_now().await;
        }
    }

    pub async fn text(&mut self, path: &str) -> String {
        let (_, bytes) = self.world.read(read("m", path)).await.unwrap();
        String::from_utf8(bytes).unwrap()
    }

    /// All paths beneath this one.
    pub async fn list(&mut self, path: &str) -> (BTreeSet<String>, i64) {
        let request = files::ListRequest {
            workspace: "m".to_owned(),
            path: path.to_owned(),
            depth: Some(64),
            ..Default::default()
        };
        let mut answers = self.world.files.list(request).await.unwrap().into_inner();
        let (mut paths, mut unreadable) = (BTreeSet::new(), 0);
        while let Some(answer) = answers.next().await {
            let answer = answer.unwrap();
            paths.extend(answer.entries.into_iter().map(|entry| entry.path));
            unreadable += answer.end.map_or(0, |end| end.unreadable);
        }
        (paths, unreadable)
    }

    pub async fn found(&mut self, path: &str, pattern: &str) -> BTreeSet<String> {
        let mut answers = self.world.files.search(search("m", path, pattern)).await.unwrap().into_inner();
        let mut paths = BTreeSet::new();
        while let Some(answer) = answers.next().await {
            paths.extend(answer.unwrap().matches.into_iter().map(|found| found.path));
        }
        paths
    }

    pub async fn patch(&mut self, path: &str, text: &str, key: &str) -> files::PatchResponse {
        self.world.files.patch(content("m", path, text, key)).await.unwrap().into_inner()
    }
}
