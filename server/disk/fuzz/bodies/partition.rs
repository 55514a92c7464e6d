//! A partition table: the first byte says whether the checksums of a GPT are made right again.

use std::sync::Arc;

use dormouse_disk::{BlockSource, MemorySource, Partition, select_partition};

use super::{packed::unpack, seal};

pub fn body(input: &[u8]) {
    let Some((&how, rest)) = input.split_first() else { return };
    let mut disk = unpack(rest);
    // Tables lie at the two ends of a disk, so a short one has all that there is to find.
    disk.truncate(256 << 10);
    if how & 1 != 0 {
        seal::partitions(&mut disk);
    }
    let length = disk.len() as u64;
    let source: Arc<dyn BlockSource> = Arc::new(MemorySource::new(disk));
    let guid = "0fc63daf-8483-4772-8e79-3d69d8477de4".to_owned();
    for wanted in [Partition::Number(1), Partition::Number(3), Partition::Guid(guid)] {
        let Ok(part) = select_partition(Arc::clone(&source), &wanted) else { continue };
        assert!(part.len() <= length && !part.is_empty());
        let mut byte = [0];
        assert!(part.read_at(0, &mut byte).is_ok() && part.read_at(part.len() - 1, &mut byte).is_ok());
        assert!(part.read_at(part.len(), &mut byte).is_err());
    }
}
