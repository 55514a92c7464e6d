//! What a tree knows of a file without reading its content.

use std::fmt;

/// The type of a file, from `S_IFMT` of its mode (inode(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileType {
    /// `S_IFREG`.
    Regular,
    /// `S_IFDIR`.
    Directory,
    /// `S_IFLNK`.
    Symlink,
    /// `S_IFIFO`.
    Fifo,
    /// `S_IFSOCK`.
    Socket,
    /// `S_IFCHR`.
    CharacterDevice,
    /// `S_IFBLK`.
    BlockDevice,
}

impl FileType {
    /// From the mode of an inode (inode(7)); nothing where the type bits are none of the seven.
    pub fn from_mode(mode: u32) -> Option<Self> {
        Some(match mode & 0o170_000 {
            0o100_000 => Self::Regular,
            0o040_000 => Self::Directory,
            0o120_000 => Self::Symlink,
            0o010_000 => Self::Fifo,
            0o140_000 => Self::Socket,
            0o020_000 => Self::CharacterDevice,
            0o060_000 => Self::BlockDevice,
            _ => return None,
        })
    }

    /// The name that errors and JSON carry: `regular`, `directory`, `symlink`, `fifo`, `socket`, `character_device`,
    /// `block_device`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Regular => "regular",
            Self::Directory => "directory",
            Self::Symlink => "symlink",
            Self::Fifo => "fifo",
            Self::Socket => "socket",
            Self::CharacterDevice => "character_device",
            Self::BlockDevice => "block_device",
        }
    }

    /// The same in a sentence, with its article.
    pub fn described(self) -> &'static str {
        match self {
            Self::Regular => "a regular file",
            Self::Directory => "a directory",
            Self::Symlink => "a symbolic link",
            Self::Fifo => "a FIFO",
            Self::Socket => "a socket",
            Self::CharacterDevice => "a character device",
            Self::BlockDevice => "a block device",
        }
    }
}

impl fmt::Display for FileType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// A moment, since 1970-01-01T00:00:00Z; before it the seconds are negative and the nanoseconds still count forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time {
    /// Whole seconds.
    pub seconds: i64,
    /// 0 to 999,999,999.
    pub nanoseconds: u32,
}

/// What stat(2) tells of a file, as far as the contract needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meta {
    /// The type.
    pub kind: FileType,
    /// Of a regular file its length in bytes, of a symbolic link its target's; of others as the file system says.
    pub size_bytes: u64,
    /// Permission, set-id and sticky bits (07777).
    pub mode: u32,
    /// Numeric owner.
    pub uid: u32,
    /// Numeric group.
    pub gid: u32,
    /// Hard links.
    pub link_count: u32,
    /// Last change of the content.
    pub modify_time: Time,
    /// Last change of the inode.
    pub change_time: Time,
    /// The inode's number in its file system.
    pub inode: u64,
}

impl Meta {
    /// The opaque etag of the contract: differs whenever inode, size or times differ. The same live and on disk, because
    /// it holds nothing but what the inode itself says.
    pub fn etag(&self) -> String {
        format!(
            "{:x}-{:x}-{:x}.{:x}-{:x}.{:x}",
            self.inode,
            self.size_bytes,
            self.modify_time.seconds,
            self.modify_time.nanoseconds,
            self.change_time.seconds,
            self.change_time.nanoseconds
        )
    }
}
