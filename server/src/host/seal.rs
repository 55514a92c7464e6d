//! The proof that a disk is still: what Seal looks for and records, and what every read of the disk compares.
//!
//! Nothing is ever locked here: a writer's lock is asked for with `F_OFD_GETLK` (fcntl(2)) and never taken. QEMU keeps
//! read locks at the bytes 101 and 103 of an image that it writes (`docs/system/qemu-block-drivers`, image locking), so a
//! probe for a write lock there finds it; Cloud Hypervisor locks the whole file for writing, so a probe for a read lock
//! finds that.

use std::{fs::File, io, os::unix::fs::MetadataExt, path::Path};

use dormouse_disk::{DiskLimits, OpenError, Unsealed, Volume, open_layer};
use dormouse_files::revision::Revision;
use nix::{
    fcntl::{FcntlArg, fcntl},
    libc,
};
use serde::{Deserialize, Serialize};

use crate::host::{
    relay::machine::Frozen,
    spec::{Disk, DiskFormat, FileSystem, Spec},
    state::Rest,
    store::Moment,
};

/// What Seal found on a workspace's disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seal {
    /// Of the transition that made it.
    pub generation: i64,
    /// The disk holds the files exactly as they were.
    pub exact: bool,
    /// Of each layer of the root's disk.
    pub stamps: Vec<Stamp>,
    /// Of the ext4 superblock; empty where the disk holds none that parses.
    pub superblock_sha256: String,
    /// When.
    pub seal_time: Moment,
    /// Mount points that no sealed disk holds.
    pub foreign_mount_paths: Vec<String>,
}

/// What stat(2) says of a layer. No device number: it changes with a reboot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stamp {
    /// The inode's number.
    pub inode: u64,
    /// In bytes.
    pub size_bytes: u64,
    /// Of the content.
    pub modify_time: Moment,
    /// Of the inode.
    pub change_time: Moment,
    /// The kind of the host's file system and its own number (`f_type` and `f_fsid` of statfs(2)), in hex. The number is left
    /// out where it is that of a device, which does not survive a reboot.
    pub file_system_id: String,
}

/// How a layer differs from its stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Difference {
    /// It does not.
    None,
    /// Only the inode changed, as by chmod(2) or link(2).
    InodeOnly,
    /// The file is another one, or was written.
    Content,
}

impl Stamp {
    /// Of the file at this path now.
    ///
    /// # Errors
    /// From the system.
    pub fn of(path: &Path) -> io::Result<Self> {
        let meta = std::fs::metadata(path)?;
        let moment =
            |seconds, nanoseconds: i64| Moment { seconds, nanoseconds: u32::try_from(nanoseconds).unwrap_or_default() };
        let kind = nix::sys::statfs::statfs(path)?.filesystem_type().0;
        let number = nix::sys::statvfs::statvfs(path)?.filesystem_id();
        Ok(Self {
            inode: meta.ino(),
            size_bytes: meta.len(),
            modify_time: moment(meta.mtime(), meta.mtime_nsec()),
            change_time: moment(meta.ctime(), meta.ctime_nsec()),
            file_system_id: match number == 0 || number == device_number(meta.dev()) {
                true => format!("{kind:x}"),
                false => format!("{kind:x}-{number:x}"),
            },
        })
    }

    /// How what is there now differs from this stamp.
    pub fn compare(&self, now: &Self) -> Difference {
        let content = |stamp: &Self| (stamp.inode, stamp.size_bytes, stamp.modify_time, stamp.file_system_id.clone());
        match (content(self) == content(now), self.change_time == now.change_time) {
            (true, true) => Difference::None,
            (true, false) => Difference::InodeOnly,
            (false, _) => Difference::Content,
        }
    }
}

/// As the kernel writes a device's number into `f_fsid` (`huge_encode_dev` of its `include/linux/kdev_t.h`), which XFS does.
fn device_number(device: u64) -> u64 {
    let (major, minor) = (nix::sys::stat::major(device), nix::sys::stat::minor(device));
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

/// What Seal found.
pub struct Found {
    /// The proof; nothing where the disk cannot answer at all.
    pub seal: Option<Seal>,
    /// Why it is not exact; empty where it is.
    pub note: String,
    /// In one word, for a caller that demanded the proof: `needs_recovery`, `disk_locked`, `mtime`, or the reader's words.
    pub what: String,
}

/// Looks at what a workspace's files lie on. Blocks; never fails for lack of proof.
///
/// A directory shares one page cache with whoever wrote it, so a still one is exact; that it is still is the control
/// plane's word.
///
/// `frozen` is what the machine told when it froze: nothing where it did not, and then only the record's own mount points
/// are known.
pub fn look_at(spec: &Spec, frozen: Option<&Frozen>, rest: Rest, generation: i64) -> Found {
    let mut elsewhere: Vec<String> = spec.mounts_elsewhere().iter().map(ToString::to_string).collect();
    for path in frozen.iter().flat_map(|frozen| &frozen.mount_paths) {
        if !elsewhere.contains(path) {
            elsewhere.push(path.clone());
        }
    }
    match spec {
        Spec::Machine { .. } => look(spec.root_disk(), frozen, elsewhere, rest, generation),
        Spec::Directory { .. } => {
            let seal = Seal {
                generation,
                exact: true,
                stamps: Vec::new(),
                superblock_sha256: String::new(),
                seal_time: Moment::now(),
                foreign_mount_paths: elsewhere,
            };
            Found { seal: Some(seal), note: String::new(), what: String::new() }
        }
    }
}

fn look(
    disk: Option<&Disk>,
    frozen: Option<&Frozen>,
    mounts_elsewhere: Vec<String>,
    rest: Rest,
    generation: i64,
) -> Found {
    let none = |what: &str, note: String| Found { seal: None, note, what: what.to_owned() };
    let Some(disk) = disk else {
        return none("no_disk", "no disk is registered for the workspace's root".to_owned());
    };
    if disk.file_system != FileSystem::Ext4 {
        let name = disk.file_system.name();
        return none("file_system", format!("{name} is not read here, only ext4"));
    }
    if rest == Rest::Parked && !disk.flushes && disk.layers.iter().any(|layer| layer.format == DiskFormat::Qcow2) {
        return none(
            "qcow2_in_memory",
            "a parked machine may hold parts of its qcow2 image in memory, and its flushes do not reach the disk"
                .to_owned(),
        );
    }
    let before = match stamps(disk) {
        Ok(stamps) => stamps,
        Err(error) => return none("disk_missing", format!("a layer of the disk cannot be read: {error}")),
    };
    let superblock = match superblock(disk) {
        Ok(superblock) => superblock,
        Err(error) => return none("disk_missing", error.to_string()),
    };
    if let Some(frozen) = frozen {
        if frozen.root != "/" {
            return none("root", "the workspace's root is not the root of the file system that froze".to_owned());
        }
        // What froze is another file system than this one: the wrong image, or the wrong partition of it.
        if !frozen.root_uuid.is_empty() && uuid(disk).is_some_and(|uuid| uuid != frozen.root_uuid) {
            return none("file_system_uuid", "the disk holds another file system than the one that froze".to_owned());
        }
    }
    let open = Volume::open(&disk.to_reader(), Unsealed::Never, &DiskLimits::default());
    let (mut exact, mut what, mut note) = match open {
        Ok(volume) if volume.has_journal() => (true, String::new(), String::new()),
        // Its superblock has no flag that a machine would clear only when everything is at its place.
        Ok(_) => {
            (false, "no_journal".to_owned(), "the file system has no journal, so nothing proves it still".to_owned())
        }
        Err(OpenError::Unavailable { what }) => (false, what.clone(), format!("the disk is not proved still: {what}")),
        Err(error) => (false, "corrupt".to_owned(), error.to_string()),
    };
    if exact && rest == Rest::Suspended && is_written(disk) {
        (exact, what, note) =
            (false, "disk_locked".to_owned(), "another process has the disk open for writing".to_owned());
    }
    match stamps(disk) {
        Ok(after) if after == before => {}
        _ => (exact, what, note) = (false, "mtime".to_owned(), "the disk changed while it was looked at".to_owned()),
    }
    let seal = Seal {
        generation,
        exact,
        stamps: before,
        superblock_sha256: superblock,
        seal_time: Moment::now(),
        foreign_mount_paths: mounts_elsewhere,
    };
    Found { seal: Some(seal), note, what }
}

/// What a read finds when it compares a disk with its seal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It is as it was.
    Holds,
    /// It differs in a way that proves no writer.
    Differs(&'static str),
    /// Something wrote it without an Unseal.
    Written(&'static str),
}

/// Compares a disk with its seal; `rest` because a parked machine keeps its own locks.
pub fn verify(disk: &Disk, seal: &Seal, rest: Rest) -> Standing {
    if rest == Rest::Suspended && is_written(disk) {
        return Standing::Written("another process has the disk open for writing");
    }
    if disk.layers.len() != seal.stamps.len() {
        return Standing::Differs("the seal is of another disk");
    }
    let mut worst = Difference::None;
    for (layer, stamp) in disk.layers.iter().zip(&seal.stamps) {
        match Stamp::of(&layer.path).map(|now| stamp.compare(&now)) {
            Ok(Difference::None) => {}
            Ok(Difference::InodeOnly) if worst == Difference::None => worst = Difference::InodeOnly,
            Ok(Difference::InodeOnly) => {}
            // No machine makes its disk shorter.
            Ok(Difference::Content) if std::fs::metadata(&layer.path).is_ok_and(|now| now.len() < stamp.size_bytes) => {
                return Standing::Differs("a layer of the disk has become shorter");
            }
            Ok(Difference::Content) => worst = Difference::Content,
            Err(_) => return Standing::Differs("a layer of the disk is gone"),
        }
    }
    let Ok(superblock) = superblock(disk) else { return Standing::Differs("the disk cannot be read") };
    let superblock_same = superblock == seal.superblock_sha256;
    match worst {
        Difference::None | Difference::InodeOnly if superblock_same => Standing::Holds,
        Difference::None | Difference::InodeOnly => Standing::Written("the superblock changed"),
        Difference::Content if superblock_same => {
            Standing::Differs("the disk was touched or replaced since it was sealed")
        }
        Difference::Content => Standing::Written("the disk was written since it was sealed"),
    }
}

/// Whether every layer still is the file that was sealed, with its size and time: one stat(2) each, cheap enough to ask
/// before each piece.
pub fn stands(disk: &Disk, seal: &Seal) -> bool {
    disk.layers.len() == seal.stamps.len()
        && disk.layers.iter().zip(&seal.stamps).all(|(layer, stamp)| {
            std::fs::metadata(&layer.path).is_ok_and(|now| {
                let modify_time = (stamp.modify_time.seconds, i64::from(stamp.modify_time.nanoseconds));
                (now.ino(), now.len()) == (stamp.inode, stamp.size_bytes)
                    && (now.mtime(), now.mtime_nsec()) == modify_time
            })
        })
}

/// Of each layer, after what the host's page cache holds of it has reached the disk (fsync(2) takes a read-only descriptor).
fn stamps(disk: &Disk) -> io::Result<Vec<Stamp>> {
    disk.layers
        .iter()
        .map(|layer| {
            open_layer(&layer.path)?.sync_all()?;
            Stamp::of(&layer.path)
        })
        .collect()
}

/// SHA-256 of the 1,024 bytes of the superblock (kernel document ext4/globals, "Super Block"), in hex; empty where the
/// disk holds none that parses.
fn superblock(disk: &Disk) -> Result<String, OpenError> {
    match dormouse_disk::probe(&disk.to_reader(), &DiskLimits::default()) {
        Ok(probe) => Ok(Revision::from_digest(probe.superblock_sha256).to_string()),
        Err(error @ OpenError::Io { .. }) => Err(error),
        Err(_) => Ok(String::new()),
    }
}

/// Of the file system on the disk, as text (RFC 9562); nothing where none parses.
fn uuid(disk: &Disk) -> Option<String> {
    let probe = dormouse_disk::probe(&disk.to_reader(), &DiskLimits::default()).ok()?;
    Some(uuid_text(&probe.uuid))
}

/// A UUID in its usual form (RFC 9562, section 4).
pub fn uuid_text(bytes: &[u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

/// Whether another process is known to write a layer of the disk, by the locks that machines take.
fn is_written(disk: &Disk) -> bool {
    let probe = |file: &File, kind: libc::c_int, start: i64, length: i64| {
        let mut lock = libc::flock {
            l_type: kind as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: start,
            l_len: length,
            l_pid: 0,
        };
        // A file system without locks cannot show a writer; the stamps still can.
        fcntl(file, FcntlArg::F_OFD_GETLK(&mut lock)).is_ok() && lock.l_type != libc::F_UNLCK as libc::c_short
    };
    disk.layers.iter().any(|layer| {
        open_layer(&layer.path).is_ok_and(|file| {
            probe(&file, libc::F_WRLCK, 101, 1)
                || probe(&file, libc::F_WRLCK, 103, 1)
                || probe(&file, libc::F_RDLCK, 0, 0)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp() -> Stamp {
        Stamp {
            inode: 1,
            size_bytes: 2,
            modify_time: Moment { seconds: 3, nanoseconds: 4 },
            change_time: Moment { seconds: 5, nanoseconds: 6 },
            file_system_id: "ef53".to_owned(),
        }
    }

    #[test]
    fn a_stamp_tells_the_inode_from_the_content() {
        let check = |now: Stamp, expect| assert_eq!(stamp().compare(&now), expect);
        check(stamp(), Difference::None);
        check(Stamp { change_time: Moment::default(), ..stamp() }, Difference::InodeOnly);
        check(Stamp { modify_time: Moment::default(), ..stamp() }, Difference::Content);
        check(Stamp { size_bytes: 9, ..stamp() }, Difference::Content);
        check(Stamp { inode: 9, ..stamp() }, Difference::Content);
        check(Stamp { file_system_id: "1021994".to_owned(), ..stamp() }, Difference::Content);
    }

    fn disk(path: &Path) -> Disk {
        Disk {
            layers: vec![crate::host::spec::DiskLayer { path: path.to_owned(), format: DiskFormat::Raw }],
            partition: None,
            file_system: FileSystem::Ext4,
            mount_path: "/".to_owned(),
            flushes: true,
        }
    }

    #[test]
    fn a_fifo_in_the_image_place_is_no_disk_and_nothing_waits_for_its_writer() {
        let place = tempfile::tempdir().unwrap();
        let fifo = place.path().join("disk");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let spec = Spec::Machine { guest: None, disks: vec![disk(&fifo)] };
        // Bounded, so that the wait that is ruled out here fails this test instead of holding the whole run.
        let (told, tell) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let found = (look_at(&spec, None, Rest::Suspended, 1), is_written(&disk(&fifo)));
            told.send(found).expect("the test waits");
        });
        let (found, written) = tell.recv_timeout(std::time::Duration::from_secs(30)).unwrap();
        assert!(found.seal.is_none());
        assert_eq!(found.what, "disk_missing");
        assert!(!written);
    }

    #[test]
    fn a_file_system_is_known_by_its_own_number_and_never_by_a_devices() {
        assert_eq!(device_number(nix::sys::stat::makedev(8, 1)), 0x801);
        assert_eq!(device_number(nix::sys::stat::makedev(259, 0x1234)), 0x121_0334);
        let place = tempfile::tempdir().unwrap();
        fs_id(place.path());
        fs_id(Path::new("/proc"));
    }

    #[track_caller]
    fn fs_id(path: &Path) {
        let id = Stamp::of(path).unwrap().file_system_id;
        let (kind, number) = id.split_once('-').unwrap_or((&id, "1"));
        assert!(
            i64::from_str_radix(kind, 16).is_ok() && u64::from_str_radix(number, 16).is_ok_and(|it| it != 0),
            "{id}"
        );
    }

    #[test]
    fn a_lock_of_a_machine_is_seen_and_a_reader_is_not() {
        let image = tempfile::NamedTempFile::new().unwrap();
        let disk = disk(image.path());
        let lock = |kind: libc::c_int, start| libc::flock {
            l_type: kind as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: start,
            l_len: 1,
            l_pid: 0,
        };
        assert!(!is_written(&disk));
        let machine = File::options().read(true).write(true).open(image.path()).unwrap();
        fcntl(&machine, FcntlArg::F_OFD_SETLK(&lock(libc::F_RDLCK, 100))).unwrap();
        assert!(!is_written(&disk), "byte 100 is what a reader holds");
        fcntl(&machine, FcntlArg::F_OFD_SETLK(&lock(libc::F_RDLCK, 101))).unwrap();
        assert!(is_written(&disk));
        drop(machine);
        let machine = File::options().read(true).write(true).open(image.path()).unwrap();
        fcntl(&machine, FcntlArg::F_OFD_SETLK(&lock(libc::F_WRLCK, 0))).unwrap();
        assert!(is_written(&disk));
    }
}
