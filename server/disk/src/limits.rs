//! Every bound of the reader, passed in where it is used. Units and `_max` end the name.

/// Bounds against a hostile image.
#[derive(Debug, Clone)]
pub struct DiskLimits {
    /// Bytes of blocks that a replayed journal may put over the disk.
    pub overlay_bytes_max: u64,
    /// Blocks that a journal's revoke records may name, over all its transactions.
    pub revoke_count_max: usize,
    /// Blocks of metadata, with indexes of their names, that are kept in memory for each open disk, in bytes.
    pub cache_bytes_max: usize,
    /// Tables of inodes that are read at once and kept in memory for each open disk, in bytes.
    pub table_bytes_max: usize,
    /// Inodes of directories that are kept in memory for each open disk, in bytes.
    pub inode_bytes_max: usize,
    /// Names, missing ones and those with what a stat tells of them, that are kept in memory for each open disk, in bytes.
    pub name_bytes_max: usize,
    /// Content that is read ahead, for each open disk while calls read it, in bytes.
    pub ahead_bytes_max: usize,
    /// Bytes of one directory; a listing or a linear lookup beyond it is refused.
    pub directory_bytes_max: u64,
    /// Bytes of all the extended attributes of one inode.
    pub xattr_bytes_max: usize,
    /// Files and block devices of one disk.
    pub layer_count_max: usize,
    /// Changes that pending fast commits may hold: ranges, names and inodes together.
    pub fast_commit_count_max: usize,
}

impl Default for DiskLimits {
    fn default() -> Self {
        Self {
            overlay_bytes_max: 256 << 20,
            revoke_count_max: 4 << 20,
            cache_bytes_max: 16 << 20,
            table_bytes_max: 16 << 20,
            inode_bytes_max: 2 << 20,
            name_bytes_max: 12 << 20,
            ahead_bytes_max: 5 << 20,
            directory_bytes_max: 1 << 30,
            xattr_bytes_max: 1 << 20,
            layer_count_max: 16,
            fast_commit_count_max: 1 << 20,
        }
    }
}
