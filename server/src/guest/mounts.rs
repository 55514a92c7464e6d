//! The mount table of the machine (`/proc/self/mountinfo`, proc_pid_mountinfo(5)), seen from the workspace's root: which mount
//! holds the root, which lie beneath it, and which of them have a disk that can be frozen.

use std::{
    fs::{self, File},
    io::{self, Read, Seek},
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, FileTypeExt, MetadataExt},
    },
    path::{Path, PathBuf},
};

use dormouse_files::path::TreePath;

use crate::host::seal::uuid_text;

/// The table, as this process sees it.
pub const TABLE: &str = "/proc/self/mountinfo";
/// Longest mount table that is read, in bytes.
const TABLE_BYTES_MAX: u64 = 4 << 20;
/// File systems with a disk of their own that can be frozen.
const FREEZABLE: [&str; 3] = ["ext4", "xfs", "btrfs"];
/// Of the root directory of every subvolume (`BTRFS_FIRST_FREE_OBJECTID`, btrfs_tree.h).
const BTRFS_ROOT_INODE: u64 = 256;

/// A mount of the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Its number; another mount may have it when this one is gone.
    pub id: u64,
    /// Inside the workspace; `/` for the one that holds its root.
    pub path: TreePath,
    /// Where it is opened.
    pub place: PathBuf,
    /// Such as `ext4`.
    pub kind: String,
    /// `major:minor`.
    pub device: String,
    /// What is mounted, such as `/dev/vda`.
    pub source: Vec<u8>,
    /// Of the file system's superblock; empty where it has none that is known here.
    pub uuid: String,
    /// Of the mount, or of the workspace's root, within its file system.
    pub root: Vec<u8>,
    /// The mount or its file system takes no writes.
    pub read_only: bool,
}

impl Mount {
    /// Whether there is something on it to be frozen.
    pub fn is_freezable(&self) -> bool {
        self.is_disk() && !self.read_only
    }

    /// Whether files of this device, as stat(2) numbers it, may lie on it. A subvolume of a btrfs has a number that the table
    /// does not know.
    pub fn is_of(&self, device: u64) -> bool {
        !self.is_disk() || self.kind == "btrfs" || self.device == number(device)
    }

    /// Whether it is a file system with a disk of its own.
    pub fn is_disk(&self) -> bool {
        FREEZABLE.contains(&self.kind.as_str())
    }

    /// Whether it shows all of its file system, or of a btrfs all of a subvolume; `inode` is its root directory's.
    pub fn is_whole(&self, inode: u64) -> bool {
        if self.kind == "btrfs" { inode == BTRFS_ROOT_INODE } else { self.root == b"/" }
    }
}

/// The mounts of the workspace whose root is this directory, which is absolute and free of links.
///
/// # Errors
/// From the system; `InvalidData` where no mount holds the root, or the table is too long.
pub fn read(root: &Path) -> io::Result<Vec<Mount>> {
    let mut mounts = read_from(&File::open(TABLE)?, root)?;
    for mount in mounts.iter_mut().filter(|mount| mount.kind == "ext4") {
        mount.uuid = uuid(mount).unwrap_or_default();
    }
    Ok(mounts)
}

/// As [`read`], from a table that is open, without what the disks themselves say.
///
/// # Errors
/// As [`read`].
pub fn read_from(mut table: &File, root: &Path) -> io::Result<Vec<Mount>> {
    let mut text = Vec::new();
    table.rewind()?;
    table.take(TABLE_BYTES_MAX + 1).read_to_end(&mut text)?;
    if text.len() as u64 > TABLE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the mount table is too long"));
    }
    seen_from(&text, root.as_os_str().as_bytes())
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no mount holds the workspace's root"))
}

/// One line of the table.
struct Line {
    id: u64,
    device: String,
    root: Vec<u8>,
    point: Vec<u8>,
    read_only: bool,
    kind: String,
    source: Vec<u8>,
}

fn line(text: &[u8]) -> Option<Line> {
    let mut words = text.split(|byte| *byte == b' ');
    let id = std::str::from_utf8(words.next()?).ok()?.parse().ok()?;
    let device = String::from_utf8(words.nth(1)?.to_vec()).ok()?;
    let root = unescaped(words.next()?);
    let point = unescaped(words.next()?);
    let is_read_only = |options: &[u8]| options.split(|byte| *byte == b',').any(|option| option == b"ro");
    let mount_read_only = is_read_only(words.next()?);
    // Optional fields, as many as there are, end with a dash.
    words.by_ref().find(|word| *word == b"-")?;
    let kind = String::from_utf8(words.next()?.to_vec()).ok()?;
    let source = unescaped(words.next()?);
    let read_only = mount_read_only || is_read_only(words.next().unwrap_or_default());
    Some(Line { id, device, root, point, read_only, kind, source })
}

/// Blanks, line ends and backslashes stand as a backslash and three octal digits.
fn unescaped(word: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((&byte, after)) = rest.split_first() {
        let digits =
            after.get(..3).filter(|digits| byte == b'\\' && digits.iter().all(|digit| (b'0'..=b'7').contains(digit)));
        match digits {
            Some(digits) => {
                let value = digits.iter().fold(0_u32, |value, digit| value * 8 + u32::from(digit - b'0'));
                bytes.push((value & 0xff) as u8);
                rest = &after[3..];
            }
            None => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    bytes
}

/// What follows `above` in `path`, beginning with `/`, or empty where they are the same; nothing where it lies elsewhere.
pub(super) fn beneath<'a>(path: &'a [u8], above: &[u8]) -> Option<&'a [u8]> {
    let above = if above == b"/" { b"" } else { above };
    let rest = path.strip_prefix(above)?;
    (rest.is_empty() || rest.starts_with(b"/")).then_some(rest)
}

/// The mounts as the workspace sees them, its root's first; a later mount hides an earlier one at the same place.
fn seen_from(table: &[u8], root: &[u8]) -> Option<Vec<Mount>> {
    let lines: Vec<Line> = table.split(|byte| *byte == b'\n').filter_map(line).collect();
    let holder =
        lines.iter().filter(|line| beneath(root, &line.point).is_some()).max_by_key(|line| line.point.len())?;
    let mount = |line: &Line, path: TreePath, root: Vec<u8>| Mount {
        id: line.id,
        path,
        place: PathBuf::from(std::ffi::OsStr::from_bytes(&line.point)),
        kind: line.kind.clone(),
        device: line.device.clone(),
        source: line.source.clone(),
        uuid: String::new(),
        root,
        read_only: line.read_only,
    };
    let inside = beneath(root, &holder.point)
        .unwrap_or_default()
        .strip_suffix(b"/")
        .unwrap_or(beneath(root, &holder.point).unwrap_or_default());
    let holder_root = if holder.root == b"/" { Vec::new() } else { holder.root.clone() };
    let mut within = [holder_root.as_slice(), inside].concat();
    if within.is_empty() {
        within.push(b'/');
    }
    let mut mounts = vec![mount(holder, TreePath::root(), within)];
    for line in &lines {
        let Some(path) = beneath(&line.point, root).filter(|path| path.len() > 1) else { continue };
        let Ok(path) = TreePath::parse(path) else { continue };
        mounts.retain(|known| known.path != path);
        mounts.push(mount(line, path, line.root.clone()));
    }
    Some(mounts)
}

/// A device as the table writes it.
fn number(device: u64) -> String {
    format!("{}:{}", nix::sys::stat::major(device), nix::sys::stat::minor(device))
}

/// Of an ext4 file system, from the superblock of its device (kernel document ext4/globals, "Super Block").
fn uuid(mount: &Mount) -> Option<String> {
    let by_number = PathBuf::from(format!("/dev/block/{}", mount.device));
    let by_name = PathBuf::from(std::ffi::OsStr::from_bytes(&mount.source));
    [by_name, by_number].iter().find_map(|path| {
        let meta = fs::metadata(path).ok().filter(|meta| meta.file_type().is_block_device())?;
        let number = number(meta.rdev());
        if number != mount.device {
            return None;
        }
        let mut superblock = [0; 0x78];
        File::open(path).ok()?.read_exact_at(&mut superblock, 1024).ok()?;
        let bytes: [u8; 16] = superblock[0x68..0x78].try_into().ok()?;
        (superblock[0x38..0x3a] == [0x53, 0xef]).then(|| uuid_text(&bytes))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
22 21 0:20 / /proc rw,nosuid - proc proc rw
23 21 0:21 / /tmp rw - tmpfs tmpfs rw,size=1k
24 21 254:16 /sub /home rw - ext4 /dev/vdb ro,errors=continue
25 21 0:22 / /srv/with\\040blank rw shared:2 master:3 - tmpfs none rw
26 21 0:23 / /tmp rw - ext4 /dev/vdc rw
broken line
";

    #[track_caller]
    fn check(root: &str, expect: &[(&str, &str, &str)]) {
        let mounts = seen_from(TABLE.as_bytes(), root.as_bytes()).unwrap();
        let found: Vec<_> = mounts
            .iter()
            .map(|mount| (mount.path.to_string(), mount.kind.clone(), String::from_utf8(mount.root.clone()).unwrap()))
            .collect();
        let found: Vec<_> =
            found.iter().map(|(path, kind, root)| (path.as_str(), kind.as_str(), root.as_str())).collect();
        assert_eq!(found, expect);
    }

    #[test]
    fn a_workspace_sees_what_holds_its_root_and_what_lies_beneath() {
        check(
            "/",
            &[
                ("/", "ext4", "/"),
                ("/proc", "proc", "/"),
                ("/home", "ext4", "/sub"),
                ("/srv/with blank", "tmpfs", "/"),
                ("/tmp", "ext4", "/"),
            ],
        );
        check("/home", &[("/", "ext4", "/sub")]);
        check("/home/a", &[("/", "ext4", "/sub/a")]);
        check("/srv", &[("/", "ext4", "/srv"), ("/with blank", "tmpfs", "/")]);
        check("/homes", &[("/", "ext4", "/homes")]);
    }

    #[test]
    fn what_takes_no_writes_needs_no_freeze() {
        let mounts = seen_from(TABLE.as_bytes(), b"/").unwrap();
        let freezable: Vec<_> =
            mounts.iter().filter(|mount| mount.is_freezable()).map(|mount| mount.path.to_string()).collect();
        assert_eq!(freezable, ["/", "/tmp"]);
    }

    #[test]
    fn this_machine_has_a_table_too() {
        let mounts = read(Path::new("/")).unwrap();
        assert!(mounts[0].path.is_root() && mounts.iter().any(|mount| mount.kind == "proc"));
        assert!(seen_from(b"", b"/").is_none());
    }
}
