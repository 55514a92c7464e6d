//! Everything that a reader can be asked of a disk, with bounds of its own: what a hostile image must survive.

use std::{io, ops::ControlFlow, sync::Arc};

use dormouse_disk::{BlockSource, DiskLimits, LayerStamp, Unsealed, Volume};
use dormouse_files::{meta::FileType, tree::Tree};

/// Names looked at in one image.
const NAME_COUNT_MAX: usize = 200;

/// Small bounds, so that a run stays short.
pub fn limits() -> DiskLimits {
    DiskLimits {
        overlay_bytes_max: 8 << 20,
        cache_bytes_max: 1 << 20,
        directory_bytes_max: 2 << 20,
        revoke_count_max: 10_000,
        ..DiskLimits::default()
    }
}

/// Opens the disk, walks it and reads it; gives how many names were seen, or nothing where it does not open.
///
/// About half of all disks, as their first bytes fall, are read as a file is that cannot be mapped, and with the bounds of
/// every day: content is read ahead, and tables of inodes at once.
pub fn exercise(source: Arc<dyn BlockSource>) -> Option<usize> {
    let mut head = vec![0; source.len().min(4_096) as usize];
    source.read_at(0, &mut head).ok()?;
    let is_copied = head.iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte)) % 2 == 1;
    let (source, limits): (Arc<dyn BlockSource>, _) = match is_copied {
        false => (source, limits()),
        true => (Arc::new(Copied(source)), DiskLimits { cache_bytes_max: 16 << 20, ..limits() }),
    };
    walk(&Volume::from_source(source, Unsealed::Crash, &limits).ok()?)
}

/// A disk that lends nothing.
struct Copied(Arc<dyn BlockSource>);

impl BlockSource for Copied {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, buffer)
    }

    fn stamp(&self) -> io::Result<Vec<LayerStamp>> {
        self.0.stamp()
    }
}

/// The same with a disk that is open.
pub fn walk(volume: &Volume) -> Option<usize> {
    let root = volume.root().ok()?;
    let mut left = vec![(root, 0)];
    let mut seen = 0;
    let mut buffer = vec![0; 20_000];
    while let Some((directory, depth)) = left.pop() {
        let mut names = Vec::new();
        let _ = volume.names(&directory, &mut |name| {
            assert!((1..=255).contains(&name.bytes.len()) && !name.bytes.contains(&b'/') && !name.bytes.contains(&0));
            names.push(name.bytes.to_vec());
            seen += 1;
            if seen < NAME_COUNT_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        for name in names {
            let Ok(meta) = volume.stat(&directory, &name) else { continue };
            let _ = volume.xattrs(meta.inode);
            match meta.kind {
                FileType::Directory if depth < 64 => {
                    left.extend(volume.directory(&directory, &name).map(|inner| (inner, depth + 1)));
                }
                FileType::Symlink => {
                    if let Ok(target) = volume.link(&directory, &name) {
                        assert!((1..=4_095).contains(&target.len()));
                    }
                }
                FileType::Regular => {
                    let Ok((file, meta)) = volume.open(&directory, &name) else { continue };
                    for offset in [0, 4_000, meta.size_bytes / 2, meta.size_bytes.saturating_sub(10_000), u64::MAX - 5]
                    {
                        let wanted = meta.size_bytes.saturating_sub(offset).min(buffer.len() as u64);
                        let lent = volume.lend(&file, offset, buffer.len());
                        if let Ok(count) = volume.read_at(&file, offset, &mut buffer) {
                            assert_eq!(count as u64, wanted);
                            if let Ok(Some(lent)) = lent {
                                assert!(!lent.is_empty() && lent == &buffer[..lent.len()]);
                            }
                        }
                    }
                }
                _ => (),
            }
        }
        let _ = volume.stat(&directory, b"a name that is not there");
    }
    Some(seen)
}
