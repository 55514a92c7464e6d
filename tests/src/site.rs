//! One agent with one tree, awake as [`LIVE`] and asleep as [`ASLEEP`], and a client that asks it in plain blocking calls.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use dormouse_proto::{
    files::v1::{self as pb, files_service_client::FilesServiceClient},
    host::v1::host_service_client::HostServiceClient,
};
use prost::Message as _;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tonic::{Request, Status, transport::Channel};

use crate::{
    image,
    refusal::Refusal,
    world::{Setup, World},
};

/// The running workspace, a directory.
pub const LIVE: &str = "t/live";
/// The suspended workspace, a disk image of the same tree.
pub const ASLEEP: &str = "t/asleep";

/// An agent, its tree and a client. What is dropped first stops first: the agent, then the client's runtime.
pub struct Site {
    /// The agent.
    pub world: World,
    /// A client of its FilesService.
    pub files: FilesServiceClient<Channel>,
    /// Where the client's tasks run.
    pub runtime: Runtime,
    /// The tree of [`LIVE`].
    pub root: PathBuf,
    /// The image of [`ASLEEP`], where there is one.
    pub image: PathBuf,
    place: TempDir,
}

/// A whole Read.
#[derive(Debug)]
pub struct ReadAnswer {
    /// Of the first message.
    pub file: pb::FileInfo,
    /// Of the first message.
    pub origin: pb::Origin,
    /// Where the data begins in the file; the file's own place for an empty answer.
    pub offset: i64,
    /// All the data.
    pub bytes: Vec<u8>,
    /// Of the last message.
    pub end: pb::ReadEnd,
}

/// A whole List.
#[derive(Debug)]
pub struct ListAnswer {
    /// Of the first message.
    pub origin: pb::Origin,
    /// All entries.
    pub entries: Vec<pb::FileInfo>,
    /// Of the last message.
    pub end: pb::ListEnd,
}

impl ListAnswer {
    /// The entries' paths.
    pub fn paths(&self) -> Vec<&str> {
        self.entries.iter().map(|entry| entry.path.as_str()).collect()
    }
}

/// A whole Search.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchAnswer {
    /// Of the first message.
    pub origin: pb::Origin,
    /// All matches.
    pub matches: Vec<pb::Match>,
    /// Of the last message.
    pub end: pb::SearchEnd,
    /// Encoded bytes of the largest message.
    pub message_bytes: usize,
}

impl SearchAnswer {
    /// The paths of the matches, one for each match.
    pub fn paths(&self) -> Vec<&str> {
        self.matches.iter().map(|one| one.path.as_str()).collect()
    }

    /// Each match as `path:line:column`.
    pub fn places(&self) -> Vec<String> {
        self.matches.iter().map(|one| format!("{}:{}:{}", one.path, one.line, one.column)).collect()
    }
}

/// The SHA-256 of some bytes as a revision is written.
pub fn revision_of(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes a file under a root, with the directories that it needs.
///
/// # Panics
/// Where the file system refuses.
pub fn put(root: &Path, path: &str, content: impl AsRef<[u8]>) {
    let path = root.join(path.trim_start_matches('/'));
    fs::create_dir_all(path.parent().expect("a file has a parent")).expect("its parent is made");
    fs::write(path, content).expect("a file is written");
}

/// Every path under a root with its content or link target, sorted: what must not change where nothing may change.
///
/// # Panics
/// Where the file system refuses.
pub fn snapshot(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).expect("a directory lists") {
            let path = entry.expect("an entry").path();
            let meta = path.symlink_metadata().expect("an entry is there");
            let what = if meta.is_dir() {
                directories.push(path.clone());
                "directory".to_owned()
            } else if meta.is_symlink() {
                format!("-> {}", fs::read_link(&path).expect("a link reads").display())
            } else if meta.is_file() {
                revision_of(&fs::read(&path).expect("a file reads"))
            } else {
                "special".to_owned()
            };
            let mode = meta.permissions().mode() & 0o7777;
            found.push(format!("{} {mode:o} {what}", path.strip_prefix(root).expect("it is beneath").display()));
        }
    }
    found.sort();
    found
}

impl Site {
    /// A running workspace with this tree.
    pub fn live(fill: impl FnOnce(&Path)) -> Self {
        Self::live_with(Setup::new(), fill)
    }

    /// A running workspace with this tree, of an agent with this set-up.
    pub fn live_with(setup: Setup, fill: impl FnOnce(&Path)) -> Self {
        let (place, root) = Self::tree(fill);
        let setup = setup.directory(LIVE, &root);
        Self::started(setup, place, root, PathBuf::new())
    }

    /// The same tree twice: running, and suspended on a disk of this size.
    pub fn both(size: &str, fill: impl FnOnce(&Path)) -> Self {
        Self::both_with(Setup::new(), size, fill)
    }

    /// The same tree twice, of an agent with this set-up.
    pub fn both_with(setup: Setup, size: &str, fill: impl FnOnce(&Path)) -> Self {
        let (place, root) = Self::tree(fill);
        let image = image::make(&root, place.path(), image::Directories::Linear, size);
        let setup = setup.directory(LIVE, &root).disk(ASLEEP, &image);
        Self::started(setup, place, root, image)
    }

    /// A running workspace in a directory that is there already.
    pub fn of(setup: Setup, root: &Path) -> Self {
        let place = tempfile::tempdir().expect("a temporary directory");
        Self::started(setup.directory(LIVE, root), place, root.to_owned(), PathBuf::new())
    }

    fn tree(fill: impl FnOnce(&Path)) -> (TempDir, PathBuf) {
        let place = tempfile::tempdir().expect("a temporary directory");
        let root = place.path().join("root");
        fs::create_dir(&root).expect("a directory");
        fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).expect("a mode");
        fill(&root);
        (place, root)
    }

    fn started(setup: Setup, place: TempDir, root: PathBuf, image: PathBuf) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let world = setup.start();
        let files = runtime.block_on(world.files());
        Self { world, files, runtime, root, image, place }
    }

    /// The same with an agent begun anew, which knows its workspaces from its state directory.
    pub fn restarted(self, setup: Setup) -> Self {
        let Self { world, files, runtime: _runtime, root, image, place } = self;
        drop((files, world));
        Self::started(setup, place, root, image)
    }

    /// A directory of the test's own beside the workspace, on the same file system, gone at the end.
    pub fn place(&self) -> &Path {
        self.place.path()
    }

    /// A file of the running workspace.
    pub fn file(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// The content of a file of the running workspace, read past the agent.
    pub fn content(&self, path: &str) -> Vec<u8> {
        fs::read(self.file(path)).expect("the file is there")
    }

    /// Waits for a call.
    pub fn wait<T>(&self, call: impl Future<Output = T>) -> T {
        self.runtime.block_on(call)
    }

    /// A client of its HostService.
    pub fn host(&self) -> HostServiceClient<Channel> {
        self.wait(self.world.host())
    }

    /// Stat.
    pub fn stat(&self, request: pb::StatRequest) -> Result<pb::StatResponse, Refusal> {
        Ok(self.wait(self.files.clone().stat(request))?.into_inner())
    }

    /// The file of a Stat with its revision.
    pub fn file_info(&self, workspace: &str, path: &str) -> pb::FileInfo {
        let request = pb::StatRequest { include_revision: true, ..crate::ask::stat(workspace, path) };
        self.stat(request).expect("the file is there").file.expect("a Stat answers a file")
    }

    /// Read, collected.
    pub fn read(&self, request: pb::ReadRequest) -> Result<ReadAnswer, Refusal> {
        Ok(self.wait(read(self.files.clone(), Request::new(request)))?)
    }

    /// List, collected.
    pub fn list(&self, request: pb::ListRequest) -> Result<ListAnswer, Refusal> {
        Ok(self.wait(list(self.files.clone(), Request::new(request)))?)
    }

    /// Search, collected.
    pub fn search(&self, request: pb::SearchRequest) -> Result<SearchAnswer, Refusal> {
        Ok(self.wait(search(self.files.clone(), Request::new(request)))?)
    }

    /// Patch.
    pub fn patch(&self, request: pb::PatchRequest) -> Result<pb::PatchResponse, Refusal> {
        Ok(self.wait(self.files.clone().patch(request))?.into_inner())
    }

    /// Write of data in pieces, with what the caller says it sent.
    pub fn write(
        &self,
        start: pb::WriteStart,
        pieces: Vec<bytes::Bytes>,
        finish: pb::WriteFinish,
    ) -> Result<pb::WriteResponse, Refusal> {
        let stream = tokio_stream::iter(write_messages(start, pieces, Some(finish)));
        Ok(self.wait(self.files.clone().write(stream))?.into_inner())
    }

    /// Remove.
    pub fn remove(&self, request: pb::RemoveRequest) -> Result<pb::RemoveResponse, Refusal> {
        Ok(self.wait(self.files.clone().remove(request))?.into_inner())
    }

    /// Move.
    pub fn rename(&self, request: pb::MoveRequest) -> Result<pb::MoveResponse, Refusal> {
        Ok(self.wait(self.files.clone().r#move(request))?.into_inner())
    }

    /// MakeDirectory.
    pub fn make_directory(&self, request: pb::MakeDirectoryRequest) -> Result<pb::MakeDirectoryResponse, Refusal> {
        Ok(self.wait(self.files.clone().make_directory(request))?.into_inner())
    }
}

/// The messages of a Write.
pub fn write_messages(
    start: pb::WriteStart,
    pieces: Vec<bytes::Bytes>,
    finish: Option<pb::WriteFinish>,
) -> Vec<pb::WriteRequest> {
    use pb::write_request::Message;
    std::iter::once(Message::Start(start))
        .chain(pieces.into_iter().map(Message::Data))
        .chain(finish.map(Message::Finish))
        .map(|message| pb::WriteRequest { message: Some(message) })
        .collect()
}

/// A whole Read; asserts that its messages are as the contract says.
///
/// # Errors
/// The call's.
pub async fn read(
    mut files: FilesServiceClient<Channel>,
    request: Request<pb::ReadRequest>,
) -> Result<ReadAnswer, Status> {
    let mut stream = files.read(request).await?.into_inner();
    let (mut head, mut offset, mut bytes, mut end) = (None, None, Vec::new(), None);
    while let Some(message) = stream.message().await? {
        assert!(end.is_none(), "nothing comes after the end");
        if head.is_none() {
            head =
                Some((message.file.expect("the first message has the file"), message.origin.expect("and an origin")));
        } else {
            assert!(message.file.is_none() && message.origin.is_none(), "only the first message has a header");
        }
        assert!(message.data.len() <= 1 << 20, "a piece is at most 1 MiB");
        if !message.data.is_empty() {
            let begin = *offset.get_or_insert(message.offset);
            assert_eq!(message.offset, begin + bytes.len() as i64, "pieces follow each other");
        }
        bytes.extend_from_slice(&message.data);
        end = message.end;
    }
    let (file, origin) = head.expect("a Read begins with a header");
    let end = end.expect("a Read ends with an end");
    assert_eq!(end.bytes_sent, bytes.len() as i64, "the end counts the bytes");
    assert_eq!(end.crc32c, crc32c(&bytes), "the end has the checksum of the bytes");
    Ok(ReadAnswer { file, origin, offset: offset.unwrap_or_default(), bytes, end })
}

/// CRC-32C, bit by bit (RFC 3720, appendix B.4), so that the product's own library is not its own witness.
pub fn crc32c(bytes: &[u8]) -> u32 {
    let mut table = [0_u32; 256];
    for (number, slot) in (0_u32..).zip(table.iter_mut()) {
        *slot = (0..8).fold(number, |rest, _| if rest & 1 == 1 { (rest >> 1) ^ 0x82f6_3b78 } else { rest >> 1 });
    }
    !bytes.iter().fold(!0_u32, |rest, byte| table[usize::from(rest as u8 ^ byte)] ^ (rest >> 8))
}

/// A whole List; asserts that its messages are as the contract says.
///
/// # Errors
/// The call's.
pub async fn list(
    mut files: FilesServiceClient<Channel>,
    request: Request<pb::ListRequest>,
) -> Result<ListAnswer, Status> {
    let mut stream = files.list(request).await?.into_inner();
    let (mut origin, mut entries, mut end) = (None, Vec::new(), None);
    while let Some(message) = stream.message().await? {
        assert!(end.is_none(), "nothing comes after the end");
        match origin {
            None => origin = Some(message.origin.expect("the first message has an origin")),
            Some(_) => assert!(message.origin.is_none(), "only the first message has an origin"),
        }
        entries.extend(message.entries);
        end = message.end;
    }
    let end = end.expect("a List ends with an end");
    assert_eq!(end.entries_sent, entries.len() as i64, "the end counts the entries");
    assert_eq!(end.truncated, end.stop_reason() != pb::StopReason::Unspecified, "a reason exactly where it is cut");
    Ok(ListAnswer { origin: origin.expect("a List has a message"), entries, end })
}

/// A whole Search; asserts that its messages are as the contract says.
///
/// # Errors
/// The call's.
pub async fn search(
    mut files: FilesServiceClient<Channel>,
    request: Request<pb::SearchRequest>,
) -> Result<SearchAnswer, Status> {
    let mut stream = files.search(request).await?.into_inner();
    let (mut origin, mut matches, mut end, mut message_bytes) = (None, Vec::new(), None, 0);
    while let Some(message) = stream.message().await? {
        assert!(end.is_none(), "nothing comes after the end");
        let size = message.encoded_len();
        assert!(size <= 64 << 10 || message.matches.len() == 1, "a message is at most 64 KiB, or one match: {size}");
        message_bytes = message_bytes.max(size);
        match origin {
            None => origin = Some(message.origin.expect("the first message has an origin")),
            Some(_) => assert!(message.origin.is_none(), "only the first message has an origin"),
        }
        matches.extend(message.matches);
        end = message.end;
    }
    let end = end.expect("a Search ends with an end");
    assert_eq!(end.truncated, end.stop_reason() != pb::StopReason::Unspecified, "a reason exactly where it is cut");
    for one in &matches {
        assert!(one.text.len() <= 3 * 1_000 && (one.raw_text.is_empty() || one.raw_text.len() <= 1_000), "{one:?}");
        assert!(one.line >= 1 && one.column >= 1 && one.end_column >= one.column, "places are 1-based: {one:?}");
    }
    Ok(SearchAnswer { origin: origin.expect("a Search has a message"), matches, end, message_bytes })
}
