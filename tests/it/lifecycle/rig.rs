//! A host, workspaces on it in any state, and everything that can be asked of them, in plain calls.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use dormouse_proto::{
    files::v1::{self as pb, files_service_client::FilesServiceClient},
    host::v1::{self as host, WorkspaceState, host_service_client::HostServiceClient, workspace_spec::Files},
};
use dormouse_tests::{
    ask, image,
    refusal::Refusal,
    site::{self, put},
    world::{Setup, World},
};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tonic::{Request, Response, Status, transport::Channel};

use super::guest::Guest;

/// Generation 0: the current one plus one.
const NEXT: i64 = 0;

/// What is dropped first ends first.
pub struct Rig {
    world: Option<World>,
    pub runtime: Runtime,
    pub place: TempDir,
    more: &'static str,
    state: PathBuf,
}

impl Rig {
    /// A host that takes what lies in its place; `more` is added to its configuration.
    pub fn new(more: &'static str) -> Self {
        let place = tempfile::tempdir().expect("a temporary directory");
        let state = place.path().join("state");
        Self::with_state(more, place, state)
    }

    /// The same with a state directory of the test's own.
    pub fn with_state(more: &'static str, place: TempDir, state: PathBuf) -> Self {
        for name in ["roots", "sockets"] {
            fs::create_dir_all(place.path().join(name)).expect("a directory");
        }
        let runtime = Runtime::new().expect("a runtime");
        let mut rig = Self { world: None, runtime, place, more, state };
        rig.start();
        rig
    }

    fn start(&mut self) {
        let (roots, sockets) = (self.at("roots"), self.at("sockets"));
        let guest = "[guest]\nconnect = \"20s\"\nping = \"20s\"\n";
        let config = format!("roots = [{roots:?}]\nsocket_roots = [{sockets:?}]\n{}{guest}", self.more);
        // Quarantines and guests that are gone are what this is about.
        self.world = Some(Setup::new().config(config).state(&self.state).expect_warnings().start());
    }

    pub fn world(&self) -> &World {
        self.world.as_ref().expect("the host is up")
    }

    /// Ends the host as an order does, and starts it again.
    pub fn restart(&mut self) {
        drop(self.world.take());
        self.start();
    }

    /// Ends the host as a crash does.
    pub fn kill(&mut self) {
        self.world.take().expect("the host is up").kill();
    }

    /// Starts a host that was killed.
    pub fn start_again(&mut self) {
        self.start();
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    pub fn files(&self) -> FilesServiceClient<Channel> {
        self.runtime.block_on(self.world().files())
    }

    pub fn control(&self) -> HostServiceClient<Channel> {
        self.runtime.block_on(self.world().host())
    }

    pub fn wait<T>(&self, call: impl Future<Output = Result<Response<T>, Status>>) -> Result<T, Refusal> {
        Ok(self.runtime.block_on(call)?.into_inner())
    }

    /// A disk with the file /a, under the host's roots.
    pub fn image(&self, name: &str) -> PathBuf {
        let tree = tempfile::tempdir().expect("a temporary directory");
        put(tree.path(), "a", "one TODO\n");
        put(tree.path(), "tmp/below", "hidden\n");
        put(tree.path(), "home/below", "hidden\n");
        let made = image::make(tree.path(), tree.path(), image::Directories::Linear, "8M");
        let image = self.at("roots").join(name);
        fs::copy(made, &image).expect("a disk");
        image
    }

    /// The agent inside a machine, as far as transitions need one.
    pub fn guest(&self, name: &str) -> Guest {
        self.runtime.block_on(async { Guest::serve(&self.at("sockets").join(name)) })
    }

    /// A machine with this disk, whose agent listens at this socket.
    pub fn machine(&self, name: &str, image: &Path, socket: &str, state: WorkspaceState) -> host::Workspace {
        self.try_machine(name, vec![root_disk(image)], Some(socket), state).expect("it is registered")
    }

    pub fn try_machine(
        &self,
        name: &str,
        disks: Vec<host::Disk>,
        socket: Option<&str>,
        state: WorkspaceState,
    ) -> Result<host::Workspace, Refusal> {
        let guest = socket.map(|socket| {
            let address = host::guest::Address::UnixPath(text(&self.at("sockets").join(socket)));
            host::Guest { address: Some(address), ..Default::default() }
        });
        self.register(name, Files::Machine(host::Machine { guest, disks }), state)
    }

    /// A directory with the file /a.
    pub fn directory(&self, name: &str) -> PathBuf {
        let root = self.at("roots").join(name.replace('/', "-"));
        put(&root, "a", "one TODO\n");
        let files = Files::Directory(host::Directory { root: text(&root) });
        self.register(name, files, WorkspaceState::Running).expect("it is registered");
        root
    }

    pub fn register(&self, name: &str, files: Files, state: WorkspaceState) -> Result<host::Workspace, Refusal> {
        let request = host::RegisterWorkspaceRequest {
            name: name.to_owned(),
            spec: Some(host::WorkspaceSpec { files: Some(files) }),
            state: state as i32,
            ..Default::default()
        };
        Ok(self.wait(self.control().register_workspace(request))?.workspace.expect("a workspace"))
    }

    pub fn get(&self, name: &str) -> host::Workspace {
        let request = host::GetWorkspaceRequest { name: name.to_owned() };
        self.wait(self.control().get_workspace(request)).expect("it is known").workspace.expect("a workspace")
    }

    pub fn quiesce(&self, name: &str, timeout: Duration) -> Result<host::Workspace, Refusal> {
        let timeout = timeout.try_into().ok();
        let request = host::QuiesceWorkspaceRequest { name: name.to_owned(), generation: NEXT, timeout };
        Ok(self.wait(self.control().quiesce_workspace(request))?.workspace.expect("a workspace"))
    }

    pub fn seal(&self, name: &str, require_exact: bool) -> Result<host::Workspace, Refusal> {
        self.seal_at(name, NEXT, false, require_exact)
    }

    pub fn seal_at(
        &self,
        name: &str,
        generation: i64,
        parked: bool,
        require_exact: bool,
    ) -> Result<host::Workspace, Refusal> {
        let request = host::SealWorkspaceRequest { name: name.to_owned(), generation, parked, require_exact };
        Ok(self.wait(self.control().seal_workspace(request))?.workspace.expect("a workspace"))
    }

    pub fn unseal(&self, name: &str) -> Result<host::Workspace, Refusal> {
        let request = host::UnsealWorkspaceRequest { name: name.to_owned(), generation: NEXT };
        Ok(self.wait(self.control().unseal_workspace(request))?.workspace.expect("a workspace"))
    }

    pub fn open(&self, name: &str, deadline: Duration) -> Result<host::Workspace, Refusal> {
        let mut request =
            Request::new(host::OpenWorkspaceRequest { name: name.to_owned(), generation: NEXT, guest: None });
        request.set_timeout(deadline);
        Ok(self.wait(self.control().open_workspace(request))?.workspace.expect("a workspace"))
    }

    pub fn suspend(&self, name: &str) -> Result<host::Workspace, Refusal> {
        let request = host::SuspendWorkspaceRequest { name: name.to_owned(), generation: NEXT, parked: false };
        Ok(self.wait(self.control().suspend_workspace(request))?.workspace.expect("a workspace"))
    }

    pub fn resume(&self, name: &str) -> Result<host::Workspace, Refusal> {
        let request = host::ResumeWorkspaceRequest { name: name.to_owned(), generation: NEXT };
        Ok(self.wait(self.control().resume_workspace(request))?.workspace.expect("a workspace"))
    }

    pub fn stat(&self, name: &str, path: &str) -> Result<pb::StatResponse, Refusal> {
        self.wait(self.files().stat(ask::stat(name, path)))
    }

    pub fn read(&self, name: &str, path: &str) -> Result<site::ReadAnswer, Refusal> {
        Ok(self.runtime.block_on(site::read(self.files(), Request::new(ask::read(name, path))))?)
    }

    pub fn list(&self, request: pb::ListRequest) -> Result<site::ListAnswer, Refusal> {
        Ok(self.runtime.block_on(site::list(self.files(), Request::new(request)))?)
    }

    pub fn search(&self, request: pb::SearchRequest) -> Result<site::SearchAnswer, Refusal> {
        Ok(self.runtime.block_on(site::search(self.files(), Request::new(request)))?)
    }

    pub fn patch(&self, name: &str, path: &str) -> Result<pb::PatchResponse, Refusal> {
        self.wait(self.files().patch(ask::content(name, path, "new")))
    }
}

/// An ext4 file system that fills this disk and is the machine's root.
pub fn root_disk(image: &Path) -> host::Disk {
    host::Disk {
        layers: vec![host::DiskLayer { path: text(image), format: host::DiskFormat::Raw as i32 }],
        file_system: host::FileSystem::Ext4 as i32,
        flushes: true,
        ..Default::default()
    }
}

pub fn text(path: &Path) -> String {
    path.to_str().expect("a path of text").to_owned()
}
