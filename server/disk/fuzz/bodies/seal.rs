//! Makes the checksums of a changed disk right again: naive changes mostly die at one, and whoever is root in a machine
//! can compute them as well as a kernel can.
//!
//! Everything here is bounded, and reads the disk as loosely as it can: what cannot be sealed is left as it is.

/// Inodes, blocks of names and nodes that are sealed on one disk.
const INODE_COUNT_MAX: usize = 2_048;
const BLOCK_COUNT_MAX: usize = 1_024;

fn crc32c(start: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!start, bytes)
}

fn le16(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).and_then(|field| field.try_into().ok()).map_or(0, u16::from_le_bytes)
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|field| field.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    le32(bytes, at).swap_bytes()
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(field) = bytes.get_mut(at..at + value.len()) {
        field.copy_from_slice(value);
    }
}

/// Where things are on a disk, as its superblock says it.
pub struct Layout {
    block_bytes: usize,
    inode_bytes: usize,
    inodes_per_group: usize,
    inode_count: usize,
    tables: Vec<usize>,
    seed: u32,
    disk_bytes: usize,
}

impl Layout {
    /// Nothing where it cannot be a file system that fits the disk.
    pub fn of(disk: &[u8]) -> Option<Self> {
        let superblock = disk.get(1024..2048)?;
        let block_bytes = 1024_usize << le32(superblock, 0x18).min(6);
        let (inode_bytes, inodes_per_group) = (usize::from(le16(superblock, 0x58)), le32(superblock, 0x28) as usize);
        if le16(superblock, 0x38) != 0xEF53 || !(128..=block_bytes).contains(&inode_bytes) || inodes_per_group == 0 {
            return None;
        }
        let wide = le32(superblock, 0x60) & 0x80 != 0;
        let descriptor_bytes = if wide { usize::from(le16(superblock, 0xFE)).max(32) } else { 32 };
        let first = (1024 / block_bytes + 1) * block_bytes;
        let groups = disk.len() / block_bytes / (le32(superblock, 0x20) as usize).max(1) + 1;
        let tables =
            (0..groups.min(64)).map(|group| le32(disk, first + group * descriptor_bytes + 8) as usize * block_bytes);
        let seed = match le32(superblock, 0x60) & 0x2000 {
            0 => crc32c(!0, superblock.get(0x68..0x78)?),
            _ => le32(superblock, 0x270),
        };
        Some(Self {
            block_bytes,
            inode_bytes,
            inodes_per_group,
            inode_count: le32(superblock, 0) as usize,
            tables: tables.collect(),
            seed,
            disk_bytes: disk.len(),
        })
    }

    /// Where an inode begins; past the disk where it has no place.
    pub fn inode_at(&self, number: usize) -> usize {
        let index = number.saturating_sub(1);
        let table = self.tables.get(index / self.inodes_per_group);
        table.map_or(self.disk_bytes, |table| table + index % self.inodes_per_group * self.inode_bytes)
    }

    fn inode_seed(&self, disk: &[u8], number: usize) -> u32 {
        let generation = le32(disk, self.inode_at(number) + 0x64);
        crc32c(crc32c(self.seed, &(number as u32).to_le_bytes()), &generation.to_le_bytes())
    }

    /// The runs of an inode's content by its extents, in bytes: (where, how many).
    pub fn runs(&self, disk: &[u8], number: usize) -> Vec<(usize, usize)> {
        let mut runs = Vec::new();
        self.nodes(disk, number, &mut |at, _| {
            if le16(disk, at + 6) != 0 {
                return;
            }
            for index in 0..usize::from(le16(disk, at + 2)).min(340) {
                let entry = at + 12 * (index + 1);
                let (start, length) = (le32(disk, entry + 8) as usize, usize::from(le16(disk, entry + 4) & 0x7FFF));
                let start = start.saturating_mul(self.block_bytes);
                if start < self.disk_bytes {
                    runs.push((start, (length * self.block_bytes).min(self.disk_bytes - start)));
                }
            }
        });
        runs
    }

    /// Every node of an inode's extents: where it begins, and whether it is a block of its own.
    fn nodes(&self, disk: &[u8], number: usize, visit: &mut dyn FnMut(usize, bool)) {
        let inode = self.inode_at(number);
        if le32(disk, inode + 0x20) & 0x8_0000 == 0 {
            return;
        }
        let mut left = vec![(inode + 0x28, false)];
        for _ in 0..64 {
            let Some((at, own)) = left.pop() else { return };
            visit(at, own);
            let most = if own { self.block_bytes / 12 } else { 4 };
            if le16(disk, at) == 0xF30A && le16(disk, at + 6) != 0 {
                let children = (0..usize::from(le16(disk, at + 2)).min(most)).map(|index| at + 12 * (index + 1) + 4);
                left.extend(
                    children.map(|field| ((le32(disk, field) as usize).saturating_mul(self.block_bytes), true)),
                );
            }
        }
    }
}

/// Seals superblock, descriptors, inodes, nodes of extents, blocks of names and of attributes.
pub fn metadata(disk: &mut [u8]) {
    if disk.len() < 2048 || le32(disk, 1024 + 0x64) & 0x400 == 0 {
        return;
    }
    let sum = crc32c(!0, &disk[1024..1024 + 0x3FC]);
    put(disk, 1024 + 0x3FC, &sum.to_le_bytes());
    let Some(layout) = Layout::of(disk) else { return };
    let mut blocks_left = BLOCK_COUNT_MAX;
    for number in 1..=layout.inode_count.min(INODE_COUNT_MAX) {
        let at = layout.inode_at(number);
        if at >= disk.len() || le16(disk, at) == 0 {
            continue;
        }
        let seed = layout.inode_seed(disk, number);
        nodes(disk, &layout, number, seed);
        if le16(disk, at) & 0xF000 == 0x4000 {
            for (start, length) in layout.runs(disk, number) {
                for block in (start..start + length).step_by(layout.block_bytes) {
                    blocks_left = blocks_left.saturating_sub(1);
                    if blocks_left > 0 {
                        names(disk, block, layout.block_bytes, seed);
                    }
                }
            }
        }
        attributes(disk, &layout, at);
        inode(disk, &layout, at, seed);
    }
    descriptors(disk, &layout);
}

fn descriptors(disk: &mut [u8], layout: &Layout) {
    let wide = le32(disk, 1024 + 0x60) & 0x80 != 0;
    let bytes = if wide { usize::from(le16(disk, 1024 + 0xFE)).clamp(64, 1024) } else { 32 };
    let first = (1024 / layout.block_bytes + 1) * layout.block_bytes;
    for group in 0..layout.tables.len() {
        let at = first + group * bytes;
        let Some(held) = disk.get(at..at + bytes) else { return };
        let sum = crc32c(layout.seed, &(group as u32).to_le_bytes());
        let sum = crc32c(crc32c(crc32c(sum, &held[..0x1E]), &[0; 2]), &held[0x20..]);
        put(disk, at + 0x1E, &(sum as u16).to_le_bytes());
    }
}

fn inode(disk: &mut [u8], layout: &Layout, at: usize, seed: u32) {
    let extra = usize::from(le16(disk, at + 0x80));
    put(disk, at + 0x7C, &[0; 2]);
    let has_high = layout.inode_bytes > 128 && extra >= 4;
    if has_high {
        put(disk, at + 0x82, &[0; 2]);
    }
    let Some(held) = disk.get(at..at + layout.inode_bytes) else { return };
    let sum = crc32c(seed, held).to_le_bytes();
    put(disk, at + 0x7C, &sum[..2]);
    if has_high {
        put(disk, at + 0x82, &sum[2..]);
    }
}

fn nodes(disk: &mut [u8], layout: &Layout, number: usize, seed: u32) {
    let mut own = Vec::new();
    layout.nodes(disk, number, &mut |at, is_own| own.extend(is_own.then_some(at)));
    for at in own {
        let end = at + (usize::from(le16(disk, at + 4)) + 1) * 12;
        if let Some(held) = disk.get(at..end) {
            let sum = crc32c(seed, held);
            put(disk, end, &sum.to_le_bytes());
        }
    }
}

fn names(disk: &mut [u8], at: usize, block_bytes: usize, seed: u32) {
    let Some(block) = disk.get(at..at + block_bytes) else { return };
    let tail = &block[block_bytes - 12..];
    if le16(tail, 4) == 12 && tail[7] == 0xDE {
        let sum = crc32c(seed, &block[..block_bytes - 12]);
        return put(disk, at + block_bytes - 4, &sum.to_le_bytes());
    }
    // A block of hashes.
    let hashes = if le16(block, 4) == 12 { 32 } else { 8 };
    let (room, count) = (usize::from(le16(block, hashes)), usize::from(le16(block, hashes + 2)));
    let (end, tail) = (hashes + count * 8, hashes + room * 8);
    if let (Some(summed), Some(reserved)) = (block.get(..end), block.get(tail..tail + 4)) {
        let sum = crc32c(crc32c(crc32c(seed, summed), reserved), &[0; 4]);
        put(disk, at + tail + 4, &sum.to_le_bytes());
    }
}

fn attributes(disk: &mut [u8], layout: &Layout, inode: usize) {
    let number = u64::from(le32(disk, inode + 0x68));
    let at = (number as usize).saturating_mul(layout.block_bytes);
    if number == 0 || le32(disk, at) != 0xEA02_0000 {
        return;
    }
    put(disk, at + 16, &[0; 4]);
    if let Some(block) = disk.get(at..at + layout.block_bytes) {
        let sum = crc32c(crc32c(layout.seed, &number.to_le_bytes()), block);
        put(disk, at + 16, &sum.to_le_bytes());
    }
}

/// Seals a journal: its superblock, the tags and ends of descriptors, revoke blocks and commit blocks. Only one that lies
/// in one piece, as mke2fs makes it.
pub fn journal(disk: &mut [u8]) {
    let Some(layout) = Layout::of(disk) else { return };
    let Some(&(start, length)) = layout.runs(disk, 8).first() else { return };
    let size = layout.block_bytes;
    let (v2, v3) = (be32(disk, start + 0x28) & 8 != 0, be32(disk, start + 0x28) & 16 != 0);
    let Some(own) = disk.get(start..start + 1024).filter(|own| be32(own, 0) == 0xC03B_3998 && (v2 || v3)) else {
        return;
    };
    let seed = crc32c(!0, &own[0x30..0x40]);
    put(disk, start + 0xFC, &[0; 4]);
    let sum = crc32c(!0, &disk[start..start + 1024]);
    put(disk, start + 0xFC, &sum.to_be_bytes());
    let wide = be32(disk, start + 0x28) & 2 != 0;
    let tag_bytes = if v3 { 16 } else { 10 + if wide { 4 } else { 0 } };
    for at in (start + size..start + length).step_by(size).take(BLOCK_COUNT_MAX) {
        if be32(disk, at) != 0xC03B_3998 || at + size > disk.len() {
            continue;
        }
        let kind = be32(disk, at + 4);
        if kind == 1 {
            tags(disk, at, size, tag_bytes, crc32c(seed, &be32(disk, at + 8).to_be_bytes()));
        }
        if kind == 1 || kind == 5 {
            let sum = crc32c(crc32c(seed, &disk[at..at + size - 4]), &[0; 4]);
            put(disk, at + size - 4, &sum.to_be_bytes());
        }
        if kind == 2 {
            put(disk, at + 0x10, &[0; 4]);
            let sum = crc32c(seed, &disk[at..at + size]);
            put(disk, at + 0x10, &sum.to_be_bytes());
        }
    }
}

/// The sums of the blocks that follow a descriptor.
fn tags(disk: &mut [u8], at: usize, size: usize, tag_bytes: usize, seed: u32) {
    let (mut tag, mut copy) = (at + 12, at + size);
    while tag + tag_bytes <= at + size - 4 {
        let Some(block) = disk.get(copy..copy + size) else { return };
        let sum = crc32c(seed, block);
        let flags = be32(disk, tag + 4) & 0xFFFF;
        match tag_bytes {
            16 => put(disk, tag + 12, &sum.to_be_bytes()),
            _ => put(disk, tag + 4, &(sum as u16).to_be_bytes()),
        }
        if flags & 8 != 0 {
            return;
        }
        tag += tag_bytes + if flags & 2 == 0 { 16 } else { 0 };
        copy += size;
    }
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |sum, &byte| {
        (0..8).fold(sum ^ u32::from(byte), |sum, _| sum >> 1 ^ if sum & 1 != 0 { 0xEDB8_8320 } else { 0 })
    })
}

/// Seals the two headers of a GPT and what they say of their entries.
pub fn partitions(disk: &mut [u8]) {
    let last = disk.len().saturating_sub(512);
    for at in [512, last] {
        let table = (le32(disk, at + 72) as usize).saturating_mul(512);
        let bytes = (le32(disk, at + 80) as usize).saturating_mul(le32(disk, at + 84) as usize).min(128 * 1024);
        if let Some(sum) = disk.get(table..table.saturating_add(bytes)).map(crc32) {
            put(disk, at + 88, &sum.to_le_bytes());
        }
        put(disk, at + 16, &[0; 4]);
        let length = (le32(disk, at + 12) as usize).min(512);
        if let Some(sum) = disk.get(at..at + length).map(crc32) {
            put(disk, at + 16, &sum.to_le_bytes());
        }
    }
}
