//! A journal that needs recovery: the first byte says whether its checksums are made right again, and whether the flag that
//! asks for a replay is set whatever the disk says.

use std::sync::Arc;

use dormouse_disk::MemorySource;

use super::{exercise::exercise, packed::unpack, seal};

pub fn body(input: &[u8]) {
    let Some((&how, rest)) = input.split_first() else { return };
    let mut disk = unpack(rest);
    if how & 2 != 0
        && let Some(byte) = disk.get_mut(1024 + 0x60)
    {
        *byte |= 4;
    }
    if how & 1 != 0 {
        seal::journal(&mut disk);
        seal::metadata(&mut disk);
    }
    exercise(Arc::new(MemorySource::new(disk)));
}
